"""Processes that write a log file, are waited for by what they show, and die with the process that started them."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TAIL = 25
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None)


class Failed(Exception):
    """A process ended, or did not become what it was waited for; with the last lines of its log."""


class Child:
    """A process with a log."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={key: value for key, value in os.environ.items() if not key.startswith("PULSAR_")}
                | dict(environment or {}),
                start_new_session=True,
                preexec_fn=dying_with(os.getpid()),
                cwd=log.parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Wait until that is so; it is asked ten times a second."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None:
                raise Failed(
                    f"{self.name} should have {what}, but ended with {self._process.returncode}\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} should have {what} within {seconds} s\n{self.tail()}")
            time.sleep(0.1)

    def says(self, text: str, seconds: float = 30) -> None:
        self.until(lambda: text in self.output, f"said {text!r}", seconds)

    def ended(self, seconds: float) -> int:
        """Wait for its end; its code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} should have ended within {seconds} s\n{self.tail()}") from None

    def end(self, seconds: float = 60) -> int:
        """Ask it to end; its code."""
        self._process.send_signal(signal.SIGTERM)
        return self.ended(seconds)

    def kill(self) -> None:
        """With all that it has started itself."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def tail(self) -> str:
        return tail(self.log)


def dying_with(parent: int) -> Callable[[], None]:
    """To be called in a child before its program: it gets SIGKILL when its parent ends, however that ends."""

    def tie() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # too late
            os._exit(1)

    return tie


def tail(log: Path) -> str:
    """The last lines, each cut short: a broker writes its whole configuration into one."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL:]
    return "\n".join([f"--- {log.name}", *(line[:400] for line in lines)])
