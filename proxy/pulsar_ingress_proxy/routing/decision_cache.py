"""The one cache: what was decided by a snapshot, for the next request that asks the same. Dropped with the snapshot."""

from collections.abc import Hashable
from typing import TypeVar

from pulsar_ingress_proxy.memory import DECISION_CACHE, DECISION_ENTRY, DECISION_LONGEST, DECISION_TEXT
from pulsar_ingress_proxy.routing.answers import LookupAnswer, put_on_listener
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Networks

Answer = TypeVar("Answer")


class DecisionCache:
    """A snapshot, and answers to questions about it. Hosts, listeners and brokers are few, so most are known already.

    A question is a tuple. Clients and brokers choose what some of them hold, so long ones are answered each time, and
    all are forgotten when they take up more bytes than they may.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.config = snapshot.config
        self.trusted_proxies = Networks(snapshot.config.trusted_proxies)
        self._answers: dict[Hashable, object] = {}
        self._bytes = 0
        self.get = self._answers.get
        """The answer that `keep` was given for a question, or None."""

    def keep(self, question: tuple[Hashable, ...], answer: Answer, more: int = 0) -> Answer:
        """Keep an answer; `more` are characters in it or in the question that do not stand in the question itself."""
        length = more + sum([len(part) for part in question if isinstance(part, str | bytes)])
        if length <= DECISION_LONGEST:
            self._bytes += DECISION_ENTRY + DECISION_TEXT * length
            if self._bytes > DECISION_CACHE:
                self._answers.clear()
                self._bytes = DECISION_ENTRY + DECISION_TEXT * length
            self._answers[question] = answer
        return answer

    def on_listener(self, body: bytes, listener: str) -> LookupAnswer:
        """A lookup's answer put on a listener; the owner's is the same for all its topics."""
        question = (body, listener)
        found = self.get(question)
        if isinstance(found, LookupAnswer):
            return found
        return self.keep(question, put_on_listener(body, listener, self.snapshot))
