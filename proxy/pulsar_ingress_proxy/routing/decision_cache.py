"""The cache of decisions under one snapshot. It is dropped with the snapshot."""

from collections.abc import Hashable
from typing import TypeVar

from pulsar_ingress_proxy.memory import DECISION_CACHE, DECISION_ENTRY, DECISION_LONGEST, DECISION_TEXT
from pulsar_ingress_proxy.routing.answers import LookupAnswer, put_on_listener
from pulsar_ingress_proxy.routing.requests import set_listener_name
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Networks

Answer = TypeVar("Answer")


class DecisionCache:
    """A snapshot and the decisions made under it. Hosts, listeners and brokers are few, so most requests hit the cache.

    Keys are tuples. Clients and brokers choose parts of them, so long keys are not cached, and the cache is cleared
    when it reaches its limit in bytes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.config = snapshot.config
        self.trusted_proxies = Networks(snapshot.config.trusted_proxies)
        self._answers: dict[Hashable, object] = {}
        self.counted_bytes = 0
        """An upper bound of the bytes that the cached decisions take."""
        self.get = self._answers.get
        """The cached value for a key, or None."""

    def keep(self, question: tuple[Hashable, ...], answer: Answer, more: int = 0) -> Answer:
        """Cache a value; `more` counts characters that are not in the key's own strings."""
        length = more + sum([len(part) for part in question if isinstance(part, str | bytes)])
        if length <= DECISION_LONGEST:
            self.counted_bytes += DECISION_ENTRY + DECISION_TEXT * length
            if self.counted_bytes > DECISION_CACHE:
                self._answers.clear()
                self.counted_bytes = DECISION_ENTRY + DECISION_TEXT * length
            self._answers[question] = answer
        return answer

    def query_with(self, query: str, listener: str | None) -> str:
        """A query with this `listenerName`, or without one for None; few queries have anything but that."""
        question = ("query", query, listener)
        found = self.get(question)
        return found if isinstance(found, str) else self.keep(question, set_listener_name(query, listener), len(query))

    def on_listener(self, body: bytes, listener: str) -> LookupAnswer:
        """A lookup's answer rewritten to a listener; a broker sends the same body for all its topics."""
        question = (body, listener)
        found = self.get(question)
        if isinstance(found, LookupAnswer):
            return found
        return self.keep(question, put_on_listener(body, listener, self.snapshot))
