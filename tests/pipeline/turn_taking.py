"""Threads that take turns: each waits before every step until it is its turn, or is killed there."""

import threading
from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """As if the process had ended here."""


class Actor(threading.Thread):
    """Does its work step by step. One actor at a time is at work."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._turn, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = False
        self.next: str | None = ""
        """The step before which it waits; None if it has ended."""
        self.seen: tuple[Any, ...] = ()
        """What it has learned of others; what it does next depends on nothing else."""
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Work until the first step."""
        self.start()
        self._has_stopped.acquire()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.next = None
        self._has_stopped.release()

    def wait(self, step: str) -> None:
        """Called by its work before a step."""
        self.next = step
        self._has_stopped.release()
        self._turn.acquire()
        if self._is_killed:
            raise Killed

    def advance(self) -> None:
        """Take the step, and work until the next one."""
        self._turn.release()
        self._has_stopped.acquire()

    def kill(self) -> None:
        self._is_killed = True
        while self.next is not None:
            self.advance()
        self.join()


def current() -> Actor | None:
    """The actor that this is called by."""
    thread = threading.current_thread()
    return thread if isinstance(thread, Actor) else None
