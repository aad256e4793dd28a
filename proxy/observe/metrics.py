"""The metrics: one catalogue of names, labels and help, and numbers kept as plain integers.

A counter of prometheus_client costs 1.6 µs where an integer in a dict costs 0.1; a lookup touches five. So the
library does what it is for, the exposition, and the hot path adds to dicts.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.observe.records import Record

PREFIX = "pulsar_ingress_"

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_CODES = {code: str(code) for code in range(100, 600)}

Labels = tuple[str, ...]
Tally = tuple[dict[Labels, float], Labels]


@dataclass(slots=True)
class Number:
    """A counter or a gauge, by label values."""

    kind: Literal["counter", "gauge"]
    name: str
    help: str
    labels: Labels = ()
    values: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[labels] += by

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def family(self) -> Family:
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(PREFIX + self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


@dataclass(slots=True)
class Histogram:
    """Seconds, by label values."""

    name: str
    help: str
    labels: Labels
    values: dict[Labels, list[float]] = field(default_factory=dict)
    """Per bucket a count, and the sum last."""

    def observe(self, seconds: float, labels: Labels) -> None:
        counts = self.values.get(labels)
        if counts is None:
            counts = self.values[labels] = [0] * (len(BUCKETS) + 2)
        counts[bisect_left(BUCKETS, seconds)] += 1
        counts[-1] += seconds

    def family(self) -> Family:
        family = HistogramMetricFamily(PREFIX + self.name, self.help, labels=self.labels)
        for labels, counts in list(self.values.items()):
            below, buckets = 0.0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts[:-1], strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(labels, buckets, counts[-1])
        return family


class Metrics(Collector):
    """All metrics of one sidecar."""

    def __init__(self, cluster: str) -> None:
        counter, gauge = _counter, _gauge
        self.hits = counter("listener_hits", "Lookups that have a listener.", "ingress listener rule protocol")
        self.misses = counter("listener_misses", "Lookups that have none, by reason.", "ingress reason protocol")
        self.redirects = counter("redirects", "Brokers' redirects, by what became of them.", "listener kind action")
        self.leaks = counter("leaks", "Answers with an address that is not on the listener.", "listener where action")
        self.unmapped = counter("unmapped_redirects", "Redirects that the address book has no answer to.", "listener")
        self.requests = counter("requests", "Requests answered.", "kind protocol code")
        self.duration = Histogram(
            "request_duration_seconds", "From a request's head to the end of its answer.", ("kind", "protocol")
        )
        self.upstream_duration = Histogram(
            "upstream_duration_seconds",
            "From the first byte to a broker to the answer's head.",
            ("kind", "protocol"),
        )
        self.in_flight = gauge("in_flight_requests", "Requests being answered.", "protocol")
        self.connections = gauge("connections", "Open client connections.", "protocol")
        self.upstream_errors = counter("upstream_errors", "Failures of brokers, by reason.", "reason")
        self.generation = gauge("snapshot_generation", "Number of the snapshot in force.")
        self.book_entries = gauge("address_book_entries", "Lines of the address book.", "source")
        self.reloads = counter("config_reloads", "Reloads of the config.", "result")
        self.last_reload = gauge("config_last_reload_successful", "1 where the newest config is in force.")
        self.discovery_synced = gauge("discovery_synced", "1 where a kind of object is known as it is.", "kind")
        self.discovery_restarts = counter("discovery_restarts", "Watches begun anew.", "kind reason")
        self.discovery_conflicts = gauge("discovery_conflicts", "Findings that do not fit together, or say too little.")
        self.events_written = counter("events_written", "Events written.")
        self.events_dropped = counter("events_dropped", "Events lost.", "reason")
        self.build_info = gauge("build_info", "Always 1.", "version cluster")
        self.build_info.set(1, __version__, cluster)
        self.in_flight.set(0, "http")
        self.connections.set(0, "http")
        self.events_written.add(by=0)
        for result in ("success", "failure"):  # or the first of each would be no increase to Prometheus
            self.reloads.add(result, by=0)

    def collect(self) -> Iterable[Family]:
        return (metric.family() for metric in self.catalogue())

    def catalogue(self) -> Iterator[Number | Histogram]:
        return (value for value in vars(self).values() if isinstance(value, Number | Histogram))

    def count(self, record: Record) -> None:
        """Add one finished request."""
        for values, labels in self.tallies(record):
            values[labels] += 1
        labels = (record.target.kind, record.protocol)
        self.duration.observe(record.duration, labels)
        if record.upstream_duration is not None:
            self.upstream_duration.observe(record.upstream_duration, labels)

    def tallies(self, record: Record) -> list[Tally]:
        """What a finished request adds one to; the same for all that went the same way."""
        protocol, kind = record.protocol, record.target.kind
        code = _CODES.get(record.status) or str(record.status)
        found: list[Tally] = [(self.requests.values, (kind, protocol, code))]
        selection = record.selection
        if kind == "lookup" and selection is not None:
            ingress = selection.ingress.name if selection.ingress is not None else ""
            if record.miss_reason is None:
                found.append((self.hits.values, (ingress, record.listener, selection.rule, protocol)))
            else:
                found.append((self.misses.values, (ingress, record.miss_reason, protocol)))
        found += [(self.redirects.values, (record.listener, kind, action)) for action in record.redirects]
        found += [(self.unmapped.values, (record.listener,))] * record.unmapped
        if record.leak is not None:
            found.append((self.leaks.values, (record.listener, record.leak, record.leak_action)))
        found += [(self.upstream_errors.values, (reason,)) for reason in record.upstream_errors]
        return found


def registry(metrics: Metrics) -> CollectorRegistry:
    """What /metrics shows: ours, and the process's."""
    shown = CollectorRegistry(auto_describe=False)
    shown.register(metrics)
    ProcessCollector(registry=shown)
    PlatformCollector(registry=shown)
    GCCollector(registry=shown)
    return shown


def _counter(name: str, help: str, labels: str = "") -> Number:
    return Number("counter", name, help, tuple(labels.split()))


def _gauge(name: str, help: str, labels: str = "") -> Number:
    return Number("gauge", name, help, tuple(labels.split()))
