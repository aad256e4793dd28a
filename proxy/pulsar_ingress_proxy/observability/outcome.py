"""The outcome that many requests share: the counters to increment, and parts of their events."""

from bisect import bisect_left

from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.catalogue import REQUESTS
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recent import Sort, sorts_of


class Outcome:
    """Computed once; each request only increments counters."""

    __slots__ = ("_cells", "_duration", "_upstream", "sorts", "words")

    def __init__(self, record: AccessRecord, metrics: Metrics) -> None:
        labels = (record.kind, record.protocol)
        self._cells = metrics.tallies(record)
        self._duration = metrics.duration.counts(labels)
        self._upstream = metrics.upstream_duration.counts(labels) if record.upstream_duration is not None else None
        self.words = event_lines.shared_words(record)
        self.sorts: tuple[Sort, ...] = sorts_of(record)

    def count(self, duration: float, upstream_duration: float | None) -> None:
        """Add one request; times are in seconds."""
        for cell in self._cells:
            cell[0] += 1
        counts = self._duration
        counts[bisect_left(REQUESTS, duration)] += 1
        counts[-1] += duration
        if upstream_duration is not None and self._upstream is not None:
            counts = self._upstream
            counts[bisect_left(REQUESTS, upstream_duration)] += 1
            counts[-1] += upstream_duration
