"""Decisions that were made by one snapshot, kept for the next request that asks the same. Dropped with the snapshot."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

from pulsar_ingress_proxy.memory import DECISIONS, FORWARDED_CLIENTS, LOOKUP_ANSWERS
from pulsar_ingress_proxy.routing.answers import LookupAnswer, put_on_listener
from pulsar_ingress_proxy.routing.decisions import Decision, decide
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import forwarded_client

Answer = TypeVar("Answer")


class DecisionCache:
    """A snapshot, and what was decided by it. Ingresses, hosts and answers are few, so most is decided already."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.config = snapshot.config
        self._answers: dict[Hashable, object] = {}
        self._requests: dict[tuple[object, ...], tuple[Request, Decision]] = {}

        @lru_cache(LOOKUP_ANSWERS.entries)
        def remembered(body: bytes, listener: str) -> LookupAnswer:
            return put_on_listener(body, listener, snapshot)

        self._lookup_answer = remembered

        @lru_cache(FORWARDED_CLIENTS.entries)
        def forwarded(forwarded_for: bytes) -> str | None:
            return forwarded_client(forwarded_for, snapshot.config.trusted_proxies)

        self._forwarded = forwarded

    def get(self, question: tuple[Hashable, ...]) -> object:
        """The answer that `keep` was given for this question, or None."""
        return self._answers.get(question)

    def keep(self, question: tuple[Hashable, ...], answer: Answer) -> Answer:
        """Keep the answer to a short question; questions come from clients and brokers."""
        if sum(len(part) for part in question if isinstance(part, str | bytes)) > DECISIONS.longest:
            return answer
        if len(self._answers) >= DECISIONS.entries:
            self._answers.clear()
        self._answers[question] = answer
        return answer

    def decide(self, key: tuple[object, ...], read: Callable[[], tuple[Request, int]]) -> tuple[Request, Decision]:
        """The request with this key, and what is decided about it.

        `read` gives the request and the size of the texts of a client's that are in it and in its key.
        """
        known = self._requests.get(key)
        if known is None:
            request, size = read()
            known = (request, decide(request, self.snapshot))
            if size <= DECISIONS.longest:
                if len(self._requests) >= DECISIONS.entries:
                    self._requests.clear()
                self._requests[key] = known
        return known

    def on_listener(self, body: bytes, listener: str) -> LookupAnswer:
        """A lookup's answer put on a listener; the owner's is the same for all its topics."""
        if len(body) + len(listener) > LOOKUP_ANSWERS.longest:
            return put_on_listener(body, listener, self.snapshot)
        return self._lookup_answer(body, listener)

    def forwarded_client(self, forwarded_for: bytes) -> str | None:
        """The client's address by a trusted proxy's X-Forwarded-For."""
        if len(forwarded_for) > FORWARDED_CLIENTS.longest:
            return forwarded_client(forwarded_for, self.config.trusted_proxies)
        return self._forwarded(forwarded_for)
