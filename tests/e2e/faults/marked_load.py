"""Clients of both protocols that write down every operation: what they sent, when, and what came back."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

import pulsar_commands as pulsar
from histories import BROKERS, DOMAINS, INSIDE, OWN_REFUSALS, Operation, checksum, partitions

HTTP_CLIENTS, BINARY_CLIENTS = 8, 6
SILENT_SECONDS = 20
"""Seconds that a client waits for answers over HTTP; the sidecar's own timeouts are a tenth of it."""
BINARY_SILENT_SECONDS = 6
"""Over the binary protocol; the sidecar has timeouts for lookups only, and a client gives up on its own on all else."""
PAUSE = 0.01
SESSION = 20
"""Batches of one connection."""
RECOVERY_SECONDS = 60
AGAIN = 0.05
"""Seconds until a client that was not connected tries again."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str], Awaitable[Streams]]
"""A connection to a socket of the sidecar, by its name."""

_URL = re.compile(r"[a-z+]+://[^/\"\s?]+")
T = TypeVar("T")


class Strange(Exception):
    """An answer that no client could make sense of."""


@dataclass(frozen=True, slots=True)
class Request:
    operation: Operation
    raw: bytes


@dataclass
class Load:
    """All clients, and the history that they write together."""

    connect: Connect
    dice: random.Random
    operations: list[Operation] = field(default_factory=list)
    """In the order in which they began."""
    ended: list[Operation] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until the end of the block; what was begun is brought to its end."""
        self._stopping = False
        clients = [self._http_session] * HTTP_CLIENTS + [self._binary_session] * BINARY_CLIENTS
        tasks = [asyncio.create_task(self._repeat(session)) for session in clients]
        try:
            yield
            self._stopping = True
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def more(self, count: int) -> None:
        """Wait until so many more operations have ended."""
        target = len(self.ended) + count
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.ended) >= target)

    async def normal(self, count: int) -> float:
        """Wait until so many operations in a row that began from now on were normal; the time at which they began."""
        now, first = monotonic(), len(self.ended)
        row: list[Operation] = []
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while len(row) < count:
                    await self.more(1)
                    for one in self.ended[first:]:
                        row = [*row, one] if one.is_normal else []
                        row = [each for each in row if each.began >= now]
                    first = len(self.ended)
        except TimeoutError:
            bad = [one for one in self.ended[-200:] if not one.is_normal]
            raise AssertionError(
                f"not normal {RECOVERY_SECONDS} s after it was healed; of 200 operations: {bad}"
            ) from None
        return min(one.began for one in row)

    async def _repeat(self, session: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            await session()

    def _begin(self, kind: str, protocol: str, listener: str, method: str = "", broker: int | None = None) -> Operation:
        mark = f"{protocol[0]}{len(self.operations)}x"
        made = Operation(mark, protocol, kind, method, listener, monotonic(), broker)
        self.operations.append(made)
        return made

    async def _end(self, operations: list[Operation], outcome: str) -> None:
        """Of those that have not ended yet."""
        for one in operations:
            if one.outcome == "begun":
                one.outcome, one.ended = outcome, monotonic()
                self.ended.append(one)
        async with self._changed:
            self._changed.notify_all()

    # HTTP

    async def _http_session(self) -> None:
        streams: Streams | None = None
        try:
            for _ in range(SESSION):
                batch = [self._request() for _ in range(self.dice.choice((1, 1, 1, 3)))]
                operations = [one.operation for one in batch]
                if streams is None:
                    streams = await self._connected(self.dice.choice(("http", "https")), operations)
                if streams is None or not await self._ask(streams, batch) or self._stopping:
                    return
                await asyncio.sleep(PAUSE)
        finally:
            if streams is not None:
                streams[1].transport.abort()

    async def _connected(self, name: str, operations: list[Operation]) -> Streams | None:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                return await self.connect(name)
        except (OSError, TimeoutError):
            await self._end(operations, "unconnected")
            await asyncio.sleep(AGAIN)
            return None

    async def _ask(self, streams: Streams, batch: list[Request]) -> bool:
        """Send them at once, and read the answers; whether the connection can take more."""
        reader, writer = streams
        operations = [one.operation for one in batch]
        outcome = "cut"
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                writer.write(b"".join(one.raw for one in batch))
                for one in operations:
                    closes = await self._answer(reader, one)
                    await self._end([one], "answered")
                    if closes:
                        return False
                return True
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        except TimeoutError:
            outcome = "silent"
            return False
        except (Strange, ValueError) as fault:
            operations[[one.outcome for one in operations].index("begun")].fault = str(fault)
            return False
        finally:
            await self._end(operations, outcome)

    def _request(self) -> Request:
        roll, dice = self.dice.random(), self.dice
        listener = dice.choice(list(DOMAINS))
        host = DOMAINS[listener]
        topic = "/lookup/v2/topic/persistent/public/default/"
        if roll < 0.45:
            one = self._begin("lookup", "http", listener, "GET")
            return _request(one, host, topic + one.mark)
        if roll < 0.55:  # the sidecar follows its redirects
            one = self._begin("lookup", "http", listener, "GET")
            return _request(one, host, topic + one.mark, authorization=True)
        if roll < 0.61:
            one = self._begin("lookup", "http", "", "GET")
            return _request(one, "pulsar.old-name.example.net", topic + one.mark)
        if roll < 0.66:
            one = self._begin("lookup", "http", "", "GET")
            other = dice.choice([name for name in (*DOMAINS, "internal") if name != listener])
            return _request(one, host, f"{topic}{one.mark}?listenerName={other}")
        if roll < 0.78:
            broker = dice.randrange(BROKERS)
            one = self._begin("admin", "http", listener, "GET", broker)
            return _request(one, f"broker-{broker}.{host}", "/admin/v2/clusters")
        one = self._begin("admin", "http", listener, "PUT" if roll < 0.93 else "POST")
        body = f"{one.mark} ".encode() + dice.randbytes(dice.choice((1, 300, 20_000)))
        target = f"/admin/v2/persistent/public/default/{one.mark}/subscription/s"
        return _request(one, host, target, body, is_chunked=dice.random() < 0.3)

    async def _answer(self, reader: asyncio.StreamReader, one: Operation) -> bool:
        """Read one answer into its operation; whether the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        status = int(start.split(" ")[1])
        if "content-length" in fields:
            body = await reader.readexactly(int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            body = await _chunks(reader)
        else:
            raise Strange(f"an answer without a length: {start}")
        one.status, one.id = status, fields.get("x-request-id", "")
        one.answer_mark, one.answer_sum = fields.get("x-mark", ""), checksum(body)
        text = body.decode("latin-1")
        if not one.answer_mark:
            one.reason = _reason(status, text)
        told = f"{fields.get('location', '')} {text}" if one.kind == "lookup" else fields.get("location", "")
        one.addresses = tuple(_URL.findall(told))
        one.names_inside = INSIDE in head or (INSIDE in text)
        return "close" in fields.get("connection", "").lower()

    # The binary protocol

    async def _binary_session(self) -> None:
        listener = self.dice.choice([*DOMAINS, "", *DOMAINS])
        streams: Streams | None = None
        try:
            for _ in range(SESSION):
                batch = [self._command(listener, number) for number in range(self.dice.randrange(1, 5))]
                operations = [one.operation for one in batch]
                if streams is None:
                    streams = await self._binary_connected(f"pulsar-{listener or 'unnamed'}", operations)
                if streams is None or not await self._tell(streams, batch) or self._stopping:
                    return
                await asyncio.sleep(PAUSE)
        finally:
            if streams is not None:
                streams[1].transport.abort()

    async def _binary_connected(self, name: str, operations: list[Operation]) -> Streams | None:
        """After CONNECT was answered; if it was refused, so were these operations."""
        streams = await self._connected(name, operations)
        if streams is None:
            return None
        reader, writer = streams
        outcome = "cut"
        try:
            async with asyncio.timeout(BINARY_SILENT_SECONDS):
                writer.write(pulsar.frame(pulsar.CONNECT, [(1, b"observer"), (4, 21)]))
                said = await pulsar.read_command(reader)
            if said.kind == pulsar.CONNECTED:
                return streams
            outcome = "refused"
            for one in operations:
                one.reason = said.text(3).partition(":")[0]
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # cut
        except TimeoutError:
            outcome = "silent"
        await self._end(operations, outcome)
        writer.transport.abort()
        await asyncio.sleep(AGAIN)
        return None

    def _command(self, listener: str, number: int) -> Request:
        roll = self.dice.random()
        if not listener or roll < 0.6:
            one = self._begin("lookup", "binary", listener)
            return Request(one, pulsar.frame(pulsar.LOOKUP, [(1, _topic(one)), (2, number), (3, 0)]))
        if roll < 0.8:
            one = self._begin("metadata", "binary", listener)
            return Request(one, pulsar.frame(pulsar.METADATA, [(1, _topic(one)), (2, number)]))
        one = self._begin("message", "binary", listener)
        payload = f"{one.mark} ".encode() + self.dice.randbytes(self.dice.choice((1, 300, 20_000)))
        one.sent = checksum(payload)
        return Request(one, pulsar.frame(pulsar.SEND, [(1, 1), (2, number)], payload))

    async def _tell(self, streams: Streams, batch: list[Request]) -> bool:
        """Send them at once, and take the answers in any order; whether the connection can take more."""
        reader, writer = streams
        waiting = {number: one.operation for number, one in enumerate(batch)}
        outcome = "cut"
        try:
            async with asyncio.timeout(BINARY_SILENT_SECONDS):
                writer.write(b"".join(one.raw for one in batch))
                while waiting:
                    number, ok = _heard(await pulsar.read_command(reader), waiting)
                    await self._end([waiting.pop(number)], "answered")
                    if not ok:
                        return False
                return True
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        except TimeoutError:
            outcome = "silent"
            return False
        except (Strange, ValueError, pulsar.NotPulsar) as fault:
            for one in waiting.values():
                one.fault = str(fault)
            return False
        except Refused as refused:
            for one in waiting.values():
                one.reason = refused.code
            return False
        finally:
            await self._end([*waiting.values()], outcome)


class Refused(Exception):
    """The sidecar, or a broker, has ended the session, and said why."""

    def __init__(self, code: str) -> None:
        self.code = code


def _request(
    one: Operation, host: str, target: str, body: bytes = b"", authorization: bool = False, is_chunked: bool = False
) -> Request:
    one.sent = checksum(body)
    fields = [f"{one.method} {target} HTTP/1.1", f"Host: {host}", f"User-Agent: {one.mark}", f"X-Mark: {one.mark}"]
    if authorization:
        fields.append(f"Authorization: Bearer {one.mark}")
    if is_chunked:
        fields.append("Transfer-Encoding: chunked")
        half = len(body) // 2
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:])) + b"0\r\n\r\n"
    elif body:
        fields.append(f"Content-Length: {len(body)}")
    return Request(one, "\r\n".join([*fields, "", ""]).encode() + body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


def _reason(status: int, text: str) -> str:
    """The code of an answer of the sidecar's own."""
    if status not in OWN_REFUSALS:
        raise Strange(f"status {status} without the mark of its request")
    try:
        return str(json.loads(text)["reason"]).partition(":")[0]
    except (ValueError, KeyError) as fault:
        raise Strange(f"status {status} without a reason: {text[:100]!r}") from fault


def _topic(one: Operation) -> bytes:
    return f"persistent://public/default/{one.mark}".encode()


def _heard(said: pulsar.Command, waiting: dict[int, Operation]) -> tuple[int, bool]:
    """Which of those that wait was answered, and whether the session goes on as usual."""
    match said.kind:
        case pulsar.LOOKUP_RESPONSE:
            number, kind = said.number(4), "lookup"
        case pulsar.METADATA_RESPONSE:
            number, kind = said.number(2), "metadata"
        case pulsar.MESSAGE:
            number, kind = said.number(1), "message"
        case pulsar.ERROR:
            raise Refused(said.text(3).partition(":")[0])
        case _:
            raise Strange(f"a command of type {said.kind}")
    one = waiting.get(number)
    if one is None or one.kind != kind:
        raise Strange(f"an answer of type {said.kind} to request {number}, which asked nothing of the kind")
    if said.kind == pulsar.MESSAGE:
        one.status, one.answer_sum = 200, checksum(said.payload)
        one.answer_mark = said.payload.partition(b" ")[0].decode("latin-1")
    elif said.kind == pulsar.METADATA_RESPONSE:
        one.status = 200
        one.answer_mark = one.mark if said.number(1) == partitions(one.mark) else f"{said.number(1)} partitions"
    elif said.number(3) == pulsar.FAILED:
        one.reason = said.text(7).partition(":")[0]
    else:
        one.status = 200 if said.number(3) == pulsar.FOUND else 307
        one.addresses = tuple(url for url in (said.text(1), said.text(2)) if url)
        one.answer_mark = one.mark  # an answer has none: its address tells, and its number
        one.names_inside = INSIDE in " ".join(one.addresses)
    return number, not (one.reason and one.listener)
