"""Conversations as playbooks: lines of who says and who hears what, played against a sidecar over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, Literal

from running_sidecar import LOOPBACK, RunningSidecar, merged, running
from wires import ByteWire, WireServer
from words import connect, connected, found, lookup, ping, pong, redirect

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.observability.outcome import Outcome

Who = Literal["client", "broker", "again", "other"]


class FrameWire(ByteWire):
    """One end of a connection that carries frames."""

    async def hear(self) -> bytes:
        """The next frame."""
        await self._until(lambda: len(self.buffer) >= 4)
        return await self.take(4 + int.from_bytes(self.buffer[:4]))


class ScriptedBroker(WireServer[FrameWire]):
    """A broker whose connections say what a test says."""

    schemes = ("pulsar", "pulsar+ssl")

    def __init__(self, name: str) -> None:
        super().__init__(FrameWire)
        self.name = name

    def inner(self, scheme: str = "pulsar") -> str:
        """What it calls itself."""
        return f"{scheme}://{self.name}.pulsar.svc.cluster.local:{6650 if scheme == 'pulsar' else 6651}"

    def outer(self, scheme: str = "pulsar", listener: str = "external") -> str:
        """How clients reach it."""
        return f"{scheme}://{self.name}.{listener}.example:{6650 if scheme == 'pulsar' else 6651}"

    def line(self, *listeners: str) -> dict[str, str]:
        """Its line of the address book: dialled where it listens."""
        urls = [f"internal:{self.url}"]
        urls += [f"{listener}:{self.outer(scheme, listener)}" for listener in listeners for scheme in self.schemes]
        return {"broker": f"{self.name}.pulsar.svc.cluster.local", "listeners": ",".join(urls)}


@dataclass(frozen=True, slots=True)
class Line:
    who: Who
    what: Literal["says", "hears", "ends", "leaves"]
    frame: bytes = b""


class Role:
    def __init__(self, who: Who) -> None:
        self._who: Who = who

    def says(self, frame: bytes) -> Line:
        return Line(self._who, "says", frame)

    def hears(self, frame: bytes) -> Line:
        return Line(self._who, "hears", frame)

    @property
    def leaves(self) -> Line:
        """It ends its connection."""
        return Line(self._who, "leaves")

    @property
    def is_left(self) -> Line:
        """Its connection ends, without another word."""
        return Line(self._who, "ends")


CLIENT, BROKER, OTHER = Role("client"), Role("broker"), Role("other")
AGAIN = Role("again")
"""The broker, on a second connection."""


def hello(frame: bytes | None = None, *, to: Role = BROKER) -> tuple[Line, ...]:
    """A client's CONNECT, which a broker gets as it is and accepts."""
    said = connect() if frame is None else frame
    return (CLIENT.says(said), to.hears(said), to.says(connected()), CLIENT.hears(connected()))


HELLO = hello()
"""How most conversations begin."""

KEEPALIVE = (CLIENT.says(ping()), BROKER.hears(ping()), BROKER.says(pong()), CLIENT.hears(pong()))
"""The connections of both sides are there."""

FOLLOW = {"lookup": "follow"}
"""The key `redirects` with which the sidecar follows a broker's redirect itself."""


def looked_up(request: int, listener: str | None = "external") -> tuple[Line, ...]:
    """A lookup that names no listener, and as which it comes to the broker."""
    return (CLIENT.says(lookup(request)), BROKER.hears(lookup(request, listener)))


def redirected(request: int, to: ScriptedBroker) -> tuple[Line, ...]:
    """A lookup, and the broker's redirect to another, by the name that this one calls itself."""
    return (*looked_up(request), BROKER.says(redirect(request, to.inner())))


def followed(request: int) -> tuple[Line, ...]:
    """The sidecar follows a redirect: the other broker accepts it in the client's name, and gets the lookup."""
    return (
        OTHER.hears(connect()),
        OTHER.says(connected()),
        OTHER.hears(lookup(request, "external", authoritative=True)),
    )


