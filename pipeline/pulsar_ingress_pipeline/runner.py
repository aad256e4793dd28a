"""`run` and `stream`: the life of the two commands that change tables."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.ingest.batches import Ingest, batches, lines_in
from pulsar_ingress_pipeline.lake import maintenance
from pulsar_ingress_pipeline.lake.reader import refuse_earlier_layout
from pulsar_ingress_pipeline.lake.storage import File, Storage
from pulsar_ingress_pipeline.metrics import PipelineMetrics
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.session import SPARK_FAULTS, cause
from pulsar_ingress_pipeline.tables.derivation import Derivation

log = logging.getLogger("pipeline")

BRIEF = 64 << 20
"""Bytes of lines that Spark is through with before Java has compiled it to the last."""
VERSIONS = 24
"""Of `events` after which `run` maintains the tables; `stream` does it once a day."""
ATTEMPTS = 8
"""So often in a row may an attempt fail before `stream` ends."""
_LONGEST = 300.0
"""Seconds to wait after a failure, at most: all together it is a quarter of an hour."""


class Runner:
    """Takes event files into the tables."""

    def __init__(
        self,
        events: str,
        tables: str,
        spark: Callable[[bool], SparkSession],
        progress: Progress,
        metrics: PipelineMetrics | None = None,
        is_service: bool = False,
    ) -> None:
        """`spark` gives the session; it is told whether there is little to do. A service may have more to do later."""
        self._progress = progress
        self._is_brief = False
        self._spark = lambda: spark(self._is_brief and not is_service)
        self._source, self._tables = Storage.of(events), Storage.of(tables)
        self.metrics = metrics or PipelineMetrics("run")
        if not self._source.exists():
            raise PipelineFault(f"--events {self._source.url}: there is no such folder")
        refuse_earlier_layout(self._tables)
        self.open()

    def open(self) -> None:
        """Look at the tables as they are now, and finish what an earlier command has left undone."""
        self._ingest = Ingest(self._source, self._tables, self._spark)
        self._derivation = Derivation(self._tables, self._spark, self._progress.stage)
        if self._ingest.events.version >= 0:
            if hours := self._derivation.derive(self._ingest.events):
                self._progress.say(f"tables that were behind are up to date again, hours {hours[0]} to {hours[-1]}")
            last = self._ingest.last_commit()
            self.metrics.know(last.timestamp(), self._ingest.newest())

    def take_new(self, ended: threading.Event | None = None) -> bool:
        """Take what was not taken yet, a batch at a time; says whether there was anything."""
        present = self._ingest.present()
        new = self._ingest.new(present)
        self.metrics.looked([file.size for file in new])
        self._is_brief = sum(map(lines_in, new)) < BRIEF
        waiting = batches(new)
        if not waiting and self._ingest.events.version < 0:
            waiting = [[]]  # tables that are empty are tables
        while waiting and not (ended is not None and ended.is_set()):
            self._take(waiting.pop(0), present)
            self.metrics.wait([file.size for batch in waiting for file in batch])
        self.metrics.succeeded(is_all=not waiting)
        return bool(new)

    def run(self) -> None:
        """Take what is there, and maintain the tables after every so many versions."""
        self.take_new()
        if self.metrics.commits.cell()[0] and self._ingest.events.version % VERSIONS == VERSIONS - 1:
            self._progress.stage("maintenance")
            self.maintain()

    def maintain(self) -> None:
        """Also opens the tables again: maintenance makes versions of its own."""
        list(maintenance.maintain(self._tables))
        self.open()

    def __str__(self) -> str:
        """What has been done so far."""
        counters = (self.metrics.files, self.metrics.events, self.metrics.quarantined)
        files, events, bad = (counter.cell()[0] for counter in counters)
        has_new = self.metrics.commits.cell()[0] > 0
        return f"{files:,.0f} files, {events:,.0f} events, {bad:,.0f} lines in quarantine" if has_new else "nothing new"

    def _take(self, batch: list[File], present: list[File]) -> None:
        began = time.monotonic()
        with self.metrics.at_work():
            self._progress.stage("events")
            taken = self._ingest.take(batch, present)
            hours = self._derivation.derive(self._ingest.events)
        seconds = time.monotonic() - began
        self.metrics.committed(taken)
        self.metrics.commit_duration.observe(seconds)
        newest = [*self.metrics.newest_event.values.values()]
        if taken.newest is not None:
            newest.append(min(taken.newest, time.time()))  # one from a clock that is ahead is as new as can be
        self.metrics.know(datetime.now(UTC).timestamp(), max(newest, default=None))
        span = f", hours {hours[0]} to {hours[-1]}" if hours else ""
        self._progress.say(
            f"version {self._ingest.events.version}: {taken.files:,} files, {taken.lines:,} lines, "
            f"{taken.events:,} new events, {taken.bad:,} in quarantine{span}, {seconds:.1f} s "
            f"({taken.lines / seconds:,.0f} lines/s)"
        )


def stream(runner: Runner, progress: Progress, is_once: bool, pause: float) -> None:
    """Take what comes until SIGTERM or SIGINT, which end it after its batch.

    A store may be away for a while: what has failed is tried again, on the tables as they are then.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    failures = 0
    maintained = time.monotonic()
    while not ended.is_set():
        try:
            if failures:
                runner.open()
            found = runner.take_new(ended)
            if not is_once and time.monotonic() - maintained > maintenance.EVERY:
                runner.maintain()
                maintained = time.monotonic()
        except (PipelineFault, *SPARK_FAULTS) as fault:
            failures += 1
            if is_once or failures == ATTEMPTS or isinstance(fault, Busy):
                raise
            runner.metrics.failed()
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
