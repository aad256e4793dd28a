"""Both ends of the soak test: brokers that answer, redirect, fail, are late or disconnect, and clients that do so too.

A seed decides what happens. Every request over HTTP states in a header what its body is, so that the brokers
see whether requests were mixed up on the way.
"""

import asyncio
import json
import random
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from zlib import crc32

from aiohttp.typedefs import Handler
from aiohttp.web import Request, Response, StreamResponse

from bench.binary_ends import CONNECT, CONNECTED, LOOKUP, LOOKUP_RESPONSE, Frames, connect
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connected, Lookup, LookupResponse
from pulsar_ingress_proxy.binary.frames import write
from pulsar_ingress_proxy.demo.brokers import DemoCluster

HOST = "pulsar.example.com"
INSIDE = ".svc.cluster.local"
MARK = "X-Soak"
BROKERS = 3
SECONDS = 30
"""Seconds that a client waits for one answer. No broker takes a tenth of that."""
REDIRECT, FOUND, FAILED = 0, 1, 2  # LookupType of PulsarApi.proto
SERVICE_NOT_READY = 6
_KIND = 9  # offset of the type in a frame


@dataclass(slots=True)
class Tally:
    """What both ends saw, for the verdict."""

    attempted: int = 0
    """Lookups of which at least a byte was sent."""
    answered: int = 0
    """Lookups with a complete answer."""
    others: int = 0
    sessions: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """Wrong answers, and requests that reached a broker altered."""
    cut: int = 0
    """Connections that ended before an answer that a client waited for."""
    hung_up: int = 0
    """Brokers that ended a connection in the middle of an answer, or one that belongs to a client."""


# Brokers


@asynccontextmanager
async def brokers(dice: random.Random, tally: Tally) -> AsyncIterator[tuple[DemoCluster, list[int]]]:
    """The cluster for HTTP, and the port of each broker for the binary protocol."""

    async def serve(request: Request, handler: Handler) -> StreamResponse:
        if request.headers.get(MARK) != mark(await request.read()):
            tally.wrong[f"a broker got another request than was sent: {request.method}"] += 1
        try:
            return await _fate(request, handler)
        except ConnectionError:  # the sidecar disconnected, as its client did
            return Response()

    async def _fate(request: Request, handler: Handler) -> StreamResponse:
        roll = dice.random()
        if roll < 0.75:
            return await handler(request)
        if roll < 0.83:
            return await _in_pieces(request, handler)
        if roll < 0.89:
            await asyncio.sleep(dice.uniform(0.001, 0.02))
            return await handler(request)
        if roll < 0.93:
            return Response(status=dice.choice((500, 503)), body=b'{"reason":"soak"}', content_type="application/json")
        if roll < 0.96:
            return await _dies(request, handler)
        if roll < 0.98 and request.path.startswith("/admin/v2/brokers"):
            tally.hung_up += 1
            return await _dies(request, handler, after=1)
        location = f"http://{dice.choice(cluster.brokers).name}:8080{request.rel_url.raw_path_qs}"
        return Response(status=307, headers={"Location": location})

    async with DemoCluster({"external": HOST}) as cluster:
        for broker in cluster.brokers:
            broker.intercept = serve
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(lambda: BinaryBroker(dice, tally), "127.0.0.1", 0, backlog=1024)
            for _ in range(BROKERS)
        ]
        try:
            yield cluster, [server.sockets[0].getsockname()[1] for server in servers]
        finally:
            for server in servers:
                server.close()


async def _in_pieces(request: Request, handler: Handler) -> StreamResponse:
    whole = await handler(request)
    if not isinstance(whole, Response) or not isinstance(whole.body, bytes) or len(whole.body) < 2:
        return whole
    answer = StreamResponse(status=whole.status, headers=whole.headers)
    if len(whole.body) % 2:
        answer.content_length = len(whole.body)
    else:
        answer.enable_chunked_encoding()
    await answer.prepare(request)
    half = len(whole.body) // 2
    for piece in (whole.body[:half], whole.body[half:]):
        await answer.write(piece)
        await asyncio.sleep(0.002)
    return answer


async def _dies(request: Request, handler: Handler, after: int | None = None) -> StreamResponse:
    """The connection ends after so many bytes of the body, or before any answer."""
    whole = await handler(request)
    assert isinstance(whole, Response)
    body = whole.body if isinstance(whole.body, bytes) else b""
    partial = StreamResponse(status=whole.status, headers=whole.headers)
    partial.content_length = len(body)
    if after is not None:
        await partial.prepare(request)
        await partial.write(body[:after])
    if request.transport is not None:
        request.transport.close()
    return partial


def inside(broker: int) -> str:
    return f"pulsar-broker-{broker}.pulsar-broker.pulsar{INSIDE}"


