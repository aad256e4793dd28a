"""The pipeline's metrics: served for Prometheus while a command runs, or written to a file at its end."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.metrics_core import Metric as Family

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.ingest.batches import Taken
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.observability.catalogue import Pipeline
from pulsar_ingress_proxy.observability.metrics import Histogram, Number, Numbers, registry
from pulsar_ingress_proxy.syntax.authorities import parse_authority

log = logging.getLogger("pipeline")

Command = Literal["run", "stream", "once"]


class PipelineMetrics(Numbers):
    """All metrics of one command. Counters start at 0; an unknown time has no sample."""

    def __init__(self, command: Command) -> None:
        self.commits = Number(Pipeline.commits)
        self.files = Number(Pipeline.files)
        self.lines = Number(Pipeline.lines)
        self.events = Number(Pipeline.events)
        self.quarantined = Number(Pipeline.quarantined)
        self.failures = Number(Pipeline.failures)
        self.busy = Number(Pipeline.busy)
        self.commit_duration = Histogram(Pipeline.commit_duration)
        self.last_attempt = Number(Pipeline.last_attempt)
        self.last_look = Number(Pipeline.last_look)
        self.caught_up = Number(Pipeline.caught_up)
        self.last_commit = Number(Pipeline.last_commit)
        self.newest_event = Number(Pipeline.newest_event)
        self.waiting_files = Number(Pipeline.waiting_files)
        self.waiting_bytes = Number(Pipeline.waiting_bytes)
        self.build_info = Number(Pipeline.build_info)
        self.build_info.set(1, __version__, command)
        counters = (self.commits, self.files, self.lines, self.events, self.quarantined, self.failures, self.busy)
        for counter in counters:  # otherwise Prometheus would not see the first increase
            counter.add(by=0)
        self.commit_duration.begin()
        self._lock = threading.Lock()
        self._since: float | None = None
        """The current batch is counted up to this time."""

    def collect(self) -> Iterable[Family]:
        self._count_work()
        return super().collect()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count busy seconds while a batch runs: it may take longer than the time between two scrapes."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._count_work()
            with self._lock:
                self._since = None

    def _count_work(self) -> None:
        with self._lock:
            if self._since is not None:
                now = time.monotonic()
                self.busy.add(by=now - self._since)
                self._since = now

    def looked(self, sizes: Sequence[int]) -> None:
        """Event files were listed; those of these sizes are new."""
        self.last_look.set(time.time())
        self.wait(sizes)

    def wait(self, sizes: Sequence[int]) -> None:
        self.waiting_files.set(len(sizes))
        self.waiting_bytes.set(sum(sizes))

    def committed(self, taken: Taken, seconds: float) -> None:
        """A batch was committed, which took this long."""
        self.commits.add()
        self.files.add(by=taken.files)
        self.lines.add(by=taken.lines)
        self.events.add(by=taken.events)
        self.quarantined.add(by=taken.bad)
        self.commit_duration.observe(seconds)
        newest = [*self.newest_event.values.values()]
        if taken.newest is not None:
            newest.append(min(taken.newest, time.time()))  # the clock of a sidecar may be ahead
        self.know(time.time(), max(newest, default=None))

    def know(self, commit: float, newest: float | None) -> None:
        """Set the time of the last commit, and of the newest event in the tables."""
        self.last_commit.set(commit)
        if newest is not None:
            self.newest_event.set(newest)

    def succeeded(self, is_all: bool) -> None:
        """An attempt succeeded; `is_all`: all event files that were listed have been ingested."""
        self.last_attempt.set(1)
        if is_all:
            self.caught_up.set(self.last_look.values[()])

    def failed(self) -> None:
        self.failures.add()
        self.last_attempt.set(0)


@contextmanager
def exposed(metrics: PipelineMetrics, address: str | None, file: str | None) -> Iterator[None]:
    """Serve the metrics while the command runs, and write them at its end, also after a failure.

    A command that lost against another one writes none: the file is the other's.
    """
    if file is not None and not Path(file).absolute().parent.is_dir():
        raise PipelineFault(f"--metrics-file {file}: there is no such folder")
    with _served(metrics, address):
        try:
            yield
        except Busy:
            raise
        except Exception:
            metrics.failed()
            if file is not None:
                try:
                    _write(metrics, file)
                except PipelineFault as fault:
                    log.error("%s", fault)
            raise
    if file is not None:
        _write(metrics, file)


@contextmanager
def _served(metrics: PipelineMetrics, address: str | None) -> Iterator[None]:
    if address is None:
        yield
        return
    authority = parse_authority(address)
    if authority is None or authority.port is None:
        raise PipelineFault(f"--metrics-address {address}: is not HOST:PORT")
    try:
        server, thread = start_http_server(authority.port, authority.host.strip("[]"), registry(metrics))
    except OSError as error:
        raise PipelineFault(f"--metrics-address {address}: cannot be bound: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _write(metrics: PipelineMetrics, file: str) -> None:
    """Write only the pipeline's metrics, not those of this process, which ends now."""
    ours = CollectorRegistry(auto_describe=False)
    ours.register(metrics)
    try:
        write_to_textfile(file, ours)
    except OSError as error:
        raise PipelineFault(f"--metrics-file {file}: cannot be written: {error.strerror or error}") from None
