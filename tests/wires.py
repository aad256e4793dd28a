"""Connections as bytes: one end that sends exactly what a test says, and a socket that accepts such connections."""

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from typing import Any, Generic, TypeVar, cast


class ByteWire(asyncio.Protocol):
    """One end of a connection. Nothing is read but what a test takes, nothing sent but what it says."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.total = 0
        """Bytes that ever came."""
        self.ended = False
        self.error: Exception | None = None
        self.on_made: Callable[[], None] = lambda: None
        self.on_data: Callable[[], None] = lambda: None
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

    def abort(self) -> None:
        self.transport.abort()

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

    async def rest(self) -> bytes:
        """Everything up to an orderly end."""
        await self.end()
        assert self.error is None, self.error
        return self._cut(len(self.buffer))

    async def end(self) -> bytes:
        """Wait until the other side has ended the connection, in whatever way; what came and was not taken."""
        while not self.ended:
            await self._change()
        return bytes(self.buffer)

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
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.on_made()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.total += len(data)
        self._changed.set()
        self.on_data()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.error = exc
        self._changed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


W = TypeVar("W", bound=ByteWire)


async def dialed(
    wire_type: Callable[[], W], port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None
) -> W:
    """A connection to this port; over TLS, an empty server name is not sent."""
    _, wire = await asyncio.get_running_loop().create_connection(
        wire_type, "127.0.0.1", port, ssl=tls, server_hostname=server_name
    )
    return wire


class WireServer(Generic[W]):
    """A socket that accepts; its connections wait, in order, to be told what to do."""

    schemes: tuple[str, str]
    """Of its URL, without and with TLS."""

    def __init__(self, wire_type: Callable[[], W]) -> None:
        self.wires: list[W] = []
        self._wire_type = wire_type
        self._accepted: asyncio.Queue[W] = asyncio.Queue()

    async def open(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            self._wire, "127.0.0.1", port, ssl=tls, reuse_address=True
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{self.schemes[tls is not None]}://127.0.0.1:{self.port}"

    async def accept(self) -> W:
        """The next connection."""
        return await self._accepted.get()

    @property
    def untouched(self) -> bool:
        """Whether nobody has sent it a byte."""
        return not any(wire.total for wire in self.wires)

    def refuse(self) -> None:
        """Take no connections from now on."""
        self._server.close()

    async def close(self) -> None:
        """Take no connections from now on, and end those there are."""
        self.refuse()
        for wire in self.wires:
            wire.abort()

    def _wire(self) -> W:
        wire = self._wire_type()
        wire.on_made = lambda: self._made(wire)
        return wire

    def _made(self, wire: W) -> None:
        self.wires.append(wire)
        self._accepted.put_nowait(wire)


S = TypeVar("S", bound=WireServer[Any])


@asynccontextmanager
async def opened(server: S, tls: ssl.SSLContext | None = None) -> AsyncIterator[S]:
    """A server from its opening to its close."""
    await server.open(tls=tls)
    try:
        yield server
    finally:
        await server.close()


# Below those that the system gives to outgoing connections, or one of them might take it. Each comes once, so that two
# that are asked for together differ.
_PORTS = cycle(random.SystemRandom().sample(range(10_000, 32_768), 22_768))


def free_port() -> int:
    """A port that nothing listens on, and that refuses connections until something does."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("ports are tried again and again")
