"""The catalogue of metrics: everything that the sidecar and the pipeline count.

The code that counts, docs/metrics.md, dashboards, rules and alerts all take the names from here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PREFIX = "pulsar_ingress_"
PIPELINE = PREFIX + "pipeline_"
PROCESS = "process_"

Kind = Literal["counter", "gauge", "histogram"]

REQUESTS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets, in seconds: from the sidecar's own share to longer than any client waits."""
COMMITS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as Prometheus sees it."""

    kind: Kind
    name: str
    """The full name: with `_total` for a counter, without `_bucket`, `_sum` and `_count` for a histogram."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unwatched: str = ""
    """Why no panel and no rule uses it; empty if one does."""

    def part(self, suffix: Literal["bucket", "sum", "count"]) -> "Metric":
        """One of the counters that make up a histogram."""
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
    """Metrics of one kind of process, one per attribute, in the order of the docs."""

    @classmethod
    def every(cls) -> Iterator[Metric]:
        return (value for value in vars(cls).values() if isinstance(value, Metric))


class Sidecar(Catalogue):
    """Metrics that a sidecar serves on `metrics.address`."""

    hits = counter("listener_hits", "Lookups with a listener.", "ingress listener rule protocol")
    misses = counter("listener_misses", "Lookups without a listener, by reason.", "ingress reason protocol")
    redirects = counter(
        "redirects", "Redirects from brokers, by what the sidecar did with them.", "listener kind action"
    )
    leaks = counter("leaks", "Answers with an address that is not on the selected listener.", "listener where action")
    unmapped = counter("unmapped_redirects", "Redirects that the address book could not map.", "listener")
    requests = counter("requests", "Requests answered.", "kind protocol code")
    duration = seconds(
        "request_duration", "Time from a request's head to the end of its answer.", "kind protocol", REQUESTS
    )
    upstream_duration = seconds(
        "upstream_duration",
        "Time from the first byte sent to a broker to the head of its answer.",
        "kind protocol",
        REQUESTS,
    )
    in_flight = gauge("in_flight_requests", "Requests in flight.", "protocol")
    tasks = counter(
        "task_requests",
        "HTTP requests that needed a task: for a new connection, a body or answer in parts, a retry or a WebSocket.",
        unwatched="for benchmarks: an operator cannot change it",
    )
    shed = counter(
        "shed_requests", "Requests refused because they had waited for more than limits.waitMillis.", "protocol"
    )
    connections = gauge("connections", "Open client connections.", "protocol")
    buffered = gauge("buffered_bytes", "Bytes held for requests and answers; the limit is limits.bufferBytes.")
    asyncio_tasks = gauge("asyncio_tasks", "Tasks of the event loop that have not ended.")
    upstream_errors = counter("upstream_errors", "Failed attempts to get an answer from a broker, by reason.", "reason")
    unknown_commands = counter(
        "unknown_commands",
        "Commands of the binary protocol that passed unread, as this version does not know them.",
        "sender type",
    )
    loop_lag = seconds("event_loop_lag", "Event loop lag, sampled ten times a second.", "", REQUESTS)
    generation = gauge("snapshot_generation", "Generation of the snapshot in force.")
    book_entries = gauge("address_book_entries", "Entries of the address book, by source.", "source")
    reloads = counter("config_reloads", "Config reloads, by result.", "result")
    last_reload = gauge("config_last_reload_successful", "1 if the newest config is in force, 0 if loading it failed.")
    certificate_not_before = gauge(
        "certificate_not_before_seconds", "Unix time from which the certificate in use is valid.", "use"
    )
    certificate_not_after = gauge(
        "certificate_not_after_seconds",
        "Unix time at which the certificate in use expires: `serve` is shown to clients, `brokers` to brokers.",
        "use",
    )
    discovery_synced = gauge(
        "discovery_synced", "1 if discovery is in sync with this kind of object, 0 if it is stale.", "kind"
    )
    discovery_restarts = counter("discovery_restarts", "Watches that were restarted, by reason.", "kind reason")
    discovery_conflicts = gauge("discovery_conflicts", "Objects that contradict each other or are incomplete.")
    events_written = counter("events_written", "Events written to the event log.")
    events_dropped = counter("events_dropped", "Events lost, by reason.", "reason")
    build_info = gauge("build_info", "Always 1. `pulsar_cluster` is clusterName.", "version pulsar_cluster")


class Pipeline(Catalogue):
    """Metrics of `pulsar-ingress-pipeline`, with `--metrics-address` or `--metrics-file`."""

    commits = counter("commits", "Commits to the tables.", prefix=PIPELINE)
    files = counter("files", "Event files ingested.", prefix=PIPELINE)
    lines = counter("lines", "Lines read from event files.", prefix=PIPELINE)
    events = counter("events", "Events added to the tables.", prefix=PIPELINE)
    quarantined = counter("quarantined_lines", "Invalid lines, written to quarantine.", prefix=PIPELINE)
    failures = counter("failures", "Failed attempts.", prefix=PIPELINE)
    busy = counter("busy_seconds", "Seconds spent on commits, including failed ones.", prefix=PIPELINE)
    commit_duration = seconds("commit_duration", "Time from a commit's first file to its end.", "", COMMITS, PIPELINE)
    last_attempt = gauge("last_attempt_successful", "1 if the last attempt succeeded, 0 if it failed.", prefix=PIPELINE)
    last_look = gauge("last_look_timestamp_seconds", "Time when event files were last listed.", prefix=PIPELINE)
    caught_up = gauge(
        "caught_up_timestamp_seconds", "All event files that existed at this time have been ingested.", prefix=PIPELINE
    )
    last_commit = gauge("last_commit_timestamp_seconds", "Time of the last commit.", prefix=PIPELINE)
    newest_event = gauge("newest_event_timestamp_seconds", "Time of the newest event in the tables.", prefix=PIPELINE)
    waiting_files = gauge("waiting_files", "Event files listed and not yet ingested.", prefix=PIPELINE)
    waiting_bytes = gauge("waiting_bytes", "Size of the waiting files on disk.", prefix=PIPELINE)
    build_info = gauge("build_info", "Always 1.", "version command", prefix=PIPELINE)


class Gateway(Catalogue):
    """Metrics of the Envoy that Istio's gateway is."""

    retried = Metric(
        "counter",
        "envoy_cluster_upstream_rq_retry_success",
        "Requests that were answered after a retry.",
        ("cluster_name",),
    )


class Around(Catalogue):
    """Metrics that the Prometheus client library and Prometheus itself provide."""

    cpu = counter("cpu_seconds", "CPU time of the process.", prefix=PROCESS)
    memory = gauge("resident_memory_bytes", "Resident memory size.", prefix=PROCESS)
    started = gauge("start_time_seconds", "Start time of the process.", prefix=PROCESS)
    open_fds = gauge("open_fds", "Number of open file descriptors.", prefix=PROCESS)
    max_fds = gauge("max_fds", "Maximum number of open file descriptors.", prefix=PROCESS)
    up = gauge("up", "1 if the target could be scraped.", "job instance", prefix="")
