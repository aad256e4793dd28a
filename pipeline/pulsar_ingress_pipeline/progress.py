"""Progress of a command: one line that changes on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self, TextIO

from pyspark.sql import SparkSession, is_remote

_PAUSE = 0.5
"""Seconds between two looks."""
_BAR = 24


class Progress:
    """`with Progress() as progress: progress.stage("read")`. What is said goes to stderr, results to stdout."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out if out is not None else sys.stderr
        self._is_terminal = self._out.isatty()
        self._clock = clock
        self._watched: _Stages | None = None
        self._stage = "start"
        self._began = clock()
        self._rows = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._is_terminal:
            self._thread.join()
            self._out.write("\r\x1b[K")
            self._out.flush()

    def watch(self, spark: SparkSession) -> None:
        """Show what this session is at."""
        if self._is_terminal:
            self._watched = _Operations(spark) if is_remote() else _StatusStore(spark)

    def stage(self, name: str) -> None:
        """Say what is being done from now on."""
        self._stage, self._began, self._rows = name, self._clock(), 0
        if not self._is_terminal:
            self.say(f"{name} …")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._out.write(f"\r\x1b[K{line}\n" if self._is_terminal else f"{line}\n")
        self._out.flush()

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            done, tasks, rows = self._watched.numbers() if self._watched is not None else (0, 0, 0)
            self._rows = max(self._rows, rows)
            seconds = self._clock() - self._began
            self._out.write(f"\r\x1b[K{shown(self._stage, done, tasks, self._rows, seconds)}")
            self._out.flush()


class _Stages(Protocol):
    def numbers(self) -> tuple[int, int, int]:
        """Tasks done, tasks there are, and rows read, of what Spark is at."""


class _StatusStore:
    """What Spark's own status page shows, in a session of our own."""

    def __init__(self, spark: SparkSession) -> None:
        self._store: Any = spark.sparkContext._jsc.sc().statusStore()

    def numbers(self) -> tuple[int, int, int]:
        stages = self._store.activeStages()
        done = tasks = rows = 0
        for place in range(stages.size()):
            stage = stages.apply(place)
            done, tasks = done + stage.numCompleteTasks(), tasks + stage.numTasks()
            rows += stage.inputRecords()
        return done, tasks, rows


class _Operations:
    """What a Connect server tells of its client's operations while they last: tasks, but no rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._tasks: dict[str | None, tuple[int, int]] = {}
        session: Any = spark  # whose types want a class where a function will do
        session.registerProgressHandler(self._told)

    def _told(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if done:
            self._tasks.pop(operation_id, None)
            return
        known = list(stages or ())
        counts = sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known)
        self._tasks[operation_id] = counts

    def numbers(self) -> tuple[int, int, int]:
        counts = list(self._tasks.values())
        return sum(done for done, _ in counts), sum(tasks for _, tasks in counts), 0


def shown(stage: str, done: int, tasks: int, rows: int, seconds: float) -> str:
    """`read       [######------] 3 of 6   1,200,000 rows   82,000/s`."""
    filled = _BAR * done // tasks if tasks else 0
    bar = f"[{'#' * filled}{'-' * (_BAR - filled)}] {done} of {tasks}"
    rate = f"   {rows:,} rows   {rows / seconds:,.0f}/s" if rows and seconds > 0 else ""
    return f"{stage:<20} {bar}{rate}"
