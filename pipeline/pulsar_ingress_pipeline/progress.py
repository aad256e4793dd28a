"""Progress of a command: one line that changes on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from pyspark.sql import SparkSession, is_remote

_PAUSE = 0.5
"""Seconds between two updates."""
_BAR = 24

Numbers = Callable[[], tuple[int, int, int]]
"""Of Spark's active stages: tasks done, all tasks, and rows read."""


class Progress:
    """`with Progress() as progress: progress.stage("read")`. It writes to stderr; results go to stdout."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._numbers: Numbers = lambda: (0, 0, 0)
        self._stage, self._began, self._rows = "start", time.monotonic(), 0
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
            _write("\r\x1b[K")

    def watch(self, spark: SparkSession) -> None:
        """Show the progress of Spark's stages."""
        if self._is_terminal:
            self._numbers = _operations(spark) if is_remote() else _status_store(spark)

    def stage(self, name: str) -> None:
        """Begin a stage of the command."""
        self._stage, self._began, self._rows = name, time.monotonic(), 0
        if not self._is_terminal:
            self.say(f"{name} …")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        _write(f"\r\x1b[K{line}\n" if self._is_terminal else f"{line}\n")

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            done, tasks, rows = self._numbers()
            self._rows = max(self._rows, rows)
            seconds = time.monotonic() - self._began
            _write(f"\r\x1b[K{shown(self._stage, done, tasks, self._rows, seconds)}")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _status_store(spark: SparkSession) -> Numbers:
    """From the status store of a local session."""
    store: Any = spark.sparkContext._jsc.sc().statusStore()

    def numbers() -> tuple[int, int, int]:
        active = store.activeStages()
        stages = [active.apply(place) for place in range(active.size())]
        done, tasks = sum(stage.numCompleteTasks() for stage in stages), sum(stage.numTasks() for stage in stages)
        return done, tasks, sum(stage.inputRecords() for stage in stages)

    return numbers


def _operations(spark: SparkSession) -> Numbers:
    """From the progress messages of a Connect server, which have tasks but no rows."""
    running: dict[str | None, list[Any]] = {}

    def told(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running[operation_id] = [] if done else list(stages or ())

    def numbers() -> tuple[int, int, int]:
        stages = [stage for known in list(running.values()) for stage in known]
        return sum(stage.num_completed_tasks for stage in stages), sum(stage.num_tasks for stage in stages), 0

    session: Any = spark  # its types ask for a class, but a function works
    session.registerProgressHandler(told)
    return numbers


def shown(stage: str, done: int, tasks: int, rows: int, seconds: float) -> str:
    """`read       [######------] 3 of 6   1,200,000 rows   82,000/s`."""
    filled = _BAR * done // tasks if tasks else 0
    bar = f"[{'#' * filled}{'-' * (_BAR - filled)}] {done} of {tasks}"
    rate = f"   {rows:,} rows   {rows / seconds:,.0f}/s" if rows and seconds > 0 else ""
    return f"{stage:<20} {bar}{rate}"
