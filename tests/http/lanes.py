"""The short way of lookups, watched; and two sidecars before one broker, of which one has no short way."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from raw import OK, Head, RawBroker, Served, Wire, serving

from pulsar_ingress_proxy.http.client import ClientConnection
from pulsar_ingress_proxy.http.lane import Lane, Run
from pulsar_ingress_proxy.observability.access_record import AccessRecord, BriefRecord
from pulsar_ingress_proxy.observability.event_lines import line, origin

TIMES = 5
"""After so many lookups that are alike, the next goes the short way from end to end."""

END = b""
"""Among the pieces of an answer: the broker closes the connection."""

TOPIC = b"/lookup/v2/topic/persistent/t/n/"
HOST = b"pulsar.example.com"

_TURNS = 30
"""Turns of the loop without progress that are a standstill: everybody is in it, and a lookup takes ten."""
_OWN_ID = re.compile(rb"(?<=\r\nX-Request-Id: )[0-9a-f]{12}-[0-9a-f]+(?=\r\n)")
_VARIES = {"id", "time", "durationMs", "upstreamMs"}

Says = Callable[[Head], Sequence[bytes]]
"""The pieces of an answer."""


def lookup(topic: bytes = b"x", *fields: bytes, host: bytes = HOST) -> bytes:
    return b"\r\n".join((b"GET %b%b HTTP/1.1" % (TOPIC, topic), b"Host: " + host, *fields)) + b"\r\n\r\n"


def says(status: bytes, *fields: bytes, body: bytes = b"") -> bytes:
    """A broker's answer with a length."""
    lines = (b"HTTP/1.1 " + status, *fields, b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def moved(location: bytes, status: bytes = b"307 Temporary Redirect") -> bytes:
    return says(status, b"Location: " + location)


def book(url: str) -> dict[str, Any]:
    """Two ingresses, and three brokers: the first is at this URL, and the last has no address outside."""
    outside = (
        "external:https://broker-{n}.pulsar.example.com,external:pulsar+ssl://broker-{n}.pulsar.example.com:6651,"
        "partner:http://b{n}.partner.example:8080,partner:pulsar://b{n}.partner.example:6650"
    )
    addresses = {
        0: f"{url},{outside}",
        1: f"http://broker-1.pulsar.svc:8080,{outside}",
        9: "http://broker-9.pulsar.svc",
    }
    return {
        "ingresses": [
            {"name": "public", "hosts": ["pulsar.example.com", "*.pulsar.example.com"], "listener": "external"},
            {"name": "partners", "hosts": ["partner.example"], "listener": "partner"},
        ],
        "advertisedListeners": [
            {"broker": f"broker-{n}.pulsar.svc", "listeners": f"internal:{urls}".replace("{n}", str(n))}
            for n, urls in addresses.items()
        ],
        "redirects": {"peers": ["*.peer.example"]},
    }


@dataclass
class Taken:
    """How many lookups went the short way: so far as being asked, and to the end."""

    begun: int = 0
    known: int = 0


def watch(patch: pytest.MonkeyPatch) -> Taken:
    """Count from now on."""
    taken, begin, heard = Taken(), Lane.begin, Run.heard

    def counted_begin(lane: Lane, client: ClientConnection, data: bytes) -> Run | None:
        run = begin(lane, client, data)
        taken.begun += run is not None
        return run

    def counted_heard(run: Run, data: bytes) -> bool:
        known = heard(run, data)
        taken.known += known
        return known

    patch.setattr(Lane, "begin", counted_begin)
    patch.setattr(Run, "heard", counted_heard)
    return taken


async def turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Answering(RawBroker):
    """Answers every request at once, in the pieces that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.says: Says = lambda head: (OK,)
        self.asked: list[bytes] = []
        self.busy = 0
        """Answers that have begun and not ended."""
        self._conversations: list[asyncio.Task[None]] = []

    def _made(self, wire: Wire) -> None:
        super()._made(wire)
        self._conversations.append(asyncio.get_running_loop().create_task(self._converse(wire)))

    async def _converse(self, wire: Wire) -> None:
        with suppress(EOFError):
            while True:
                request = await wire.message()
                self.asked.append(request.head.raw + request.body)
                self.busy += 1
                for place, piece in enumerate(self.says(request.head)):
                    if place:
                        await turns()
                    if piece == END:
                        wire.close()
                    elif not wire.ended:
                        wire.send(piece)
                self.busy -= 1

    @property
    def total(self) -> int:
        return sum(wire.total for wire in self.wires)


@asynccontextmanager
async def answering(broker: Answering | None = None) -> AsyncIterator[Answering]:
    broker = broker or Answering()
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@dataclass(frozen=True)
class Seen:
    """All that shows of what a sidecar did."""

    asked: list[bytes]
    """Requests that the broker got, in order."""
    connections: int
    """Those that were made for them."""
    answered: list[bytes]
    """What each client got, but for the ids of requests."""
    ended: list[bool]
    events: list[dict[str, Any]]
    counts: dict[str, float]


class Recorded(list[dict[str, Any]]):
    """Events, in the place of the log."""

    def add(self, record: AccessRecord | BriefRecord) -> None:
        self.append(json.loads(line(record, origin("pulsar", "sidecar"))))


@dataclass
class Side:
    """One of the two sidecars."""

    served: Served
    broker: Answering
    clients: list[Wire] = field(default_factory=list)
    events: Recorded = field(default_factory=Recorded)

    async def play(self, pieces: Sequence[bytes]) -> None:
        """Send these on a connection of its own, each when all that came of the one before is over."""
        client = await self.served.client()
        self.clients.append(client)
        await turns()  # aiohttp waits for a request only then
        for piece in pieces:
            client.send(piece)
            last, still = (-1, -1, -1.0), 0
            while still < _TURNS or self.broker.busy or (self._in_flight and still < 10 * _TURNS):
                now = (client.total, self.broker.total, self._in_flight)
                last, still = now, still + 1 if now == last else 0
                await asyncio.sleep(0)

    @property
    def _in_flight(self) -> float:
        return self.served.sidecar.metrics.in_flight.values["http",]

    def seen(self, connections: int) -> Seen:
        answered = [bytes(client.buffer) for client in self.clients]
        for event in self.events:
            event["told"] = any(str(event["id"]).encode() in data for data in answered)
        samples = [sample for family in self.served.sidecar.metrics.collect() for sample in family.samples]
        return Seen(
            self.broker.asked,
            connections,
            [_OWN_ID.sub(b"?", data) for data in answered],
            [client.ended for client in self.clients],
            [{key: value for key, value in event.items() if key not in _VARIES} for event in self.events],
            {
                f"{sample.name}{sample.labels}": sample.value
                for sample in samples
                if not sample.name.endswith(("_bucket", "_sum")) and "event_loop" not in sample.name
            },
        )


class Twins:
    """Two sidecars that differ in nothing but the short way."""

    def __init__(self, sides: tuple[Side, Side], taken: Taken) -> None:
        self._sides = sides
        self.taken = taken

    async def alike(self, *pieces: bytes, says: Says | None = None) -> Seen:
        """Have one conversation with each of them, and see the same."""
        seen = []
        for side in self._sides:
            broker = side.broker
            broker.asked = []
            broker.says = says or broker.says
            before = len(broker.wires)
            await side.play(pieces)
            seen.append(side.seen(len(broker.wires) - before))
            assert not any(wire.buffer for wire in broker.wires), "a broker got what is no request"
        with_lane, without = seen
        assert with_lane == without
        return with_lane


@asynccontextmanager
async def twins(**settings: Any) -> AsyncIterator[Twins]:
    async with answering() as broker:
        settings = {**book(broker.url), **settings}
        async with serving(broker.url, **settings) as with_lane, serving(broker.url, **settings) as without:
            sides = Side(with_lane, broker), Side(without, broker)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(asyncio.get_running_loop(), "getaddrinfo", _resolve)
                for side in sides:
                    patch.setattr(side.served.sidecar._context.recorder, "_events", side.events)
                for door in without.sidecar.http_servers:
                    patch.setattr(door, "begin_alike", lambda client, data: None)
                yield Twins(sides, watch(patch))


async def _resolve(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
    """A resolver without a thread, whose turns nobody could count."""
    if host != "127.0.0.1":
        raise socket.gaierror(f"nobody is called {host}")
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
