"""Both ends of the binary comparison: a broker that answers lookups and sends or discards messages, and its clients.

python -m bench.binary_ends PORT     the broker
"""

import asyncio
import sys
from collections.abc import Callable
from itertools import count
from struct import Struct
from time import perf_counter
from typing import cast

import uvloop

from bench.broker import inside
from bench.traffic import LISTENER, outside
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connect, Connected, Lookup, LookupResponse
from pulsar_ingress_proxy.binary.frames import write

_SIZE = Struct("!I")
_TYPE = 9
"""Offset of the type in a frame."""
CONNECT, CONNECTED, PRODUCER, SEND, MESSAGE, FLOW, LOOKUP, LOOKUP_RESPONSE = 2, 3, 5, 6, 9, 11, 23, 24
BLOB = 1 << 20
"""Bytes of messages in one write."""


def connect() -> bytes:
    return write(Command(type=CONNECT, connect=Connect(client_version=b"bench", protocol_version=21)))


def lookup(number: int, topic: int) -> bytes:
    name = f"persistent://public/default/orders-{topic}".encode()
    return write(Command(type=LOOKUP, lookup=Lookup(topic=name, request_id=number, authoritative=False)))


_TOPICS = count(1000)
"""Topics that were not looked up before."""


def messages(kind: int, size: int) -> bytes:
    """About a megabyte of message frames of that size."""
    command = bytes((8, kind, kind << 3 | 2, 4, 8, 1, 16, 7))
    frame = _SIZE.pack(len(command) + 4 + size) + _SIZE.pack(len(command)) + command + bytes(size)
    return frame * (BLOB // len(frame))


class Frames(asyncio.Protocol):
    """Receives small frames, one by one."""

    def __init__(self) -> None:
        self._buffer = b""
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= (end := 4 + _SIZE.unpack_from(self._buffer)[0]):
            frame, self._buffer = self._buffer[:end], self._buffer[end:]
            self.heard(frame)

    def heard(self, frame: bytes) -> None:
        raise NotImplementedError

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def pour(self, blob: bytes, seconds: float) -> tuple[int, float]:
        """Write for that long, no faster than the peer reads; returns the bytes and the time."""
        began, sent = perf_counter(), 0
        while perf_counter() - began < seconds and not self.transport.is_closing():
            self.transport.write(blob)
            sent += len(blob)
            await self._writable.wait()
        return sent, perf_counter() - began


class Swallow(asyncio.BufferedProtocol):
    """Discards everything."""

    room = memoryview(bytearray(1 << 18))
    taken = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += nbytes


class Broker(Frames):
    """Answers CONNECT and lookups, discards messages after PRODUCER, and answers FLOW with a stream."""

    _pouring: asyncio.Task[object] | None = None

    def heard(self, frame: bytes) -> None:
        kind = frame[_TYPE]
        if kind == CONNECT:
            self.transport.write(write(Command(type=CONNECTED, connected=Connected(server_version=b"bench"))))
        elif kind == LOOKUP:
            asked = Command.FromString(frame[8:]).lookup
            if asked.advertised_listener_name not in (b"", LISTENER.encode()):
                raise ValueError(f"tagged with {asked.advertised_listener_name!r}")
            url = f"pulsar://{inside(str(asked.request_id % 10))}:6650".encode()
            answer = LookupResponse(url=url, response=1, request_id=asked.request_id, authoritative=True)
            self.transport.write(write(Command(type=LOOKUP_RESPONSE, lookup_response=answer)))
        elif kind == PRODUCER:
            self.transport.set_protocol(Swallow())
        elif kind == FLOW:
            size = int.from_bytes(frame[-4:], "big")
            self._pouring = asyncio.ensure_future(self.pour(messages(MESSAGE, size), 3600))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pouring is not None:
            self._pouring.cancel()


class Client(Frames):
    """One connection."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = asyncio.get_running_loop().create_future()
        self._number = 0
        self.answers = 0
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_asking = self.asks_for_new = False

    def heard(self, frame: bytes) -> None:
        if not self.connected.done():
            self.connected.set_result(None)
            return
        self.answers += 1
        if not self.first.done():
            self.first.set_result(frame)
        if self.is_asking:
            self.ask()

    def ask(self) -> None:
        self._number += 1
        topic = next(_TOPICS) if self.asks_for_new else self._number % 1000
        self.transport.write(lookup(self._number, topic))


async def client(port: int) -> Client:
    _, made = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    made.transport.write(connect())
    await made.connected
    return made


async def look_up(port: int, connections: int, seconds: float, begun: Callable[[], None], is_new: bool = False) -> int:
    """Lookups one after the other on each of so many connections; how many were answered.

    Of a thousand topics, or each of one that nobody has asked for before.
    """
    clients = [await client(port) for _ in range(connections)]
    begun()
    for one in clients:
        one.is_asking, one.asks_for_new = True, is_new
        one.ask()
    await asyncio.sleep(seconds)
    for one in clients:
        one.is_asking = False
        one.transport.abort()
    return sum(one.answers for one in clients)


async def produce(port: int, size: int, seconds: float, begun: Callable[[], None]) -> int:
    """Send messages of that size; returns their bytes."""
    one = await client(port)
    begun()
    one.transport.write(write(Command(type=PRODUCER)))
    sent, _ = await one.pour(messages(SEND, size), seconds)
    one.transport.abort()
    return sent


async def consume(port: int, size: int, seconds: float, begun: Callable[[], None]) -> int:
    one = await client(port)
    begun()
    flow = bytes((8, FLOW)) + bytes((0x5A, 4)) + size.to_bytes(4, "big")
    one.transport.write(_SIZE.pack(len(flow) + 4) + _SIZE.pack(len(flow)) + flow)
    swallow = Swallow()
    one.transport.set_protocol(swallow)
    await asyncio.sleep(seconds)
    one.transport.abort()
    return swallow.taken


async def told(port: int) -> str:
    """The address in the answer to one lookup."""
    one = await client(port)
    one.ask()
    answer = await one.first
    one.transport.abort()
    return Command.FromString(answer[8:]).lookup_response.url.decode()


EXPECTED = f"pulsar://{outside('1')}:6650"


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
