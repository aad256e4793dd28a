"""The clients of the soak test: both protocols, with and without TLS; in pieces, pipelined, abandoned.

A seed decides what happens.
"""

import asyncio
import json
import random
import re
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bench.binary_ends import LOOKUP, Frames, connect
from bench.soak_tally import APP_HOSTS, APPS, CLUSTER_HOST, HOST, INSIDE, MARK, Tally, mark
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Lookup
from pulsar_ingress_proxy.binary.frames import write

SECONDS = 30
"""Seconds that a client waits for one answer. No broker takes a tenth of that."""


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
    if roll < 0.75:  # a host that no ingress has, or only at times: a miss passes as it is
        host = dice.choice(
            ("pulsar.old-name.example.org", f"app-{dice.randrange(APPS)}-{dice.randrange(APP_HOSTS)}.{CLUSTER_HOST}")
        )
        return Ask(_raw("GET", lookup, host), True, FAILURES | {200, 307}, False)
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


@dataclass(frozen=True, slots=True)
class Socket:
    """One of the sidecar's."""

    port: int
    tls: ssl.SSLContext | None = None
    has_listener: bool = True

    @property
    def arguments(self) -> dict[str, Any]:
        """Of asyncio, to connect to it."""
        name = {"ssl": self.tls, "server_hostname": HOST} if self.tls is not None else {}
        return {"host": "127.0.0.1", "port": self.port, **name}


async def http_session(socket: Socket, dice: random.Random, tally: Tally, until: float) -> None:
    """One connection: requests one by one, several at once, in pieces, or aborted."""
    reader, writer = await asyncio.open_connection(**socket.arguments)
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
        start = ask.raw.partition(b" HTTP")[0].decode()
        try:
            async with asyncio.timeout(SECONDS):
                status, head, body = await _read(reader)
        except TimeoutError:
            raise TimeoutError(f"no answer within {SECONDS} s to {start}") from None
        if ask.is_lookup:
            tally.answered += 1
        else:
            tally.others += 1
        if status not in ask.allowed:
            tally.wrong[f"{start} answered {status}: {body[:120].decode(errors='replace')}"] += 1
        elif ask.inside_is_wrong and INSIDE.encode() in _told(head) + (body if ask.is_lookup else b""):
            tally.wrong["an answer names an address of the inside"] += 1
        elif ask.inside_is_wrong and b"//127." in _told(head):
            tally.wrong["a redirect leads to a pod's own address"] += 1
        elif ask.is_lookup and len(set(re.findall(rb"broker-(\d+)\.", body))) > 1:
            tally.wrong["an answer names two brokers"] += 1
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
        try:
            async with asyncio.timeout(SECONDS):
                frame = await self.frames.get()
        except TimeoutError:
            raise TimeoutError(f"no frame within {SECONDS} s") from None
        if frame is None:
            raise ConnectionError
        return frame


async def binary_session(socket: Socket, dice: random.Random, tally: Tally, until: float) -> None:
    """One connection: lookups one by one or several at once, in pieces, or abandoned."""
    _, client = await asyncio.get_running_loop().create_connection(BinaryClient, **socket.arguments)
    try:
        await _greet(client, tally)
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
                if socket.has_listener and INSIDE.encode() in said.url + said.url_tls:
                    tally.wrong["a binary answer names an address of the inside"] += 1
            if monotonic() > until:
                return
    except ConnectionError:
        tally.cut += 1
    finally:
        client.transport.abort()


async def _greet(client: BinaryClient, tally: Tally) -> None:
    client.transport.write(connect())
    tally.connecting += 1
    try:
        await client.hear()
    finally:
        tally.connecting -= 1


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
        except TimeoutError as late:
            tally.wrong[str(late)] += 1
        except ssl.SSLError as error:
            tally.wrong[f"TLS: {error.reason}"] += 1


def described(wrong: Counter[str]) -> str:
    return json.dumps(dict(wrong.most_common(5)), indent=2, ensure_ascii=False)
