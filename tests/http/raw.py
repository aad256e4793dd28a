"""Both ends of the sidecar as bytes: clients and brokers that send exactly what a test says, and show what came."""

import asyncio
import random
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and its fields, as they came."""

    raw: bytes

    @property
    def start(self) -> bytes:
        return self.raw.partition(b"\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    @property
    def target(self) -> bytes:
        return self.start.split(b" ")[1]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        lines = self.raw.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
        return [(name.lower(), value) for name, value in (line.split(b": ", 1) for line in lines)]

    @property
    def names(self) -> list[bytes]:
        return [name for name, _ in self.fields]

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    def one(self, name: bytes) -> bytes:
        (value,) = self.all(name)
        return value


@dataclass(frozen=True, slots=True)
class Message:
    """A whole request or answer."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status


class Wire(asyncio.Protocol):
    """One end of a connection. Nothing is read but what a test takes, nothing sent but what it says."""

    def __init__(self, on_made: Callable[["Wire"], None] = lambda wire: None) -> None:
        self.buffer = bytearray()
        self.total = 0
        """Bytes that ever came."""
        self.ended = False
        self.error: Exception | None = None
        self._on_made = on_made
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # Sending.

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    async def send_slowly(self, data: bytes) -> None:
        """Send, and wait until the other side has taken most of it."""
        self.transport.write(data)
        await self._writable.wait()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # Receiving.

    async def take(self, size: int) -> bytes:
        """So many bytes."""
        await self._until(lambda: len(self.buffer) >= size)
        return self._cut(size)

    async def take_until(self, mark: bytes) -> bytes:
        await self._until(lambda: mark in self.buffer)
        return self._cut(self.buffer.index(mark) + len(mark))

    async def head(self) -> Head:
        return Head(await self.take_until(b"\r\n\r\n"))

    async def message(self, *, bodiless: bool = False) -> Message:
        """A head and the body that it announces; without any, an answer's body ends with the connection.

        The id that the sidecar gives each answer is left out.
        """
        head = Head(re.sub(rb"\r\nX-Request-Id: [0-9a-f]{12}-[0-9a-f]+(?=\r\n)", b"", (await self.head()).raw))
        is_request = head.start.endswith(b" HTTP/1.1")
        if bodiless or (is_request and not {b"content-length", b"transfer-encoding"} & {*head.names}):
            return Message(head, b"")
        if head.all(b"transfer-encoding"):
            assert head.all(b"transfer-encoding") == [b"chunked"]
            assert not head.all(b"content-length")
            return Message(head, await self.chunks())
        if head.all(b"content-length"):
            return Message(head, await self.take(int(head.one(b"content-length"))))
        return Message(head, await self.rest())

    async def chunks(self) -> bytes:
        body = b""
        while size := int(await self.take_until(b"\r\n"), 16):
            body += await self.take(size)
            assert await self.take(2) == b"\r\n"
        assert await self.take(2) == b"\r\n"
        return body

    async def rest(self) -> bytes:
        """Everything up to an orderly end."""
        await self.end()
        assert self.error is None, self.error
        return self._cut(len(self.buffer))

    async def end(self) -> None:
        """Wait until the other side has ended the connection, in whatever way."""
        while not self.ended:
            self._changed.clear()
            await self._changed.wait()

    def stall(self) -> None:
        self.transport.pause_reading()

    def resume(self) -> None:
        self.transport.resume_reading()

    def _cut(self, size: int) -> bytes:
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.ended:
                raise EOFError(f"the connection ended ({self.error!r}) after {bytes(self.buffer[:2000])!r}")
            self._changed.clear()
            await self._changed.wait()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.total += len(data)
        self._changed.set()

    def eof_received(self) -> bool:
        self.ended = True
        self._changed.set()
        return self.transport.get_extra_info("sslcontext") is None  # TLS has no half-open connections

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.error = exc
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class RawBroker:
    """A socket that accepts; its connections wait, in order, to be told what to do."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []
        self._accepted: asyncio.Queue[Wire] = asyncio.Queue()

    async def open(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Wire(self._made), "127.0.0.1", port, ssl=tls, reuse_address=True
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"

    async def accept(self) -> Wire:
        """The next connection."""
        return await self._accepted.get()

    async def answer(self, data: bytes = OK) -> Message:
        """Take one request on a new connection and answer it."""
        wire = await self.accept()
        request = await wire.message()
        wire.send(data)
        return request

    @property
    def untouched(self) -> bool:
        """Whether nobody has sent it a byte."""
        return not any(wire.total for wire in self.wires)

    async def close(self) -> None:
        """Refuse connections from now on, and end those there are."""
        self._server.close()
        for wire in self.wires:
            wire.transport.abort()

    def _made(self, wire: Wire) -> None:
        self.wires.append(wire)
        self._accepted.put_nowait(wire)


class Served:
    """A sidecar that runs, and how to reach it."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.port = sidecar.http_servers[0].port
        self.url = f"http://127.0.0.1:{self.port}"
        self.metrics_url = f"http://127.0.0.1:{sidecar.metrics_port}"
        self._wires: list[Wire] = []

    async def client(
        self,
        data: bytes = b"",
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        port: int | None = None,
    ) -> Wire:
        """A connection to the sidecar, with this sent already; over TLS, an empty server name is not sent."""
        _, wire = await asyncio.get_running_loop().create_connection(
            Wire, "127.0.0.1", self.port if port is None else port, ssl=tls, server_hostname=server_name
        )
        self._wires.append(wire)
        if data:
            wire.send(data)
        return wire

    async def ask(self, data: bytes) -> Message:
        """One request on a connection of its own."""
        wire = await self.client(data)
        message = await wire.message(bodiless=data.startswith(b"HEAD "))
        wire.close()
        return message

    def number(self, name: str, /, **labels: str) -> float:
        """A sample as /metrics shows it; 0 where it is not there."""
        return sum(value for sample, value in self.samples(name).items() if dict(sample).items() >= labels.items())

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        name = f"pulsar_ingress_{name}"
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in self.sidecar.metrics.collect()
            for sample in family.samples
            if sample.name == name
        }

    async def stop(self) -> None:
        for wire in self._wires:
            wire.transport.abort()
        await self.sidecar.stop()
        assert not self.sidecar._context.buffers.used, "what connections held was not given back"


Start = Callable[..., Awaitable[Served]]
"""`serving`, as the fixture `start` gives it: until the end of the test."""


@asynccontextmanager
async def serving(*brokers: str, **settings: Any) -> AsyncIterator[Served]:
    """A sidecar before these brokers; other settings by their names in the config."""
    config: dict[str, Any] = {
        "bindAddresses": ["http://127.0.0.1:0"],
        "metrics": {"address": "127.0.0.1:0"},
        "console": {"address": None},
        "brokers": {"webServiceUrl": list(brokers)},
        "drainSeconds": 0.05,
    }
    _merge(config, settings)
    sidecar = Sidecar(load_mapping(config))
    await sidecar.start()
    served = Served(sidecar)
    try:
        yield served
    finally:
        await served.stop()


def _merge(config: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _merge(config[key], value)
        else:
            config[key] = value


def unused_port() -> int:
    """A port that refuses connections; below those that the system gives to outgoing ones, or one might take it."""
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket() as closed, suppress(OSError):
            closed.bind(("127.0.0.1", port))
            return port
