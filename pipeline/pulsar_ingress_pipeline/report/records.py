"""What a report is made of: plain records, bounded in number, whoever gathered them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]
"""A row of a table, by the table's own columns."""


@dataclass(frozen=True, slots=True)
class Others:
    """All the names that are not among the most used."""

    count: int


Name = str | Others | None
"""A name, the rest of the names together, or none at all."""


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of a table by its measure."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    """Rows that the table has."""
    total: int = 0
    """The measure, over all of them."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal spans of time, each a column of the charts."""

    start: datetime
    step: timedelta
    count: int

    def time(self, place: int) -> datetime:
        return self.start + place * self.step


@dataclass(frozen=True, slots=True)
class Hits:
    """Lookups through an ingress in one span of time."""

    place: int
    ingress: Name
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class Latency:
    """How long lookups took in one span of time, in milliseconds; `worst` is the p95 of its worst five minutes."""

    place: int
    ingress: Name
    requests: int
    p50: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Lookups that went one way."""

    ingress: Name
    listener: Name
    broker: Name
    is_hit: bool
    lookups: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the next report compares itself with. Counters are of all time, whatever days a report shows."""

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
    """All of one report. What a table would have told and does not is empty, and `absent` names the table."""

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
    """Of `redirect_hops`, by kind, action and hops."""
    leaks: Top = Top()
    loops: Top = Top()
    objectives: Top = Top()
    """The last of each ingress's `slo_days`."""
    strays: Top = Top()
    """Hosts that are asked for and no ingress has: `drift`."""
    unused: list[tuple[str, str]] | None = None
    """Ingress and host that a config has and nobody asked for; None: no config was given."""
    listener: str | None = None
    """The one to suggest for hosts that no ingress has."""
    known_listeners: frozenset[str] = frozenset()
    """Those that some broker has, so that they may be suggested."""
    generations: Top = Top()
    """Of those that changed the hit ratio, the most first; the measure is lookups."""
    anomalies: Top = Top()
    misses: Top = Top()
    """With `named`, the listener that most of these clients named."""
    unmapped: Top = Top()
    owners: Top = Top()
    """Of those that moved; the measure is changes."""
    topics: int = 0
    moved: Top = Top()
    """Namespaces with the number of `topics` that moved and their `changes`."""
    namers: Top = Top()
    namespaces: Top = Top()
    quarantine: Top = Top()
    """Reasons, and how many `lines` have them."""
