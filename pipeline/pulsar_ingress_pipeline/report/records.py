"""The records of a report: plain data of bounded size."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WINDOW = 5 * _MINUTE
_STEPS = (
    WINDOW, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY, 3640 * _DAY, 36400 * _DAY, 364000 * _DAY,
)  # fmt: skip

Row = dict[str, Any]
"""A row of a table, by the table's own columns."""


@dataclass(frozen=True, slots=True)
class Others:
    """All the names that are not among the most used."""

    count: int


Name = str | Others | None
"""A name, the other names together, or no name."""


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of a table by its measure."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    """All rows of the table."""
    total: int = 0
    """The sum of the measure over all rows."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal spans of time, which are the columns of charts."""

    start: datetime
    step: timedelta
    count: int

    @classmethod
    def covering(cls, first: datetime, last: datetime, most: int) -> "Bins":
        """Columns for windows that start from `first` to `last`, with a length that divides hours or days."""
        for step in _STEPS:
            start = _down(first, step)
            count = (last - start) // step + 1
            if count <= most:
                return cls(start, step, count)
        raise AssertionError("times end in the year 9999")

    def time(self, place: int) -> datetime:
        return self.start + place * self.step

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Positions, in columns, and their labels: times of day, and the date at midnight."""
        end = self.time(self.count)
        for step in _STEPS:
            first = _down(self.start + step - timedelta(microseconds=1), step)
            if (end - first) // step < most or step == _STEPS[-1]:
                break
        found, time = [], first
        while time < end:
            is_day = step >= _DAY or time == _down(time, _DAY)
            found.append(((time - self.start) / self.step, f"{time.day} {time:%b}" if is_day else f"{time:%H:%M}"))
            time += step
        return found


def _down(time: datetime, step: timedelta) -> datetime:
    return time - (time - _EPOCH) % step


@dataclass(frozen=True, slots=True)
class Hits:
    """Lookups through an ingress in one span of time."""

    place: int
    ingress: Name
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations of lookups in one span of time, in milliseconds; `worst` is the p95 of its worst five minutes."""

    place: int
    ingress: Name
    requests: int
    p50: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Lookups that took the same way."""

    ingress: Name
    listener: Name
    broker: Name
    is_hit: bool
    lookups: int

    @property
    def ends(self) -> tuple[Name, Name, Name]:
        return self.ingress, self.listener, self.broker


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers for the next report to compare with. They are of all time, even if the report shows only some days."""

    tables: str
    made: datetime
    until: datetime
    """Time of the newest window."""
    lookups: int
    hits: int
    unmapped: int
    changes: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. Records of a missing table are empty, and `absent` has its name."""

    tables: str
    made: datetime
    days: int | None = None
    absent: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    numbers: Numbers | None = None
    bins: Bins | None = None
    hits: tuple[Hits, ...] = ()
    latency: tuple[Latency, ...] = ()
    latency_by_ingress: tuple[Latency, ...] = ()
    flows: tuple[Flow, ...] = ()
    redirects: Top = Top()
    """`redirect_hops` by kind, action and hops."""
    leaks: Top = Top()
    loops: Top = Top()
    objectives: Top = Top()
    """The last row of each ingress in `slo_days`."""
    strays: Top = Top()
    """Requested hosts that no ingress has: `drift`."""
    unused: list[tuple[str, str]] | None = None
    """Ingress and host of a config that nobody requested; None: no config was given."""
    listener: str | None = None
    """The listener to suggest for hosts that no ingress has."""
    known_listeners: frozenset[str] = frozenset()
    """Listeners that some broker has, which may be suggested."""
    generations: Top = Top()
    """Generations that changed the hit ratio, by the number of lookups affected."""
    anomalies: Top = Top()
    misses: Top = Top()
    """With `named`: the listener that most of these clients named."""
    unmapped: Top = Top()
    owners: Top = Top()
    """Topics that moved, by changes."""
    topics: int = 0
    moved: Top = Top()
    """Namespaces with the number of `topics` that moved and their `changes`."""
    namers: Top = Top()
    namespaces: Top = Top()
    quarantine: Top = Top()
    """Reasons, with the number of `lines`."""
