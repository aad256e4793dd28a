"""Only one command at a time changes the tables: a file that says who, renewed while they work.

An owner that has died is known by its process, on the same machine, or else by not having renewed the file for a
while. What a slow owner would do to the tables after that is refused: it asks `hold` before each commit.
"""

import json
import os
import socket
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.storage import Storage, shown

NAME = "_lock"
BEAT = 10.0
"""Seconds between two renewals."""
STALE = 90.0
"""Seconds after which an owner that has not renewed the file is taken for dead."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who works on the tables."""

    token: str
    host: str
    process: int
    started: int | None
    """When the process began, in the kernel's ticks: numbers of processes come again."""
    command: str
    since: str

    @classmethod
    def myself(cls, command: str) -> Self:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), _started(os.getpid()), command, now)

    @property
    def is_dead(self) -> bool:
        """Whether it certainly is: only a process of this machine can be asked after."""
        if self.host != socket.gethostname() or self.started is None:
            return False
        return _started(self.process) != self.started


class Lock:
    """`with Lock(storage, "run"):` raises Busy where somebody else has it."""

    def __init__(self, storage: Storage, command: str) -> None:
        self._storage = storage
        self._owner = Owner.myself(command)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)

    def __enter__(self) -> Self:
        text = json.dumps(asdict(self._owner))
        if not self._made(text):
            self._take_over()
            if not self._made(text):
                raise Busy(_busy(self._storage, self._present()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._is_mine():
            self._storage.remove(NAME)

    def _made(self, text: str) -> bool:
        """A store's client asks again where the answer was lost, and is told that the file is there: its own."""
        return self._storage.create(NAME, text) or self._is_mine()

    def hold(self) -> None:
        """Be sure that it is still ours."""
        if not self._is_mine():
            fault = Busy if self._present() is not None else PipelineFault
            raise fault(f"{shown(self._storage.url)}: another command has taken over: nothing was changed")

    def _is_mine(self) -> bool:
        present = self._present()
        return present is not None and present.token == self._owner.token

    def _present(self) -> Owner | None:
        """Who has it; None where nobody has, or who cannot be read."""
        try:
            return Owner(**json.loads(self._storage.read(NAME)))
        except (PipelineFault, ValueError, TypeError):
            return None

    def _take_over(self) -> None:
        """Put a dead owner's file aside. Two may try: a file that is another's after all is put back."""
        before = self._present()
        modified = self._storage.modified(NAME)
        if modified is None:
            return
        if not (before is not None and before.is_dead) and time.time() - modified / 1000 < STALE:
            raise Busy(_busy(self._storage, before))
        aside = f"{NAME}.{self._owner.token}"
        try:
            self._storage.move(NAME, aside)
        except PipelineFault:
            return
        told = self._storage.read(aside)
        if before is not None and told and json.loads(told)["token"] != before.token:
            self._storage.create(NAME, told)
        self._storage.remove(aside)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                if self._is_mine():
                    self._storage.write(NAME, json.dumps(asdict(self._owner)))
            except PipelineFault:
                continue  # a store that is away for a moment; `hold` has the last word


def _busy(storage: Storage, owner: Owner | None) -> str:
    who = (
        f"`{owner.command}` ({owner.host}, process {owner.process}, since {owner.since})"
        if owner
        else "another command"
    )
    return (
        f"{shown(storage.url)}: {who} works on these tables; wait for it, or, "
        f"if it is dead, try again {STALE:.0f} s after its end"
    )


def _started(process: int) -> int | None:
    """The 22nd field of /proc/PID/stat, counted after the command's name, which may hold anything."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
