"""The catalogue of metrics: whatever the sidecar and the pipeline count, and what it is called.

Those who count, the page in docs/, dashboards, rules and alerts all take their names from here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PREFIX = "pulsar_ingress_"
PIPELINE = PREFIX + "pipeline_"
PROCESS = "process_"

Kind = Literal["counter", "gauge", "histogram"]

REQUESTS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets, in seconds: from what a sidecar takes by itself to what no client waits for."""
COMMITS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as Prometheus sees it."""

    kind: Kind
    name: str
    """In full: of a counter with `_total`, of a histogram without `_bucket`, `_sum` and `_count`."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unwatched: str = ""
    """Why no panel and no rule asks for it; empty where one does."""

    def part(self, suffix: Literal["bucket", "sum", "count"]) -> "Metric":
        """One of the counters that a histogram is made of."""
        assert self.kind == "histogram"
        labels = (*self.labels, "le") if suffix == "bucket" else self.labels
        return Metric("counter", f"{self.name}_{suffix}", self.help, labels)


def counter(name: str, help: str, labels: str = "", prefix: str = PREFIX, unwatched: str = "") -> Metric:
    return Metric("counter", f"{prefix}{name}_total", help, tuple(labels.split()), unwatched=unwatched)


def gauge(name: str, help: str, labels: str = "", prefix: str = PREFIX, unwatched: str = "") -> Metric:
    return Metric("gauge", prefix + name, help, tuple(labels.split()), unwatched=unwatched)


def seconds(name: str, help: str, labels: str, buckets: tuple[float, ...], prefix: str = PREFIX) -> Metric:
    return Metric("histogram", f"{prefix}{name}_seconds", help, tuple(labels.split()), buckets)


class Catalogue:
    """Metrics of one kind of process, one an attribute, in the order of the docs."""

    @classmethod
    def every(cls) -> Iterator[Metric]:
        return (value for value in vars(cls).values() if isinstance(value, Metric))


class Sidecar(Catalogue):
    """What a sidecar shows at its `metrics.address`."""

    hits = counter("listener_hits", "Lookups that have a listener.", "ingress listener rule protocol")
    misses = counter("listener_misses", "Lookups that have none, by reason.", "ingress reason protocol")
    redirects = counter("redirects", "Brokers' redirects, by what became of them.", "listener kind action")
    leaks = counter("leaks", "Answers with an address that is not on the listener.", "listener where action")
    unmapped = counter("unmapped_redirects", "Redirects that the address book has no answer to.", "listener")
    requests = counter("requests", "Requests answered.", "kind protocol code")
    duration = seconds("request_duration", "From a request's head to the end of its answer.", "kind protocol", REQUESTS)
    upstream_duration = seconds(
        "upstream_duration", "From the first byte to a broker to the answer's head.", "kind protocol", REQUESTS
    )
    in_flight = gauge("in_flight_requests", "Requests being answered.", "protocol")
    tasks = counter(
        "task_requests",
        "HTTP requests that needed a task: for a new connection, a body or answer in pieces, a retry, a WebSocket.",
        unwatched="for whoever measures the sidecar: it says nothing that an operator could change",
    )
    connections = gauge("connections", "Open client connections.", "protocol")
    buffered = gauge("buffered_bytes", "Bytes held for requests and answers, of limits.bufferBytes.")
    upstream_errors = counter("upstream_errors", "Failures of brokers, by reason.", "reason")
    loop_lag = seconds(
        "event_loop_lag", "How long what could be done at a moment had to wait, at ten moments a second.", "", REQUESTS
    )
    generation = gauge("snapshot_generation", "Number of the snapshot in force.")
    book_entries = gauge("address_book_entries", "Lines of the address book.", "source")
    reloads = counter("config_reloads", "Reloads of the config.", "result")
    last_reload = gauge("config_last_reload_successful", "1 where the newest config is in force.")
    discovery_synced = gauge("discovery_synced", "1 where a kind of object is known as it is.", "kind")
    discovery_restarts = counter("discovery_restarts", "Watches begun anew.", "kind reason")
    discovery_conflicts = gauge("discovery_conflicts", "Findings that do not fit together, or say too little.")
    events_written = counter("events_written", "Events written.")
    events_dropped = counter("events_dropped", "Events lost.", "reason")
    build_info = gauge("build_info", "Always 1.", "version cluster")


class Pipeline(Catalogue):
    """What `pulsar-ingress-pipeline` shows, by `--metrics-address` or `--metrics-file`."""

    commits = counter("commits", "Commits to the tables.", prefix=PIPELINE)
    files = counter("files", "Event files taken.", prefix=PIPELINE)
    lines = counter("lines", "Lines read.", prefix=PIPELINE)
    events = counter("events", "Events that are new to the tables.", prefix=PIPELINE)
    quarantined = counter("quarantined_lines", "Lines that are no event, put into quarantine.", prefix=PIPELINE)
    failures = counter("failures", "Attempts that came to nothing.", prefix=PIPELINE)
    busy = counter("busy_seconds", "Seconds of work on commits, failed ones too.", prefix=PIPELINE)
    commit_duration = seconds("commit_duration", "From a commit's first file to its end.", "", COMMITS, PIPELINE)
    last_attempt = gauge("last_attempt_successful", "0 where the last attempt failed.", prefix=PIPELINE)
    last_look = gauge("last_look_timestamp_seconds", "When the event files were last listed.", prefix=PIPELINE)
    caught_up = gauge(
        "caught_up_timestamp_seconds", "All event files that were there at that time have been taken.", prefix=PIPELINE
    )
    last_commit = gauge("last_commit_timestamp_seconds", "When the last commit was made.", prefix=PIPELINE)
    newest_event = gauge("newest_event_timestamp_seconds", "The time of the newest event taken.", prefix=PIPELINE)
    waiting_files = gauge("waiting_files", "Event files seen and not taken yet.", prefix=PIPELINE)
    waiting_bytes = gauge("waiting_bytes", "Their size, as they are.", prefix=PIPELINE)
    build_info = gauge("build_info", "Always 1.", "version command", prefix=PIPELINE)


class Around(Catalogue):
    """What others count: the client library of the process, and Prometheus of its targets."""

    cpu = counter("cpu_seconds", "CPU time of the process.", prefix=PROCESS)
    memory = gauge("resident_memory_bytes", "Resident memory.", prefix=PROCESS)
    started = gauge("start_time_seconds", "When the process started.", prefix=PROCESS)
    open_fds = gauge("open_fds", "Open file descriptors.", prefix=PROCESS)
    max_fds = gauge("max_fds", "As many may be open.", prefix=PROCESS)
    up = gauge("up", "1 where a target could be scraped.", "job instance", prefix="")
