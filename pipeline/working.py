"""`run` and `stream`: the life of the two commands that change tables."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from pyspark.sql import SparkSession

from pipeline.absorbing import Absorbed, Absorbing, is_event_file, portions
from pipeline.commits import Commits
from pipeline.faults import PipelineFault
from pipeline.lock import Lock
from pipeline.progress import Progress
from pipeline.storage import File, Storage, shown

log = logging.getLogger("pipeline")


@dataclass(slots=True)
class Total:
    """What a command has done so far."""

    commits: int = 0
    files: int = 0
    events: int = 0
    bad: int = 0

    def add(self, absorbed: Absorbed) -> None:
        self.commits += 1
        self.files += absorbed.files
        self.events += absorbed.events
        self.bad += absorbed.bad

    def __str__(self) -> str:
        return f"{self.files:,} files, {self.events:,} events, {self.bad:,} lines in quarantine"


class Work:
    """The tables, under their lock, and the events that go into them."""

    def __init__(
        self, spark: SparkSession, source: Storage, tables: Storage, lock: Lock, horizon_days: int | None
    ) -> None:
        self._spark, self._source, self._tables, self._lock = spark, source, tables, lock
        self._horizon = timedelta(days=horizon_days) if horizon_days is not None else None
        self._commits = Commits(tables)
        self.total = Total()

    @classmethod
    @contextmanager
    def on(
        cls, spark: SparkSession, events: str, tables: str, command: str, horizon_days: int | None
    ) -> Iterator[Self]:
        source, target = Storage(spark, events), Storage(spark, tables)
        if not source.exists():
            raise PipelineFault(f"--events {shown(source.url)}: there is no such folder")
        with Lock(target, command) as lock:
            work = cls(spark, source, target, lock, horizon_days)
            if work._commits.recover():
                log.info("a commit that was interrupted has been finished")
            yield work

    def files(self) -> list[File]:
        """All event files that are there."""
        return [file for file in self._source.tree() if is_event_file(file)]

    def take_new(self, progress: Progress, ended: threading.Event | None = None) -> bool:
        """Take what no commit has taken, a portion at a time; says whether there was anything."""
        present = self.files()
        new = self._commits.new(present)
        waiting = portions(new)
        if not waiting and not self._commits.are_any:
            waiting = [[]]  # tables that are empty are tables
        for portion in waiting:
            if ended is not None and ended.is_set():
                break
            self._absorb(portion, None, progress, present)
        return bool(new)

    def take_again(self, span: tuple[datetime, datetime], progress: Progress) -> None:
        """Take events of a span, from all files, and make its hours anew. The files do not count as taken by that."""
        present = self.files()
        for portion in portions(present):
            self._absorb(portion, span, progress, present)

    def _absorb(
        self,
        portion: list[File],
        span: tuple[datetime, datetime] | None,
        progress: Progress,
        present: list[File],
    ) -> None:
        began = time.monotonic()
        absorbing = Absorbing(self._spark, self._source, self._tables, self._commits, progress.stage, self._horizon)
        draft, absorbed = absorbing.absorb(portion, span)
        progress.stage("commit")
        self._lock.hold()
        self._commits.commit(draft, present)
        self.total.add(absorbed)
        seconds = time.monotonic() - began
        hours = f", hours {absorbed.hours[0]} to {absorbed.hours[-1]}" if absorbed.hours else ""
        progress.say(
            f"commit {draft.number}: {absorbed.files:,} files, {absorbed.lines:,} lines, {absorbed.events:,} new events"
            f", {absorbed.bad:,} in quarantine{hours}, {seconds:.1f} s ({absorbed.lines / seconds:,.0f}/s)"
        )


def run(work: Work, progress: Progress, span: tuple[datetime, datetime] | None) -> None:
    if span is None:
        work.take_new(progress)
    else:
        work.take_again(span, progress)


def stream(work: Work, progress: Progress, is_once: bool, pause: float) -> None:
    """Take what comes until SIGTERM or SIGINT, which end it after its batch."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set():
        found = work.take_new(progress, ended)
        if is_once and not found:
            break
        if not found:
            ended.wait(pause)
