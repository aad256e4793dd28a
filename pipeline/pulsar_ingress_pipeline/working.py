"""`run` and `stream`: the life of the two commands that change tables."""

import json
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

from pulsar_ingress_pipeline.absorbing import Absorbed, Absorbing, is_event_file, portions
from pulsar_ingress_pipeline.commits import COMMITS, Commits
from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.lock import Lock
from pulsar_ingress_pipeline.metrics import PipelineMetrics
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.storage import SPARK_FAULTS, File, Storage, cause, shown

log = logging.getLogger("pipeline")

ATTEMPTS = 8
"""So often in a row may an attempt fail before `stream` ends."""
_LONGEST = 300.0
"""Seconds to wait after a failure, at most: all together it is a quarter of an hour."""


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
        self,
        spark: SparkSession,
        source: Storage,
        tables: Storage,
        lock: Lock,
        horizon_days: int | None,
        metrics: PipelineMetrics,
    ) -> None:
        self._spark, self._source, self._tables, self._lock = spark, source, tables, lock
        self.metrics = metrics
        self._horizon = timedelta(days=horizon_days) if horizon_days is not None else None
        self._commits = Commits(tables)
        self.total = Total()

    @classmethod
    @contextmanager
    def on(
        cls,
        spark: SparkSession,
        events: str,
        tables: str,
        command: str,
        horizon_days: int | None,
        metrics: PipelineMetrics | None = None,
    ) -> Iterator[Self]:
        source, target = Storage(spark, events), Storage(spark, tables)
        if not source.exists():
            raise PipelineFault(f"--events {shown(source.url)}: there is no such folder")
        if target.exists() and target.is_file():
            raise PipelineFault(f"--tables {shown(target.url)}: is a file, and should be a folder")
        with Lock(target, command) as lock:
            work = cls(spark, source, target, lock, horizon_days, metrics or PipelineMetrics("run"))
            work.recover()
            yield work

    def recover(self) -> None:
        """Finish what an earlier attempt has begun, and learn what was done."""
        self._lock.hold()
        self._spark.catalog.clearCache()
        is_finished = self._commits.recover()
        if is_finished:
            log.info("a commit that was interrupted has been finished")
        journals = [file.name for file in self._tables.files(COMMITS)]
        if journals:
            last = json.loads(self._tables.read(f"{COMMITS}/{max(journals)}"))
            self.metrics.know(datetime.fromisoformat(last["time"]).timestamp(), last["counts"].get("newest"))
            if is_finished:
                self.metrics.committed(last["counts"])

    def files(self) -> list[File]:
        """All event files that are there."""
        return [file for file in self._source.tree() if is_event_file(file)]

    def take_new(self, progress: Progress, ended: threading.Event | None = None) -> bool:
        """Take what no commit has taken, a portion at a time; says whether there was anything."""
        present = self.files()
        new = self._commits.new(present)
        self.metrics.looked([file.size for file in new])
        waiting = portions(new)
        if not waiting and not self._commits.are_any:
            waiting = [[]]  # tables that are empty are tables
        while waiting and not (ended is not None and ended.is_set()):
            self._absorb(waiting[0], None, progress, present)
            waiting = waiting[1:]
            self.metrics.wait([file.size for portion in waiting for file in portion])
        self.metrics.succeeded(is_all=not waiting)
        return bool(new)

    def take_again(self, span: tuple[datetime, datetime], progress: Progress) -> None:
        """Take events of a span, from all files, and make its hours anew. The files do not count as taken by that."""
        present = self.files()
        self.metrics.looked([file.size for file in self._commits.new(present)])
        for portion in portions(present):
            self._absorb(portion, span, progress, present)
        self.metrics.succeeded(is_all=False)

    def _absorb(
        self,
        portion: list[File],
        span: tuple[datetime, datetime] | None,
        progress: Progress,
        present: list[File],
    ) -> None:
        began = time.monotonic()
        absorbing = Absorbing(self._spark, self._source, self._tables, self._commits, progress.stage, self._horizon)
        with self.metrics.at_work():
            draft, absorbed = absorbing.absorb(portion, span)
            progress.stage("commit")
            self._lock.hold()
            newest = self._newest(absorbed)
            if newest is not None:
                draft.counts["newest"] = int(newest)
            self._commits.commit(draft, present)
        seconds = time.monotonic() - began
        self.total.add(absorbed)
        self.metrics.committed(draft.counts)
        self.metrics.commit_duration.observe(seconds)
        self.metrics.know(time.time(), newest)
        hours = f", hours {absorbed.hours[0]} to {absorbed.hours[-1]}" if absorbed.hours else ""
        progress.say(
            f"commit {draft.number}: {absorbed.files:,} files, {absorbed.lines:,} lines, {absorbed.events:,} new events"
            f", {absorbed.bad:,} in quarantine{hours}, {seconds:.1f} s ({absorbed.lines / seconds:,.0f}/s)"
        )

    def _newest(self, absorbed: Absorbed) -> float | None:
        """The time of the newest event of all; one from a clock that is ahead is as new as can be."""
        times = [*self.metrics.newest_event.values.values()]
        if absorbed.newest is not None:
            times.append(min(absorbed.newest, time.time()))
        return max(times, default=None)


def run(work: Work, progress: Progress, span: tuple[datetime, datetime] | None) -> None:
    if span is None:
        work.take_new(progress)
    else:
        work.take_again(span, progress)


def stream(work: Work, progress: Progress, is_once: bool, pause: float) -> None:
    """Take what comes until SIGTERM or SIGINT, which end it after its batch.

    A store may be away for a while: what has failed is tried again, after what it has begun was finished.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    failures = 0
    while not ended.is_set():
        try:
            if failures:
                work.recover()
            found = work.take_new(progress, ended)
        except (PipelineFault, *SPARK_FAULTS) as fault:
            failures += 1
            if is_once or failures == ATTEMPTS or isinstance(fault, Busy):
                raise
            work.metrics.failed()
            wait = min(pause * 2 ** (failures - 1), _LONGEST)
            what = str(fault) if isinstance(fault, PipelineFault) else f"Spark: {cause(fault)}"
            progress.say(f"{what}; trying again in {wait:.0f} s")
            ended.wait(wait)
            continue
        failures = 0
        if is_once and not found:
            break
        if not found:
            ended.wait(pause)
