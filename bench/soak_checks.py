"""What must hold after a soak: counts add up, nothing is left over; memory, descriptors and tasks stay level."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.soak_tally import Tally

MIB = 1 << 20
MORE_DESCRIPTORS = 2
"""At the end: the file of events, and a second idle connection to the API server."""
WARM_UP = 1 / 3
"""Share of the time: caches fill, and the interpreter allocates its arenas."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The sidecar's process at one moment."""

    seconds: float
    """Since the load began."""
    resident: int
    descriptors: int
    tasks: int
    requests: int
    """All that it has answered."""


@dataclass(frozen=True, slots=True)
class Level:
    """A quantity that should stay what it was after the warm-up."""

    what: str
    value: Callable[[Sample], float]
    percent: float
    """What it may have grown by, or `least`, whichever is more."""
    least: float
    text: Callable[[float], str]

    def row(self, samples: Sequence[Sample]) -> "Row":
        """Compares medians of the first and the last quarter of the time after the warm-up."""
        values = [self.value(sample) for sample in samples[int(len(samples) * WARM_UP) :]]
        several = max(1, len(values) // 4)
        warm, last = statistics.median(values[:several]), statistics.median(values[-several:])
        most = max(warm * (1 + self.percent / 100), warm + self.least)
        return Row(
            f"{self.what}, last quarter",
            self.text(last),
            f"{self.text(most)} at most, after {self.text(warm)} in the first",
            last <= most,
        )


LEVELS = (
    Level("resident memory", lambda sample: sample.resident, 5, 8 * MIB, lambda value: f"{value / MIB:.1f} MiB"),
    Level("open descriptors", lambda sample: sample.descriptors, 10, 20, lambda value: f"{value:.0f}"),
    Level("asyncio tasks", lambda sample: sample.tasks, 10, 20, lambda value: f"{value:.0f}"),
)
"""8 MiB are less than 100 bytes for each lookup of five minutes on a slow machine. Descriptors and tasks follow the
load, which is never quite the same; the rest, without load, is compared exactly."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the sidecar counted and wrote, and what both ends saw."""

    hits: int
    misses: int
    lookups: int
    events: int
    dropped: int
    in_flight: int
    connections: int
    buffered: int
    tracebacks: tuple[str, ...]
    """From the sidecar's log."""
    failed_reloads: tuple[str, ...]
    """Lines of the sidecar's log."""
    differences: tuple[str, ...]
    """Between the cluster and what the sidecar knows of it in the end."""
    samples: tuple[Sample, ...]
    before: Sample
    """Without load."""
    after: Sample
    changes: tuple[tuple[float, str], ...]
    """Seconds since the load began, and the kind of what changed then."""
    tally: Tally


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    found: str
    wanted: str
    holds: bool


def checks(totals: Totals) -> list[Row]:
    tally, counted = totals.tally, totals.hits + totals.misses

    def equal(what: str, found: int, wanted: int) -> Row:
        return Row(what, f"{found:,}", f"{wanted:,}", found == wanted)

    def at_most(what: str, found: int, most: int, why: str) -> Row:
        return Row(what, f"{found:,}", f"{most:,} at most, {why}", found <= most)

    return [
        Row(
            "hits and misses",
            f"{totals.hits:,} + {totals.misses:,}",
            "some of both",
            bool(totals.hits and totals.misses),
        ),
        equal("lookups in requests_total", totals.lookups, counted),
        equal("lookup events in the log", totals.events, counted),
        Row(
            "lookups by the clients' count",
            f"{counted:,}",
            f"{tally.answered:,} answered to {tally.attempted:,} attempted",
            tally.answered <= counted <= tally.attempted,
        ),
        equal("events dropped", totals.dropped, 0),
        equal("wrong answers", tally.wrong.total(), 0),
        at_most("connections cut off", tally.cut, tally.hung_up, "as brokers hung up"),
        equal("failed reloads", len(totals.failed_reloads), 0),
        equal("tracebacks in the sidecar's log", len(totals.tracebacks), 0),
        equal("differences to the cluster and the newest certificate at the end", len(totals.differences), 0),
        equal("requests in flight at the end", totals.in_flight, 0),
        equal("client connections at the end", totals.connections, 0),
        equal("bytes held for them at the end", totals.buffered, 0),
        at_most(
            "descriptors at the end",
            totals.after.descriptors,
            totals.before.descriptors + MORE_DESCRIPTORS,
            f"{MORE_DESCRIPTORS} more than before the load",
        ),
        at_most("tasks at the end", totals.after.tasks, totals.before.tasks, "as before the load"),
        *(level.row(totals.samples) for level in LEVELS),
    ]


def table(rows: Sequence[Row]) -> str:
    head = Row("what", "found", "wanted", True)
    widths = [max(len(getattr(row, name)) for row in [head, *rows]) for name in ("what", "found", "wanted")]
    lines = []
    for row in [head, *rows]:
        texts = (text.ljust(width) for text, width in zip((row.what, row.found, row.wanted), widths, strict=True))
        lines.append("  ".join([*texts, "" if row is head else "holds" if row.holds else "DOES NOT HOLD"]).rstrip())
    return "\n".join(lines)
