"""Conversations as playbooks: lines of who says and who hears what, played against a sidecar over real sockets."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, Literal, cast

from words import connect, connected

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.batches import Batch
from pulsar_ingress_proxy.observability.event_lines import event

Who = Literal["client", "broker", "other"]
LISTENERS = ("internal", "external", "partner")


class Wire(asyncio.Protocol):
    """One end of a connection, which hears frames."""

    def __init__(self, on_made: Callable[["Wire"], None] = lambda wire: None) -> None:
        self.buffer = bytearray()
        self.total = 0
        self.ended = False
        self._on_made = on_made
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def say(self, data: bytes) -> None:
        self.transport.write(data)

    async def say_slowly(self, data: bytes) -> None:
        """And wait until most of it is taken."""
        self.transport.write(data)
        await self._writable.wait()

    async def hear(self) -> bytes:
        """The next frame."""
        (size,) = struct.unpack("!I", await self._peek(4))
        return await self.take(4 + size)

    async def take(self, size: int) -> bytes:
        data = await self._peek(size)
        del self.buffer[:size]
        return data

    async def _peek(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if self.ended:
                raise EOFError(f"the connection has ended after {bytes(self.buffer)!r}")
            await self._change()
        return bytes(self.buffer[:size])

    async def end(self) -> bytes:
        """Wait for the end; what came before it."""
        while not self.ended:
            await self._change()
        return bytes(self.buffer)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.total += len(data)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class ScriptedBroker:
    """A socket whose connections say what a test says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wires: list[Wire] = []
        self._accepted: asyncio.Queue[Wire] = asyncio.Queue()

    async def open(self, tls: SSLContext | None = None) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Wire(self._made), "127.0.0.1", 0, ssl=tls, reuse_address=True
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"pulsar{'' if tls is None else '+ssl'}://127.0.0.1:{self.port}"

    def _made(self, wire: Wire) -> None:
        self.wires.append(wire)
        self._accepted.put_nowait(wire)

    async def accept(self) -> Wire:
        return await self._accepted.get()

    def refuse(self) -> None:
        """Take no connections from now on."""
        self._server.close()

    async def close(self) -> None:
        self._server.close()
        for wire in self.wires:
            wire.abort()

    def inner(self, scheme: str = "pulsar") -> str:
        """What it calls itself."""
        return f"{scheme}://{self.name}.pulsar.svc.cluster.local:{6650 if scheme == 'pulsar' else 6651}"

    def outer(self, scheme: str = "pulsar", listener: str = "external") -> str:
        """How clients reach it."""
        return f"{scheme}://{self.name}.{listener}.example:{6650 if scheme == 'pulsar' else 6651}"

    def line(self, *listeners: str) -> dict[str, str]:
        """Its line of the address book: dialled where it listens."""
        schemes = ("pulsar", "pulsar+ssl")
        urls = [f"internal:{self.url}"]
        urls += [f"{listener}:{self.outer(scheme, listener)}" for listener in listeners for scheme in schemes]
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

HELLO = (CLIENT.says(connect()), BROKER.hears(connect()), BROKER.says(connected()), CLIENT.hears(connected()))
"""How most conversations begin."""


class Stage:
    """A sidecar before two brokers, and those who speak to it."""

    def __init__(self, sidecar: Sidecar, broker: ScriptedBroker, other: ScriptedBroker) -> None:
        self.sidecar = sidecar
        self.brokers = {"broker": broker, "other": other}
        self.wires: dict[Who, Wire] = {}
        self.records: list[AccessRecord | Batch] = []
        self._all: list[Wire] = []

    @property
    def port(self) -> int:
        return self.sidecar.binary_servers[0].port

    @property
    def client(self) -> Wire:
        return self.wires["client"]

    @property
    def broker(self) -> Wire:
        return self.wires["broker"]

    async def connect(self, tls: SSLContext | None = None, server_name: str | None = None, door: int = 0) -> Wire:
        """Another client; it is the one that speaks from now on."""
        _, wire = await asyncio.get_running_loop().create_connection(
            Wire, "127.0.0.1", self.sidecar.binary_servers[door].port, ssl=tls, server_hostname=server_name
        )
        self._all.append(wire)
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
                wire.say(line.frame)
            case "hears":
                assert await wire.hear() == line.frame
            case "leaves":
                wire.close()
            case "ends":
                assert await wire.end() == b""

    async def _wire(self, who: Who) -> Wire:
        if who not in self.wires:
            self.wires[who] = await (self.brokers[who].accept() if who != "client" else self.connect())
        return self.wires[who]

    def number(self, name: str, /, **labels: str) -> float:
        """A sample as /metrics shows it; 0 where it is not there."""
        name = f"pulsar_ingress_{name}"
        return sum(
            sample.value
            for family in self.sidecar.metrics.collect()
            for sample in family.samples
            if sample.name == name and sample.labels.items() >= labels.items()
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the event log would have been given."""
        return [event(record, "pulsar", "sidecar") for record in self.records if isinstance(record, AccessRecord)]

    async def stop(self) -> None:
        for wire in self._all:
            wire.abort()
        await self.sidecar.stop()
        assert not self.sidecar._context.buffers.used, "what sessions held was not given back"


Start = Callable[..., Awaitable[Stage]]


@asynccontextmanager
async def staged(broker: ScriptedBroker, other: ScriptedBroker, **keys: Any) -> AsyncIterator[Stage]:
    """A sidecar with one plain socket for `external`, before the first of two brokers that are both known."""
    config: dict[str, Any] = {
        "bindAddresses": ["external:pulsar://127.0.0.1:0"],
        "metrics": {"address": "127.0.0.1:0"},
        "console": {"address": "127.0.0.1:0"},
        "brokers": {"brokerServiceUrl": [broker.url]},
        "advertisedListeners": [one.line("external", "partner") for one in (broker, other)],
        "drainSeconds": 0.05,
    }
    for key, value in keys.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) else value
    sidecar = Sidecar(load_mapping(config))
    await sidecar.start()
    stage = Stage(sidecar, broker, other)
    recorder = sidecar._context.recorder
    write = recorder.record

    def overhear(record: AccessRecord) -> None:
        stage.records.append(record)
        write(record)

    recorder.record = overhear  # type: ignore[method-assign]
    try:
        yield stage
    finally:
        await stage.stop()