def answered(request: int, owner: ScriptedBroker, *, by: Role = BROKER) -> tuple[Line, ...]:
    """A broker names a topic's owner as it calls itself, and the client hears its addresses on `external`."""
    return (
        by.says(found(request, owner.inner())),
        CLIENT.hears(found(request, owner.outer(), owner.outer("pulsar+ssl"))),
    )


class Stage(RunningSidecar):
    """A sidecar before two brokers, and those who speak to it."""

    def __init__(self, sidecar: Sidecar, broker: ScriptedBroker, other: ScriptedBroker) -> None:
        super().__init__(sidecar)
        self.brokers = {"broker": broker, "other": other}
        self.wires: dict[Who, FrameWire] = {}
        self.records: list[tuple[bool, dict[str, Any]]] = []
        """Whether each took the slow path, and its event."""

    @property
    def port(self) -> int:
        return self.sidecar.binary_servers[0].port

    @property
    def client(self) -> FrameWire:
        return self.wires["client"]

    @property
    def broker(self) -> FrameWire:
        return self.wires["broker"]

    async def connect(self, tls: SSLContext | None = None, server_name: str | None = None, bind: int = 0) -> FrameWire:
        """Another client, to this one of the bind addresses; it is the one that speaks from now on."""
        wire = await self.dial(FrameWire, self.sidecar.binary_servers[bind].port, tls, server_name)
        self.wires = {"client": wire}
        return wire

    async def play(self, *lines: Line) -> None:
        """All lines in their order. A broker comes on stage with the first connection that it gets."""
        for number, line in enumerate(lines):
            try:
                async with asyncio.timeout(10):
                    await self._play(line)
            except (AssertionError, EOFError, TimeoutError) as fault:
                raise AssertionError(f"line {number}: {line.who} {line.what}: {fault or 'nothing'}") from fault

    async def _play(self, line: Line) -> None:
        wire = await self._wire(line.who)
        match line.what:
            case "says":
                wire.send(line.frame)
            case "hears":
                assert await wire.hear() == line.frame
            case "leaves":
                wire.close()
            case "ends":
                assert await wire.end() == b""

    async def _wire(self, who: Who) -> FrameWire:
        if who not in self.wires:
            broker = self.brokers["broker" if who == "again" else who] if who != "client" else None
            self.wires[who] = await (broker.accept() if broker is not None else self.connect())
        return self.wires[who]

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the event log would have been given."""
        return [event for is_long, event in self.records if is_long]

    async def reload(self, **keys: Any) -> None:
        """Put the config of `staged` in force, with these keys in place of its own."""
        await self.sidecar.reload(load_mapping({**_config(**self.brokers), **keys}))


Start = Callable[..., Awaitable[Stage]]


def _config(broker: ScriptedBroker, other: ScriptedBroker) -> dict[str, Any]:
    return {
        **LOOPBACK,
        "bindAddresses": ["external:pulsar://127.0.0.1:0"],
        "console": {"address": "127.0.0.1:0"},
        "brokers": {"brokerServiceUrl": [broker.url]},
        "advertisedListeners": [one.line("external", "partner") for one in (broker, other)],
    }


@asynccontextmanager
async def staged(broker: ScriptedBroker, other: ScriptedBroker, **keys: Any) -> AsyncIterator[Stage]:
    """A sidecar with one plain socket for `external`, before the first of two brokers that are both known."""
    config = merged(_config(broker, other), keys)
    async with running(lambda sidecar: Stage(sidecar, broker, other), config) as stage:
        recorder = stage.sidecar._context.recorder
        add = recorder.add

        def overhear(outcome: Outcome, *request: Any) -> None:
            add(outcome, *request)
            if (recent := recorder._recent) is not None:
                newest = max(ring[-1] for ring in recent._rings.values() if ring)
                stage.records.append((type(outcome) is Outcome, json.loads(newest.line)))

        recorder.add = overhear  # type: ignore[assignment, method-assign]
        yield stage
