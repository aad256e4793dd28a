"""Lookups that went like others before them, many at a time, as they are recorded.

What they have in common is shared, and what each has of its own stands in columns: objects of their own, kept until
their events are written, would be spread over memory that is never at hand when it is needed.
"""

from array import array
from collections.abc import Iterator

from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.metrics import Course, Metrics
from pulsar_ingress_proxy.observability.recent import Sort, sorts_of


class Outcome:
    """What came of a lookup, for all that are answered alike."""

    __slots__ = ("course", "sizes", "sorts", "words")

    def __init__(self, record: AccessRecord, words: list[str], metrics: Metrics) -> None:
        self.words = words
        """Of the event, in parts: what stands between them is each one's own. Of those in batches there are two."""
        self.sizes = record.request_bytes, record.response_bytes
        self.course = Course(metrics, record)
        self.sorts: tuple[Sort, ...] = sorts_of(record)


class Batch:
    """Lookups of the binary protocol, in the order in which they ended."""

    __slots__ = ("asked", "clients", "durations", "first", "ids", "outcomes", "since", "started")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """What events say of what was asked, in the two places where they do."""
        self.outcomes: list[Outcome] = []
        self.clients: list[str] = []
        """What events say of who asked."""
        self.started, self.durations = array("d"), array("d")
        """By `perf_counter`, in seconds."""
        self.ids, self.first, self.since = "", 0, 0.0
        """How their ids begin, the number that the first of them ends with, and when `perf_counter` was 0."""

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def memory(self) -> int:
        """Bytes that they take at the most."""
        return 256 * len(self) + sum(len(what) for what, _ in self.asked)

    def rows(self) -> Iterator[tuple[tuple[str, str], Outcome, str, float, float]]:
        return zip(self.asked, self.outcomes, self.clients, self.started, self.durations, strict=True)

    def one(self, place: int) -> "Batch":
        """One of them alone."""
        alone = Batch()
        for name in ("asked", "outcomes", "clients", "started", "durations"):
            setattr(alone, name, getattr(self, name)[place : place + 1])
        alone.ids, alone.first, alone.since = self.ids, self.first + place, self.since
        return alone
