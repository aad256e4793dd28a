"""Sessions of one sidecar without sockets. Each step is done to its end; what peers hear is held against the model."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from memory_session import MemorySidecar, inner
from memory_transport import turns
from session_model import Asked, SessionModel
from words import (
    METADATA_ERROR,
    PARTITIONS,
    SERVICE_NOT_READY,
    challenge,
    command,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    message,
    producer,
    redirect,
    send,
)

from pulsar_ingress_proxy.binary import pending_lookups

TURNS = 12
"""Turns of the event loop that a step needs at most."""
LONG = 31.0
"""Seconds; more than any timeout."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be set forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


class Sessions:
    """The sessions of one sidecar, which share its caches, its budget and its metrics."""

    def __init__(self, mode: str) -> None:
        self.loop = SkippingLoop()
        self.sidecar = self.loop.run_until_complete(self._start(mode))
        self.all: list[SessionModel] = []
        self.ended: Counter[tuple[str, int]] = Counter()
        """Of sessions that have left."""
        self._dialled = 0
        self._made = 0

    async def _start(self, mode: str) -> MemorySidecar:
        return MemorySidecar(mode)

    def run(self, session: SessionModel | None, do: Callable[..., None], *arguments: Any) -> None:
        """Do something with one session; then all that it leads to is done, and looked at."""

        async def in_loop() -> None:
            do(*arguments)
            await turns(TURNS)

        self.loop.run_until_complete(in_loop())
        while self._dialled < len(self.sidecar.brokers.dialled):
            assert session is not None
            session.dialled(self.sidecar.brokers.dialled[self._dialled])
            self._dialled += 1

    @property
    def here(self) -> list[SessionModel]:
        return [session for session in self.all if session.client.is_connected]

    def arrive(self) -> SessionModel:
        def begin() -> None:
            self.all.append(SessionModel(self.sidecar))

        self.run(None, begin)
        self.all[-1].client.unsent = connect()
        return self.all[-1]

    def let_in(self, session: SessionModel) -> None:
        self.run(session, session.client_sends)
        assert session.broker is not None
        session.broker.unsent = connected()
        self.run(session, session.broker_sends)

    def skip(self) -> None:
        """Every timeout passes."""
        self.loop.skipped += LONG

        def time_passes() -> None:
            for session in self.all:
                session.time_passes()

        with patch.object(pending_lookups, "perf_counter", self.loop.time):
            self.run(None, time_passes)

    def frame(self, what: str, request: int = 0) -> bytes:
        """What a client says. A frame that is not read, and the topic of a lookup, are like no other."""
        self._made += 1
        match what:
            case "partitions":
                return command(PARTITIONS, message(f1="t", f2=9))
            case "producer":
                return producer()
            case "passing":
                return send(b"%d" % self._made, self._made)
        listener = "internal" if what == "not allowed" else None
        return lookup(request, listener, topic=f"persistent://public/default/{self._made}")

    def check(self) -> None:
        for session in self.all:
            session.check_client()
            session.check_broker()
            session.check_elsewhere()
            session.check_end()
        in_flight = self.sidecar.metrics.in_flight.cell("binary")[0]
        assert in_flight == sum(len(session.open) for session in self.all)

    def leave(self) -> None:
        """All do; nothing of them stays."""
        for session in self.all:
            if session.client.is_connected:
                self.run(session, session.client_leaves)
            elif session.is_stalled:
                self.run(session, session.read_again)
            assert session.broker is None or not session.broker.is_connected
            self.ended += session.ended
        self.check()
        assert not any(session.open for session in self.all)
        assert self.sidecar.context.buffers.used == 0
        self.all = []

    def end(self) -> None:
        """All leave, and the sidecar ends. Each lookup was counted and recorded once, as it ended."""
        try:
            self.leave()
            sidecar, total = self.sidecar, self.ended.total()
            recorded = Counter((one["topic"], one["status"]) for one in sidecar.events.all if one["kind"] == "lookup")
            assert recorded == self.ended
            assert sidecar.number("requests_total", kind="lookup") == total
            assert sidecar.number("listener_hits_total") + sidecar.number("listener_misses_total") == total
            assert sidecar.number("connections", protocol="binary") == 0
            assert not any(broker.is_connected for broker in sidecar.brokers.dialled)
            self.loop.run_until_complete(sidecar.server.close(0))
            assert not asyncio.all_tasks(self.loop)
        finally:
            self.loop.close()


def answer(how: str, request: int, owner: int) -> bytes:
    if how == "failed":
        return failed(request, METADATA_ERROR, "later")
    return redirect(request, inner(owner)) if how == "redirect" else found(request, inner(owner))


def say_elsewhere(asked: Asked, how: str, owner: int) -> bool:
    """What the broker says next that a redirect led to, unless it is about to say something."""
    broker = asked.elsewhere
    assert broker is not None
    if not broker.unsent:
        if not asked.is_accepted:
            greetings = {"error": error(SERVICE_NOT_READY, "starting"), "challenge": challenge()}
            broker.unsent = greetings.get(how, connected())
        elif broker.waiting:
            ((number, request),) = broker.waiting
            broker.answer(number, answer(how, request, owner))
    return bool(broker.unsent)
