"""The metrics of the catalogue, as numbers kept as plain integers.

A counter of prometheus_client costs 1.6 µs where an integer in a dict costs 0.1; a lookup touches five. So the
library does what it is for, the exposition, and the hot path adds to dicts.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.observe.catalogue import REQUESTS, Metric, Sidecar
from proxy.observe.records import Record

_CODES = {code: str(code) for code in range(100, 600)}

Labels = tuple[str, ...]
Tally = tuple[dict[Labels, float], Labels]


@lru_cache(maxsize=4096)
def same(*labels: str) -> Labels:
    """The one tuple of these: a dict finds a key twice as fast that is the very one it has."""
    return labels


@dataclass(slots=True)
class Number:
    """A counter or a gauge, by label values."""

    of: Metric
    values: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, *labels: str, by: float = 1) -> None:
        self.values[same(*labels)] += by

    def set(self, value: float, *labels: str) -> None:
        self.values[same(*labels)] = value

    def family(self) -> Family:
        make = CounterMetricFamily if self.of.kind == "counter" else GaugeMetricFamily
        family = make(self.of.name, self.of.help, labels=self.of.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


class Histogram:
    """Seconds, by label values."""

    __slots__ = ("_bounds", "of", "values")

    def __init__(self, of: Metric) -> None:
        self.of = of
        self._bounds = of.buckets
        self.values: dict[Labels, list[float]] = {}
        """Per bucket a count, and the sum last."""

    def begin(self, labels: Labels = ()) -> list[float]:
        """Be there with nothing, so that the first one will be an increase to Prometheus."""
        counts = self.values[labels] = [0] * (len(self._bounds) + 2)
        return counts

    def counts(self, labels: Labels = ()) -> list[float]:
        return self.values.get(labels) or self.begin(labels)

    def observe(self, seconds: float, labels: Labels = ()) -> None:
        counts = self.counts(labels)
        counts[bisect_left(self._bounds, seconds)] += 1
        counts[-1] += seconds

    def family(self) -> Family:
        family = HistogramMetricFamily(self.of.name, self.of.help, labels=self.of.labels)
        for labels, counts in list(self.values.items()):
            below, buckets = 0.0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts[:-1], strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(labels, buckets, counts[-1])
        return family


class Course:
    """Where requests are counted that all went the same way: looked up once, and only added to after that."""

    __slots__ = ("_durations", "_in_flight", "_protocol", "_tallies", "_waits")

    def __init__(self, metrics: "Metrics", record: Record) -> None:
        labels = (record.target.kind, record.protocol)
        self._tallies = metrics.tallies(record)
        self._in_flight, self._protocol = metrics.in_flight.values, same(record.protocol)
        self._durations = metrics.duration.counts(labels)
        self._waits = metrics.upstream_duration.counts(labels)

    def ended(self, duration: float, upstream_duration: float) -> None:
        """One that was in flight is over."""
        self._in_flight[self._protocol] -= 1
        for values, labels in self._tallies:
            values[labels] += 1
        durations, waits = self._durations, self._waits
        place = bisect_left(REQUESTS, duration)
        durations[place] += 1
        durations[-1] += duration
        waits[place if upstream_duration == duration else bisect_left(REQUESTS, upstream_duration)] += 1
        waits[-1] += upstream_duration


class Numbers(Collector):
    """All metrics of one process, each an attribute."""

    def collect(self) -> Iterable[Family]:
        return (value.family() for value in vars(self).values() if isinstance(value, Number | Histogram))


class Metrics(Numbers):
    """All metrics of one sidecar."""

    def __init__(self, cluster: str) -> None:
        self.hits = Number(Sidecar.hits)
        self.misses = Number(Sidecar.misses)
        self.redirects = Number(Sidecar.redirects)
        self.leaks = Number(Sidecar.leaks)
        self.unmapped = Number(Sidecar.unmapped)
        self.requests = Number(Sidecar.requests)
        self.duration = Histogram(Sidecar.duration)
        self.upstream_duration = Histogram(Sidecar.upstream_duration)
        self.in_flight = Number(Sidecar.in_flight)
        self.connections = Number(Sidecar.connections)
        self.upstream_errors = Number(Sidecar.upstream_errors)
        self.loop_lag = Histogram(Sidecar.loop_lag)
        self.generation = Number(Sidecar.generation)
        self.book_entries = Number(Sidecar.book_entries)
        self.reloads = Number(Sidecar.reloads)
        self.last_reload = Number(Sidecar.last_reload)
        self.discovery_synced = Number(Sidecar.discovery_synced)
        self.discovery_restarts = Number(Sidecar.discovery_restarts)
        self.discovery_conflicts = Number(Sidecar.discovery_conflicts)
        self.events_written = Number(Sidecar.events_written)
        self.events_dropped = Number(Sidecar.events_dropped)
        self.build_info = Number(Sidecar.build_info)
        self.build_info.set(1, __version__, cluster)
        self.in_flight.set(0, "http")
        self.connections.set(0, "http")
        self.events_written.add(by=0)
        for result in ("success", "failure"):  # or the first of each would be no increase to Prometheus
            self.reloads.add(result, by=0)

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
        found: list[Tally] = [(self.requests.values, same(kind, protocol, code))]
        selection = record.selection
        if kind == "lookup" and selection is not None:
            ingress = selection.ingress.name if selection.ingress is not None else ""
            if record.miss_reason is None:
                found.append((self.hits.values, same(ingress, record.listener, selection.rule, protocol)))
            else:
                found.append((self.misses.values, same(ingress, record.miss_reason, protocol)))
        found += [(self.redirects.values, same(record.listener, kind, action)) for action in record.redirects]
        found += [(self.unmapped.values, same(record.listener))] * record.unmapped
        if record.leak is not None:
            found.append((self.leaks.values, same(record.listener, record.leak, record.leak_action)))
        found += [(self.upstream_errors.values, same(reason)) for reason in record.upstream_errors]
        return found


def registry(metrics: Numbers) -> CollectorRegistry:
    """What /metrics shows: ours, and the process's."""
    shown = CollectorRegistry(auto_describe=False)
    shown.register(metrics)
    ProcessCollector(registry=shown)
    PlatformCollector(registry=shown)
    GCCollector(registry=shown)
    return shown