class BinaryBroker(Frames):
    """One connection: answers CONNECT, and lookups at random."""

    def __init__(self, dice: random.Random, tally: Tally) -> None:
        super().__init__()
        self._dice, self._tally = dice, tally
        self._held: bytes | None = None
        """Frames that wait until the second piece of an answer is sent; None: nothing is being sent."""

    def heard(self, frame: bytes) -> None:
        if frame[_KIND] == CONNECT:
            self._say(write(Command(type=CONNECTED, connected=Connected(server_version=b"soak"))))
        elif frame[_KIND] == LOOKUP:
            self._answer(Command.FromString(frame[8:]).lookup.request_id)

    def _answer(self, number: int) -> None:
        roll, url = self._dice.random(), f"pulsar://{inside(self._dice.randrange(BROKERS))}:6650".encode()
        if roll < 0.005:
            self._tally.hung_up += 1
            self.transport.abort()
            return
        if roll < 0.04:
            said = LookupResponse(response=FAILED, request_id=number, error=SERVICE_NOT_READY, message=b"soak")
        elif roll < 0.1:
            said = LookupResponse(response=REDIRECT, request_id=number, url=url, authoritative=True)
        else:
            said = LookupResponse(response=FOUND, request_id=number, url=url, authoritative=True)
        frame = write(Command(type=LOOKUP_RESPONSE, lookup_response=said))
        if roll > 0.9 and self._held is None:
            cut = self._dice.randrange(1, len(frame))
            self._say(frame[:cut])
            self._held = frame[cut:]
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.005), self._say_held)
        elif roll > 0.8:
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.02), self._say, frame)
        else:
            self._say(frame)

    def _say(self, data: bytes) -> None:
        if self._held is not None:
            self._held += data
        elif not self.transport.is_closing():
            self.transport.write(data)

    def _say_held(self) -> None:
        held, self._held = self._held or b"", None
        self._say(held)


# Clients


def mark(body: bytes) -> str:
    return f"{len(body)}-{crc32(body):08x}"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and the statuses that its answer may have."""

    raw: bytes
    is_lookup: bool
    allowed: frozenset[int]
    inside_is_wrong: bool = True
    body: bytes = b""
    """Brokers repeat it in their answers."""


FAILURES = frozenset({500, 502, 503})


def _topic(dice: random.Random) -> str:
    """One of a hundred: caches are full soon, so only leaks make memory grow."""
    return f"public/ns-{dice.randrange(10)}/topic-{dice.randrange(10)}"


def make_ask(dice: random.Random) -> Ask:
    topic = f"persistent/{_topic(dice)}"
    lookup, host, roll = f"/lookup/v2/topic/{topic}", HOST, dice.random()
    if roll < 0.7:
        return Ask(_raw("GET", lookup, host), True, FAILURES | {200, 307})
    if roll < 0.75:  # a host that no ingress has: a miss, which passes as it is
        return Ask(_raw("GET", lookup, "pulsar.old-name.example.org"), True, FAILURES | {200, 307}, False)
    if roll < 0.78:
        return Ask(_raw("GET", f"{lookup}?listenerName=staging", host), True, frozenset({400}))
    if roll < 0.8:
        return Ask(_raw("GET", f"{lookup}?listenerName=internal", host), True, frozenset({403}))
    if roll < 0.88:
        return Ask(_raw("GET", "/admin/v2/brokers/ready", host), False, FAILURES | {200, 307})
    body = dice.randbytes(dice.choice((1, 100, 5_000, 50_000))).hex().encode()
    raw = _raw("PUT", f"/admin/v2/{topic}/subscription/s", host, body, chunked=roll > 0.94)
    return Ask(raw, False, FAILURES | {200, 307}, body=body)


def _raw(method: str, target: str, host: str, body: bytes = b"", chunked: bool = False) -> bytes:
    fields = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: soak", f"{MARK}: {mark(body)}"]
    if chunked:
        fields.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:100], body[100:]) if part) + b"0\r\n\r\n"
    elif body:
        fields.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*fields, "", ""]).encode() + body


async def http_session(port: int, dice: random.Random, tally: Tally, until: float) -> None:
    """One connection: requests one by one, several at once, in pieces, or aborted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        style = dice.choice(("whole", "pipelined", "pieces", "aborted"))
        for _ in range(dice.randrange(1, 20)):
            asks = [make_ask(dice) for _ in range(dice.randrange(2, 8) if style in ("pipelined", "aborted") else 1)]
            raw = b"".join(ask.raw for ask in asks)
            tally.attempted += sum(ask.is_lookup for ask in asks)
            if style == "aborted":
                writer.write(raw[: dice.randrange(1, len(raw) + 1)])
                await asyncio.sleep(dice.choice((0, 0.001, 0.01)))
                return
            sending = asyncio.ensure_future(_send(writer, raw, dice if style == "pieces" else None))
            try:
                is_last = await _read_all(reader, asks, tally)
            finally:
                sending.cancel()
            if is_last or monotonic() > until:
                return
    except (ConnectionError, asyncio.IncompleteReadError):
        tally.cut += 1
    finally:
        writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, raw: bytes, dice: random.Random | None) -> None:
    """In one write, or in a few with pauses between."""
    cuts = sorted(dice.randrange(1, len(raw)) for _ in range(dice.randrange(1, 4))) if dice is not None else []
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        writer.write(raw[begin:end])
        await writer.drain()
        if dice is not None:
            await asyncio.sleep(dice.choice((0, 0, 0.001, 0.005)))


