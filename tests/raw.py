"""Both ends of the sidecar as bytes: clients and brokers that send exactly what a test says, and show what came."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from running_sidecar import LOOPBACK, RunningSidecar, merged, running
from wires import ByteWire, WireServer

from pulsar_ingress_proxy.app.sidecar import Sidecar

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/x HTTP/1.1\r\nHost: pulsar\r\n\r\n"
PUT = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 5\r\n\r\nhello"
POST = PUT.replace(b"PUT", b"POST")
HANDSHAKE = (
    b"GET /ws/v2/producer/persistent/public/default/x HTTP/1.1\r\nHost: pulsar\r\nUpgrade: websocket\r\n"
    b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


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


def refusal_code(content_type: bytes, body: bytes) -> str:
    """The code of an answer of the sidecar's own: JSON `{"reason": "CODE: text"}`."""
    assert content_type == b"application/json", content_type
    ((name, reason),) = json.loads(body).items()
    code, colon, text = reason.partition(": ")
    assert (name, colon) == ("reason", ": "), reason
    assert text, reason
    return str(code)


@dataclass(frozen=True, slots=True)
class Message:
    """A whole request or answer."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def refusal(self) -> tuple[int, str]:
        """The status and code of an answer of the sidecar's own."""
        return self.status, refusal_code(self.head.one(b"content-type"), self.body)


class Wire(ByteWire):
    """One end of a connection that carries HTTP."""

    last: Head
    """The head that was read last."""

    async def head(self) -> Head:
        self.last = Head(await self.take_until(b"\r\n\r\n"))
        return self.last

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

    def eof_received(self) -> bool:
        """The other direction stays open, as HTTP may still answer there."""
        self.ended = True
        self._changed.set()
        return self.transport.get_extra_info("sslcontext") is None  # TLS has no half-open connections


class RawBroker(WireServer[Wire]):
    """A broker whose connections send what a test says."""

    schemes = ("http", "https")

    def __init__(self) -> None:
        super().__init__(Wire)
        self.was_asked = asyncio.Event()

    def _made(self, wire: Wire) -> None:
        wire.on_data = self.was_asked.set
        super()._made(wire)

    async def answer(self, data: bytes = OK) -> Message:
        """Take one request on a new connection and answer it."""
        wire = await self.accept()
        request = await wire.message()
        wire.send(data)
        return request


async def asked(*brokers: RawBroker) -> Wire:
    """The connection by which one of these brokers gets the next request: a new one, or one used before."""
    while not (found := [wire for broker in brokers for wire in broker.wires if wire.buffer]):
        for broker in brokers:
            broker.was_asked.clear()
        waiting = [asyncio.create_task(broker.was_asked.wait()) for broker in brokers]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
    (wire,) = found
    return wire


async def serve_all(broker: RawBroker, converse: Callable[[Wire], Awaitable[None]]) -> None:
    """Have this conversation on every connection, each until it ends or is ended, until cancelled."""

    async def serve(wire: Wire) -> None:
        with suppress(EOFError):
            await converse(wire)

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(serve(await broker.accept()))


async def answer_all(broker: RawBroker, answer: bytes | Callable[[Message], bytes] = OK) -> None:
    """Answer every request on every connection, until cancelled."""

    async def converse(wire: Wire) -> None:
        while True:
            request = await wire.message()
            wire.send(answer if isinstance(answer, bytes) else answer(request))

    await serve_all(broker, converse)


class Served(RunningSidecar):
    """A sidecar that runs, and how to reach it."""

    def __init__(self, sidecar: Sidecar) -> None:
        super().__init__(sidecar)
        self.port = sidecar.http_servers[0].port
        self.url = f"http://127.0.0.1:{self.port}"

    async def client(
        self,
        data: bytes = b"",
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        port: int | None = None,
    ) -> Wire:
        """A connection to the sidecar, with this sent already; over TLS, an empty server name is not sent."""
        wire = await self.dial(Wire, self.port if port is None else port, tls, server_name)
        if data:
            wire.send(data)
        return wire

    async def ask(self, data: bytes, port: int | None = None) -> Message:
        """One request on a connection of its own."""
        wire = await self.client(data, port=port)
        message = await wire.message(bodiless=data.startswith(b"HEAD "))
        wire.close()
        return message


Start = Callable[..., Awaitable[Served]]
"""`serving`, as the fixture `start` gives it: until the end of the test."""


class Begin(Protocol):
    """As the fixture `begin` gives it: the sidecar, and both ends of a request that the broker has to answer."""

    def __call__(self, data: bytes = GET, **settings: Any) -> Awaitable[tuple[Served, Wire, Wire]]: ...


class Exchange(Protocol):
    """As the fixture `exchange` gives it: what the broker got, and what the client."""

    def __call__(
        self, data: bytes = GET, answer: bytes = OK, **settings: Any
    ) -> Awaitable[tuple[Message, Message]]: ...


@asynccontextmanager
async def serving(*brokers: str, **settings: Any) -> AsyncIterator[Served]:
    """A sidecar before these brokers; other settings by their names in the config."""
    config = {
        **LOOPBACK,
        "bindAddresses": ["http://127.0.0.1:0"],
        "brokers": {"webServiceUrl": list(brokers)},
    }
    async with running(Served, merged(config, settings)) as served:
        yield served
