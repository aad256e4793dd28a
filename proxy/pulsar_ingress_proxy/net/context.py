"""What all exchanges share: the snapshot in force, the connections to brokers, and those who keep the records."""

import asyncio
import secrets
from functools import lru_cache
from itertools import count
from time import perf_counter, time

from pulsar_ingress_proxy.http.headers import RequestHead, about, forwarded_client, read_request, split_target
from pulsar_ingress_proxy.memory import DECISIONS, FORWARDED_CLIENTS, LOOKUP_ANSWERS, Budget
from pulsar_ingress_proxy.net.pool import Pool
from pulsar_ingress_proxy.observability.access_record import Brief, Record
from pulsar_ingress_proxy.observability.batches import Batch, Outcome
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recent import Recent, sorts_of
from pulsar_ingress_proxy.observability.tracing import Tracing
from pulsar_ingress_proxy.routing.answers import LookupAnswer, put_on_listener
from pulsar_ingress_proxy.routing.requests import Request, Target, listener_names
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.routing.verdicts import Verdict, judge
from pulsar_ingress_proxy.syntax.listeners import BindAddress

_SOON, _TOGETHER = 0.05, 256
"""Seconds for which finished lookups may wait to be recorded, and how many may."""
_FORWARDED = (b"host", b"x-forwarded-host", b"x-forwarded-proto")


class Answer(Outcome):
    """What clients get whose lookups are answered alike: it differs in the path and the request's id alone."""

    __slots__ = ("rest", "start")

    def __init__(self, start: list[bytes], rest: bytes, record: Record, words: list[str], metrics: Metrics) -> None:
        super().__init__(record, words, metrics)
        self.start = start
        """Up to the id; between its parts stands the path."""
        self.rest = rest


class Rules:
    """A snapshot with a memory. Doors, hosts and answers are few, so most decisions have been made before."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.config = snapshot.config

        self._known: dict[tuple[object, ...], tuple[Request, Verdict, int]] = {}
        self._number = count()
        self.outcomes: dict[tuple[int | bytes, ...], Answer] = {}
        """What came of lookups, by the number of their verdict and what the broker said, without the path."""

        @lru_cache(LOOKUP_ANSWERS.entries)
        def remembered(body: bytes, listener: str) -> LookupAnswer:
            return put_on_listener(body, listener, snapshot)

        self._remembered = remembered

        @lru_cache(FORWARDED_CLIENTS.entries)
        def forwarded(forwarded_for: bytes) -> str | None:
            return forwarded_client(forwarded_for, snapshot.config.trusted_proxies)

        self._forwarded = forwarded

    def on_listener(self, body: bytes, listener: str) -> LookupAnswer:
        """A lookup's answer put on a listener; the owner's is the same for all its topics."""
        if len(body) + len(listener) > LOOKUP_ANSWERS.longest:
            return put_on_listener(body, listener, self.snapshot)
        return self._remembered(body, listener)

    def forwarded_client(self, forwarded_for: bytes) -> str | None:
        """The client's address by a trusted proxy's X-Forwarded-For."""
        if len(forwarded_for) > FORWARDED_CLIENTS.longest:
            return forwarded_client(forwarded_for, self.config.trusted_proxies)
        return self._forwarded(forwarded_for)

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
            if sum(map(len, names)) + 8 * len(names) <= DECISIONS.longest:  # empty ones take room, too
                if len(self._known) >= DECISIONS.entries:
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
        self.replays = Budget(snapshot.config.limits.replay_total_bytes)
        """Bodies that are kept to be sent again."""
        self.buffers = Budget(snapshot.config.limits.buffer_bytes)
        """What connections hold of requests and answers."""
        self._ids = secrets.token_hex(6)
        self._last_id = 0
        self._batch = Batch()
        metrics.settle = self._prepare_metrics
        if recent is not None:
            recent.settle = self.settle
        self.install(snapshot)

    def install(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; requests that have begun keep theirs."""
        self.rules = Rules(snapshot)
        self.replays.resize(snapshot.config.limits.replay_total_bytes)
        self.buffers.resize(snapshot.config.limits.buffer_bytes)
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

    def begin(self) -> bool:
        """One more request of HTTP; false where it is one too many."""
        in_flight = self.metrics.in_flight.cell("http")
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
        self._last_id += 1
        return f"{self._ids}-{self._last_id}"

    def finish(self, record: Record) -> None:
        """A request of HTTP is over."""
        self.metrics.in_flight.cell("http")[0] -= 1
        self.tell(record)

    def tell(self, record: Record) -> None:
        """Count and record what nobody was waiting for."""
        self.settle()
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

    def finish_soon(
        self, asked: tuple[str, str], outcome: Outcome, client: str, started: float, duration: float
    ) -> None:
        """A lookup of the binary protocol is over that went like one before it: it is recorded with others."""
        batch = self._batch
        batch.asked.append(asked)
        batch.outcomes.append(outcome)
        batch.clients.append(client)
        batch.started.append(started)
        batch.durations.append(duration)
        number = len(batch.clients)
        if number == 1:
            asyncio.get_running_loop().call_later(_SOON, self._settle_one, batch)
        elif number == _TOGETHER:
            self.settle()

    def _prepare_metrics(self) -> None:
        """Before somebody looks at them."""
        self.settle()
        self.metrics.buffered.set(self.buffers.used)

    def _settle_one(self, batch: Batch) -> None:
        if batch is self._batch:
            self.settle()

    def settle(self) -> None:
        """Record what waits for it, before anything that ended later, and before anybody looks."""
        batch = self._batch
        if not batch.clients:
            return
        self._batch = Batch()
        batch.ids, batch.first, batch.since = self._ids, self._last_id + 1, time() - perf_counter()
        self._last_id += len(batch)
        self.metrics.count_batch(batch)
        if self._events is not None:
            self._events.add_batch(batch)
        if self._recent is not None:
            self._recent.add_batch(batch)