async def _read_all(reader: asyncio.StreamReader, asks: list[Ask], tally: Tally) -> bool:
    """Whether the connection ends with these answers."""
    for ask in asks:
        async with asyncio.timeout(SECONDS):
            status, head, body = await _read(reader)
        if ask.is_lookup:
            tally.answered += 1
        else:
            tally.others += 1
        if status not in ask.allowed:
            start = ask.raw.partition(b" ")[0].decode()
            tally.wrong[f"{start} answered {status}: {body[:120].decode(errors='replace')}"] += 1
        elif ask.inside_is_wrong and INSIDE.encode() in _told(head) + (body if ask.is_lookup else b""):
            tally.wrong["an answer names an address of the inside"] += 1
        elif ask.body and status == 200 and json.loads(body)["body"] != ask.body.decode():
            tally.wrong["an answer to another request"] += 1
        if re.search(rb"(?i)^connection: close", head, re.MULTILINE):
            return True
    return False


def _told(head: bytes) -> bytes:
    """Where a client is sent; a broker's `broker-address` header is for people."""
    found = re.search(rb"(?i)\r\nlocation: ([^\r]*)", head)
    return found[1] if found is not None else b""


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    if length is not None:
        return status, head, await reader.readexactly(int(length[1]))
    body = b""
    if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return status, head, body


class BinaryClient(Frames):
    """A queue of received frames; None for the end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def heard(self, frame: bytes) -> None:
        self.frames.put_nowait(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.frames.put_nowait(None)

    async def hear(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            frame = await self.frames.get()
        if frame is None:
            raise ConnectionError
        return frame


async def binary_session(port: int, is_named: bool, dice: random.Random, tally: Tally, until: float) -> None:
    """One connection: lookups one by one or several at once, in pieces, or abandoned."""
    _, client = await asyncio.get_running_loop().create_connection(BinaryClient, "127.0.0.1", port)
    try:
        client.transport.write(connect())
        await client.hear()
        number = 0
        style = dice.choice(("whole", "pipelined", "pieces", "aborted"))
        for _ in range(dice.randrange(1, 20)):
            numbers = list(range(number, number := number + (1 if style == "whole" else dice.randrange(1, 8))))
            if style == "aborted":  # also by a client that reuses an id before it was answered
                numbers = [dice.choice(numbers) for _ in numbers]
            raw = b"".join(_lookup(each, dice) for each in numbers)
            tally.attempted += len(numbers)
            cut = dice.randrange(len(raw)) if style in ("pieces", "aborted") else 0
            end = dice.randrange(cut, len(raw)) + 1 if style == "aborted" else len(raw)
            for piece in (raw[:cut], raw[cut:end]):
                client.transport.write(piece)
                await asyncio.sleep(dice.choice((0, 0.002)) if cut else 0)
            if style == "aborted":
                await asyncio.sleep(dice.choice((0, 0.001, 0.01)))
                return
            waiting = deque(numbers)
            while waiting:
                said = Command.FromString((await client.hear())[8:]).lookup_response
                if said.request_id not in waiting:
                    tally.wrong["an answer to a lookup that was not asked"] += 1
                    return
                waiting.remove(said.request_id)
                tally.answered += 1
                if is_named and INSIDE.encode() in said.url + said.url_tls:
                    tally.wrong["a binary answer names an address of the inside"] += 1
            if monotonic() > until:
                return
    except ConnectionError:
        tally.cut += 1
    finally:
        client.transport.abort()


def _lookup(number: int, dice: random.Random) -> bytes:
    topic = f"persistent://{_topic(dice)}".encode()
    return write(Command(type=LOOKUP, lookup=Lookup(topic=topic, request_id=number, authoritative=False)))


Session = Callable[[], Awaitable[None]]


async def sessions(session: Session, tally: Tally, until: float, most: int) -> None:
    """One after the other, until then, and no more than so many."""
    for _ in range(most):
        if monotonic() > until:
            return
        tally.sessions += 1
        try:
            await session()
        except TimeoutError:
            tally.wrong[f"no answer within {SECONDS} s"] += 1


def described(wrong: Counter[str]) -> str:
    return json.dumps(dict(wrong.most_common(5)), indent=2, ensure_ascii=False)
