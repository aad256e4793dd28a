"""What all exchanges share: the snapshot in force, the connections to brokers, and those who keep the records."""

import secrets
from functools import lru_cache
from itertools import count

from proxy.answers import LookupAnswer, put_on_listener
from proxy.listeners import BindAddress
from proxy.observe.events import EventLog
from proxy.observe.metrics import Course, Metrics
from proxy.observe.recent import Recent, sorts_of
from proxy.observe.records import Brief, Record
from proxy.observe.tracing import Tracing
from proxy.requests import Request, Target, listener_names
from proxy.snapshot import Snapshot
from proxy.verdicts import Verdict, judge
from proxy.web.bodies import ReplayBudget
from proxy.web.heads import RequestHead, about, read_request, split_target
from proxy.web.pool import Pool

_REMEMBERED = 4096
_SHORT_ANSWER, _SHORT_NAMES = 4096, 512
_FORWARDED = (b"host", b"x-forwarded-host", b"x-forwarded-proto")


class Outcome:
    """What came of a lookup, for all that are answered alike: they differ in their paths and ids alone."""

    __slots__ = ("course", "rest", "sizes", "sorts", "start", "words")

    def __init__(self, start: list[bytes], rest: bytes, record: Record, words: list[str], metrics: Metrics) -> None:
        self.start = start
        """What the client gets, up to the request's id; between its parts stands the path."""
        self.rest = rest
        self.words = words
        """Of the event: likewise."""
        self.sizes = record.request_bytes, record.response_bytes
        self.course = Course(metrics, record)
        self.sorts = sorts_of(record)


class Rules:
    """A snapshot with a memory. Doors, hosts and answers are few, so most decisions have been made before."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.config = snapshot.config

        self._known: dict[tuple[object, ...], tuple[Request, Verdict, int]] = {}
        self._number = count()
        self.outcomes: dict[tuple[int | bytes, ...], Outcome] = {}
        """What came of lookups, by the number of their verdict and what the broker said, without the path."""

        @lru_cache(1024)
        def remembered(body: bytes, listener: str) -> LookupAnswer:
            return put_on_listener(body, listener, snapshot)

        self._remembered = remembered

    def on_listener(self, body: bytes, listener: str) -> LookupAnswer:
        """A lookup's answer put on a listener; the owner's is the same for all its topics."""
        if len(body) > _SHORT_ANSWER:
            return put_on_listener(body, listener, self.snapshot)
        return self._remembered(body, listener)

    def read(
        self, method: str, raw_target: str, head: RequestHead, bind: BindAddress, trusted: bool
    ) -> tuple[str, str, Target, Request, Verdict, int]:
        """Path and query as they were, what they are about, the verdict and its number; raises BadHead."""
        path, query, authority = split_target(method, raw_target)
        target = about(method, path)
        special = head.special
        key = (
            bind.address, special.get(b"host"), authority, trusted, special.get(b"x-forwarded-host"),
            special.get(b"x-forwarded-proto"), head.listener_names, listener_names(query) if query else (),
            target.kind, target.area,
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            request = read_request(target, query, authority, head, bind, trusted)
            known = (request, judge(request, self.snapshot), next(self._number))
            names = (*head.listener_names, *request.query_names, *map(head.text, _FORWARDED))
            if sum(map(len, names)) <= _SHORT_NAMES:  # clients choose them, and many long ones would fill the memory
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[key] = known
        return path, query, target, *known


class Rim:
    """The shared things of one sidecar."""

    tracing: Tracing | None = None

    def __init__(
        self,
        snapshot: Snapshot,
        pool: Pool,
        metrics: Metrics,
        events: EventLog | None = None,
        recent: Recent | None = None,
    ) -> None:
        self.pool = pool
        self.metrics = metrics
        self._events = events
        self._recent = recent
        self.budget = ReplayBudget(snapshot.config.limits.replay_total_bytes)
        self._ids = secrets.token_hex(6)
        self._count = count(1)
        self.install(snapshot)

    def install(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; requests that have begun keep theirs."""
        self.rules = Rules(snapshot)
        self.budget.resize(snapshot.config.limits.replay_total_bytes)
        self.metrics.generation.set(snapshot.generation)
        entries = self.metrics.book_entries
        for labels in entries.values:
            entries.drop(*labels)
        entries.set(0, "config")
        for entry in snapshot.book.entries:
            entries.add(entry.source)

    @property
    def snapshot(self) -> Snapshot:
        return self.rules.snapshot

    def begin(self, protocol: str = "http") -> bool:
        """One more request; false where it is one too many."""
        in_flight = self.metrics.in_flight.cell(protocol)
        in_flight[0] += 1
        return in_flight[0] <= self.rules.config.limits.in_flight

    @property
    def is_full(self) -> bool:
        """Whether the next request would be one too many."""
        return self.metrics.in_flight.cell("http")[0] >= self.rules.config.limits.in_flight

    def let_go(self) -> None:
        """One request less, as another goes on with it."""
        self.metrics.in_flight.cell("http")[0] -= 1

    def new_id(self) -> str:
        """A request's id, unlike any other of any sidecar."""
        return f"{self._ids}-{next(self._count)}"

    def finish(self, record: Record) -> None:
        """A request is over."""
        self.metrics.in_flight.cell(record.protocol)[0] -= 1
        self.tell(record)

    def tell(self, record: Record) -> None:
        """Count and record what nobody was waiting for."""
        self.metrics.count(record)
        if self._events is not None:
            self._events.add(record)
        if self._recent is not None:
            self._recent.add(record, sorts_of(record))

    def finish_alike(self, record: Brief, outcome: Outcome) -> None:
        """A lookup is over that went like one before it."""
        outcome.course.ended(record.duration, record.upstream_duration)
        if self._events is not None:
            self._events.add(record)
        if self._recent is not None:
            self._recent.add(record, outcome.sorts)
