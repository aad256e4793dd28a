"""What a report is made of: plain records, bounded in number, whoever gathered them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Others:
    """All the names that are not among the most used."""

    count: int


Name = str | Others | None
"""A name, the rest of the names together, or none at all."""


@dataclass(frozen=True, slots=True)
class Top(Generic[T]):
    """The first rows of a table by its measure."""

    rows: tuple[T, ...] = ()
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

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


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
class Redirects:
    """Requests whose answer was a redirect, or led over some."""

    kind: str | None
    action: str | None
    hops: int
    requests: int


@dataclass(frozen=True, slots=True)
class Miss:
    """Lookups that had no listener, for one reason."""

    ingress: str | None
    host: str | None
    reason: str | None
    protocol: str | None
    misses: int
    first: datetime
    last: datetime
    named: str | None = None
    """The listener that most of these clients named."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """An address that the address book has no answer for."""

    listener: str | None
    address: str | None
    redirects: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Owner:
    """A topic and how often it changed hands."""

    topic: str | None
    lookups: int
    changes: int
    brokers: int


@dataclass(frozen=True, slots=True)
class Namer:
    """Clients that name a listener themselves."""

    user_agent: str | None
    tenant: str | None
    listener: str | None
    lookups: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """Whose lookups they are."""

    tenant: str | None
    namespace: str | None
    hits: int
    misses: int
    redirects: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A word and how often it stands."""

    word: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Objective:
    """What an ingress did in the days that its lookups are held to their objective over."""

    ingress: str | None
    lookups: int
    good: int
    budget_left: float
    """As a share; below 0 where more is spent than there was."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Redirects of a topic that came back."""

    listener: str | None
    topic: str | None
    followed_by: str
    brokers: tuple[str, ...]
    loops: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Leak:
    """Answers with an address that is not on the client's listener."""

    ingress: str | None
    listener: str | None
    found_in: str | None
    address: str | None
    user_agent: str | None
    leaks: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Stray:
    """A host that is asked for and no ingress has."""

    host: str | None
    state: str
    ingress: str | None
    """That it had."""
    requests: int
    lookups: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Generation:
    """A sidecar's config, and what it did to the hit ratio."""

    sidecar: str | None
    generation: int
    first: datetime
    lookups: int
    hits: int
    change: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An hour unlike the same hour of earlier days."""

    start: datetime
    ingress: str | None
    what: str
    value: float
    usual: float
    days: int
    score: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A namespace and how often its topics changed hands."""

    namespace: str | None
    topics: int
    changes: int


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
    redirects: tuple[Redirects, ...] = ()
    leaks: Top[Leak] = field(default_factory=Top)
    loops: Top[Loop] = field(default_factory=Top)
    objectives: tuple[Objective, ...] = ()
    strays: Top[Stray] = field(default_factory=Top)
    unused: tuple[tuple[str, str], ...] | None = None
    """Ingress and host that a config has and nobody asked for; None: no config was given."""
    listener: str | None = None
    """The one to suggest for hosts that no ingress has."""
    known_listeners: frozenset[str] = frozenset()
    """Those that some broker has, so that they may be suggested."""
    generations: Top[Generation] = field(default_factory=Top)
    """Of those that changed the hit ratio, the most first; the measure is lookups."""
    anomalies: Top[Anomaly] = field(default_factory=Top)
    misses: Top[Miss] = field(default_factory=Top)
    unmapped: Top[Unmapped] = field(default_factory=Top)
    owners: Top[Owner] = field(default_factory=Top)
    """Of those that moved; the measure is changes."""
    topics: int = 0
    moved: tuple[Moved, ...] = ()
    namers: Top[Namer] = field(default_factory=Top)
    namespaces: Top[Namespace] = field(default_factory=Top)
    quarantine: Top[Counted] = field(default_factory=Top)
