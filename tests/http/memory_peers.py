"""A sidecar's HTTP side without sockets: bytes go in, and a strict broker looks at every byte that comes out."""

import asyncio
import re
from collections.abc import Callable, Iterable

from memory_transport import MemoryTransport, pieces, turns

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.server import HttpServer
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.pool import BrokerPool, Made
from pulsar_ingress_proxy.net.tls import BrokerTls
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

CONFIG = {
    "bindAddresses": ["http://127.0.0.1:8080"],
    "brokers": {"webServiceUrl": ["http://broker:8080"]},
    "ingresses": [
        {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external", "allowedListeners": ["partner"]}
    ],
    "lookupListenerName": "external",
    "advertisedListeners": [
        {
            "broker": "broker",
            "listeners": "internal:http://broker:8080,external:http://b.example.com,partner:http://p.example.com",
        }
    ],
}
SNAPSHOT = build(load_mapping(CONFIG))

_START = re.compile(rb"[A-Z-]+ [!-~]+ HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([^\r\n\0]*)")
_ONCE = (b"host", b"x-forwarded-for", b"x-forwarded-proto")
_NEVER = (b"x-original-principal", b"forwarded", b"x-forwarded-host", b"x-forwarded-port", b"te", b"keep-alive")


class StrictBroker:
    """One connection to a broker that accepts nothing but well-formed requests, one at a time."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self.transport = MemoryTransport(protocol, self.receive)
        self._received = b""
        self.requests: list[tuple[bytes, bytes]] = []
        """Start lines and bodies."""
        self.is_asked = False
        """Whether a whole request waits for its answer."""

    def receive(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        start, *lines = head.split(b"\r\n")
        body, rest = read_body(read_fields(start, lines), rest)
        if body is None:
            return
        assert not rest, f"after a whole request: {rest!r}"
        assert not self.is_asked, "a second request before the first is answered"
        self._received = b""
        self.requests.append((start, body))
        self.is_asked = True

    def answer(self, body: bytes = b"ok", *cuts: int) -> None:
        """Answer the request, in pieces."""
        for piece in pieces(self.begin_answer(body), cuts):
            self.send(piece)

    def begin_answer(self, body: bytes) -> bytes:
        """The answer to the request, to be sent."""
        start, _ = self.requests[-1]
        self.is_asked = False
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body * (start[:5] != b"HEAD "))

    def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.protocol.data_received(data)


def read_fields(start: bytes, lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """The fields of a head as the sidecar may send it."""
    assert _START.fullmatch(start), start
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        assert match, line
        fields.setdefault(match[1].lower(), []).append(match[2])
    for name in _ONCE:
        assert len(fields.get(name, ())) == 1, (name, fields)
    for name in _NEVER:
        assert name not in fields, fields
    assert len(fields.get(b"content-length", ())) + len(fields.get(b"transfer-encoding", ())) <= 1, fields
    assert fields[b"host"] == [b"broker:8080"]
    if start.startswith((b"GET /lookup/v2/topic/persistent/", b"HEAD /lookup/v2/topic/persistent/")):
        names = fields.get(b"x-pulsar-listenername", [])
        assert len(names) <= 1, names
        assert set(names) <= {b"external", b"partner"}, names
    return {name: values[0] for name, values in fields.items()}


def read_body(fields: dict[bytes, bytes], rest: bytes) -> tuple[bytes | None, bytes]:
    """The body and what follows it; None while it is incomplete."""
    if b"transfer-encoding" in fields:
        assert fields[b"transfer-encoding"] == b"chunked"
        body = b""
        while True:
            size, end, rest = rest.partition(b"\r\n")
            if not end:
                return None, b""
            assert re.fullmatch(rb"[0-9a-f]+", size), size
            length = int(size, 16)
            if len(rest) < length + 2:
                return None, b""
            assert rest[length : length + 2] == b"\r\n", rest[: length + 2]
            body, rest = body + rest[:length], rest[length + 2 :]
            if not length:
                return body, rest
    length = int(fields.get(b"content-length", b"0"))
    return (rest[:length], rest[length:]) if len(rest) >= length else (None, b"")


class MemoryBrokers(BrokerPool):
    """Connects to strict brokers."""

    def __init__(self) -> None:
        super().__init__(5, BrokerTls(SNAPSHOT.config))
        self.dialled: list[StrictBroker] = []

    async def dial(self, url: ServiceUrl, make: Callable[[], Made]) -> Made:
        assert str(url) == "http://broker:8080"
        protocol = make()
        self.dialled.append(StrictBroker(protocol))
        return protocol


class MemoryServer:
    """A server with one client. Created in a running event loop."""

    def __init__(self) -> None:
        self.brokers = MemoryBrokers()
        self._pool = ConnectionPool(self.brokers, 25)
        self.metrics = Metrics("")
        self._context = ServerContext(SNAPSHOT, self.brokers, Recorder(self.metrics))
        self._server = HttpServer(self._context, self._pool, SNAPSHOT.config.bind_addresses[0])
        self.client, self.received = self._server(), bytearray()
        self.transport = MemoryTransport(self.client, self.received.extend)

    @property
    def in_flight(self) -> float:
        return self._server.in_flight[0]

    def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.client.data_received(data)

    async def close(self) -> None:
        """The client leaves; nothing of it stays."""
        if not self.transport.is_closing():
            self.client.eof_received()
        self.transport.close()
        await turns()
        assert self.in_flight == 0, "a request did not end"
        assert self._context.buffers.used == 0, "a buffer was not given back"
        self._pool.close()
        await self._server.close(0)
        await turns()


async def exchange(sent: Iterable[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Send pieces as one client, and answer all. Returns the requests that brokers got, and all that the client got."""
    server = MemoryServer()
    for piece in sent:
        server.send(piece)
        await turns()
        while asked := [broker for broker in server.brokers.dialled if broker.is_asked]:
            for broker in asked:
                broker.answer()
            await turns()
    await server.close()
    return [request for broker in server.brokers.dialled for request in broker.requests], bytes(server.received)
