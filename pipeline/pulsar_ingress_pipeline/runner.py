"""The commands `run` and `stream`, which ingest event files and derive the tables."""

import logging
import signal
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.ingest.batches import Ingest, batches, bytes_of_lines
from pulsar_ingress_pipeline.lake.catalog import maintain, refuse_earlier_layout
from pulsar_ingress_pipeline.lake.storage import File, Storage
from pulsar_ingress_pipeline.metrics import PipelineMetrics
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.session import SPARK_FAULTS, cause
from pulsar_ingress_pipeline.tables.derivation import Derivation

log = logging.getLogger("pipeline")

BRIEF = 64 << 20
"""Bytes of lines; less is done before Java's second compiler would pay."""
VERSIONS = 24
"""`run` maintains the tables after this many versions of `events`."""
EVERY = 86_400.0
"""Seconds between two times that `stream` maintains the tables."""
ATTEMPTS = 8
"""`stream` ends after this many failures in a row."""
_LONGEST = 300.0
"""The most seconds to wait after a failure; all waits together are a quarter of an hour."""


class Runner:
    """Ingests event files into the tables."""

    def __init__(
        self,
        events: str,
        tables: str,
        spark: Callable[[bool], SparkSession],
        progress: Progress,
        metrics: PipelineMetrics | None = None,
        is_service: bool = False,
    ) -> None:
        """`spark` gives the session, and is told whether there is little to do; a service may have more to do later."""
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
        """Open the tables as they are now, and derive those that an earlier command left behind."""
        self._ingest = Ingest(self._source, self._tables, self._spark)
        self._derivation = Derivation(self._tables, self._spark, self._progress.stage)
        if self._ingest.events.version >= 0:
            if hours := self._derivation.derive(self._ingest.events):
                self._progress.say(f"tables that were behind are up to date again, hours {hours[0]} to {hours[-1]}")
            self.metrics.know(self._ingest.events.last_commit(), self._ingest.newest())

    def take_new(self, ended: threading.Event | None = None) -> bool:
        """Ingest all new event files, batch by batch; returns whether there were any."""
        present = self._ingest.present()
        new = self._ingest.new(present)
        self.metrics.looked([file.size for file in new])
        self._is_brief = sum(map(bytes_of_lines, new)) < BRIEF
        waiting = batches(new)
        if not waiting and self._ingest.events.version < 0:
            waiting = [[]]  # create empty tables
        while waiting and not (ended is not None and ended.is_set()):
            self._take(waiting.pop(0), present)
            self.metrics.wait([file.size for batch in waiting for file in batch])
        self.metrics.succeeded(is_all=not waiting)
        return bool(new)

    def run(self) -> None:
        """Ingest all new event files, and maintain the tables if it is time to."""
        self.take_new()
        if self.metrics.commits.cell()[0] and self._ingest.events.version % VERSIONS == VERSIONS - 1:
            self._progress.stage("maintenance")
            self.maintain()

    def maintain(self) -> None:
        """Maintain the tables, and open them again: maintenance commits versions of its own."""
        list(maintain(self._tables))
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
        self.metrics.committed(taken, seconds)
        span = f", hours {hours[0]} to {hours[-1]}" if hours else ""
        self._progress.say(
            f"version {self._ingest.events.version}: {taken.files:,} files, {taken.lines:,} lines, "
            f"{taken.events:,} new events, {taken.bad:,} in quarantine{span}, {seconds:.1f} s "
            f"({taken.lines / seconds:,.0f} lines/s)"
        )


def stream(runner: Runner, progress: Progress, is_once: bool, pause: float) -> None:
    """Ingest new files until SIGTERM or SIGINT, which end it after the current batch.

    A failed attempt is repeated, since a store may be unavailable for a while; the tables are opened again before.
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
            if not is_once and time.monotonic() - maintained > EVERY:
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
