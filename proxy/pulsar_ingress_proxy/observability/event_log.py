"""The event log: a bounded queue of lines, and a thread that writes them to files.

Requests never wait for the disk. Every event is counted once, as written or as dropped: `queue-full` if the thread
could not keep up, `disk` if writing failed. Events that retention removes also count as dropped (`retention`).
"""

import logging
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from math import inf

from pulsar_ingress_proxy.config.model import Events
from pulsar_ingress_proxy.memory import EVENT_LINES, EVENT_QUEUE
from pulsar_ingress_proxy.observability.event_files import Folder, Unfinished

log = logging.getLogger("proxy.events")

ROOM = 16384
"""Maximum number of queued events: most of a second at the highest rate of one process."""

BATCH = 1024
"""Events compressed and written at a time: some 750 KB, or EVENT_LINES if that is less."""

_ENTRY = 128
"""Overhead of a queued line in bytes."""


class EventLog:
    """Start it, add lines from one thread, close it.

    `written` and `dropped` are called from the log's own thread, and once more from `close`.
    """

    def __init__(
        self,
        settings: Events,
        sidecar: str,
        written: Callable[[int], None],
        dropped: Callable[[str, int], None],
        *,
        clock: Callable[[], float] = time.time,
        room: int = ROOM,
    ) -> None:
        assert settings.path is not None
        self._settings = settings
        self._folder = Folder(settings.path, sidecar, settings.compress == "gzip")
        self._written, self._dropped, self._clock = written, dropped, clock
        # A single file must not exceed retention.
        self._file_bytes = min(settings.rotate_bytes, settings.retain_bytes)

        self._queue: deque[str] = deque()
        self._room = room
        self._bytes_added = self._bytes_taken = 0
        self._refused = 0
        self._refused_and_counted = 0

        self._file: Unfinished | None = None
        self._untidy = True
        """Whether files left by a crash or a disk failure may have to be finished."""
        self._failing = False
        self._lost = 0

        self._count_lock = threading.Lock()
        self._in_hand = 0
        """Events taken from the queue and not counted yet."""
        self._closing = False
        self._given_up = False
        self._wake = threading.Event()
        self._waiting: deque[threading.Event] = deque()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, line: str) -> None:
        """Never waits, never fails."""
        size = len(line) + _ENTRY
        waiting = self._bytes_added - self._bytes_taken
        if len(self._queue) < self._room and waiting + size <= EVENT_QUEUE:
            self._queue.append(line)
            self._bytes_added += size
        else:
            self._refused += 1

    def flush(self, timeout: float) -> bool:
        """Wait until all added events are written or dropped; False on timeout."""
        done = threading.Event()
        self._waiting.append(done)
        self._wake.set()
        return done.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Write the queue and finish the file; False on timeout, when the rest is dropped."""
        self._room = 0
        self._closing = True
        self._wake.set()
        self._thread.join(timeout)
        with self._count_lock:
            self._given_up = True
            if left := self._in_hand + len(self._queue):
                self._dropped("disk", left)
            self._in_hand, self._bytes_taken = 0, self._bytes_added
            self._queue.clear()
            self._count_refused()
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._attempt(self._tidy)
        while not self._closing:
            self._wake.wait(self._settings.flush_millis / 1000)
            self._wake.clear()
            waiting = len(self._waiting)
            self._turn()
            for _ in range(waiting):
                self._waiting.popleft().set()
        self._turn()
        self._attempt(self._finish)
        for done in self._waiting:
            done.set()

    def _turn(self) -> None:
        with self._count_lock:
            self._count_refused()
        self._attempt(self._finish_if_old)
        self._attempt(self._write_queue)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Run something that may fail with OSError, which is logged once until writing succeeds again."""
        try:
            work()
        except OSError as error:
            if not self._failing:
                log.warning("events: %s: %s; events are dropped until it can be written", self._folder.path, error)
            self._failing = True
            self._let_go()

    def _write_queue(self) -> None:
        left = len(self._queue)
        try:
            while left > 0 and not self._given_up:
                with self._count_lock:
                    lines = self._take(min(left, BATCH), EVENT_LINES)
                    self._in_hand = len(lines)
                left -= len(lines)
                self._put(lines)
        except OSError:
            self._lose(left)
            raise

    def _put(self, lines: list[str]) -> None:
        """Write lines, rotating at rotateBytes; a line larger than that gets its own file."""
        while lines:
            file = self._file = self._file or self._begin()
            room, fitting = self._file_bytes - file.size, len(lines)
            if sum(map(len, lines)) > room:
                fitting = bisect_right(list(accumulate(map(len, lines))), room)
            if not fitting and not file.events:
                fitting = 1
            if fitting:
                file.write("".join(lines[:fitting]).encode("ascii"), fitting)
                self._count_written(fitting)
            lines = lines[fitting:]
            if lines:
                self._finish()

    def _begin(self) -> Unfinished:
        if self._untidy:
            self._tidy()
        return self._folder.begin(self._clock())

    def _finish_if_old(self) -> None:
        # A negative age means that the clock was set back.
        if self._file is not None and not 0 <= self._clock() - self._file.began < self._settings.rotate_seconds:
            self._finish()

    def _finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None
            self._trim()

    def _tidy(self) -> None:
        faults = self._folder.salvage(self._clock())
        self._untidy = bool(faults)
        if faults and not self._failing:
            log.warning("events: cannot recover a file left by a crash: %s", faults[0])
        self._trim()

    def _trim(self) -> None:
        if events := self._folder.trim(self._settings.retain_bytes):
            self._dropped("retention", events)

    def _let_go(self) -> None:
        """Finish the file after a failed write; if that fails too, leave it for later."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.roll_back()
                file.finish()
            except OSError:
                file.close()
                self._untidy = True

    def _take(self, count: int, most_bytes: float) -> list[str]:
        """Take up to `count` events from the queue, stopping once they reach `most_bytes`. The caller has the lock."""
        taken: list[str] = []
        size = 0
        while self._queue and len(taken) < count and size < most_bytes:
            taken.append(self._queue.popleft())
            size += len(taken[-1]) + _ENTRY
        self._bytes_taken += size
        return taken

    def _count_written(self, count: int) -> None:
        with self._count_lock:
            if not self._given_up:
                self._in_hand -= count
                self._written(count)
        if self._failing:
            log.info("events: %s can be written again; %d events were lost", self._folder.path, self._lost)
            self._failing, self._lost = False, 0

    def _lose(self, waiting: int) -> None:
        """Drop the events taken from the queue, and `waiting` more."""
        with self._count_lock:
            if not self._given_up:
                lost, self._in_hand = self._in_hand + len(self._take(waiting, inf)), 0
                self._lost += lost
                self._dropped("disk", lost)

    def _count_refused(self) -> None:
        refused = self._refused
        if count := refused - self._refused_and_counted:
            self._refused_and_counted = refused
            self._dropped("queue-full", count)
