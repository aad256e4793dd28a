"""A connection to a broker on which the sidecar awaits answers: before a client is joined to it, or for its own lookup.

Everything received is kept in order, so that a session that takes over the connection misses nothing.
"""

import asyncio
from collections import deque
from typing import cast

from pulsar_ingress_proxy.binary.commands import AUTH_CHALLENGE, CONNECTED, FROM_BROKER, LOOKUP_RESPONSE
from pulsar_ingress_proxy.binary.commands_pb2 import Command
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame, FrameDecoder, Table, write
from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly, TimedOut, UpstreamError
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.net.tls import error_text
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl


class Rejected(UpstreamError):
    """The broker rejected the client's CONNECT, which another accepted."""

    code = "broker-rejected"
    text = "the broker that was redirected to does not accept the client"


class NeedsChallenge(Exception):
    """The broker sent an authentication challenge, which only the client could answer."""


class BrokerConnection(asyncio.Protocol):
    """Sends frames and awaits the broker's answers."""

    def __init__(self, reads: Table = FROM_BROKER) -> None:
        self.decoder = FrameDecoder(reads, None, is_strict=False)
        self.received: deque[bytes | memoryview | Frame] = deque()
        self.transport: asyncio.Transport | None = None
        self._error: UpstreamError | None = None
        self._news = asyncio.Event()

    def send(self, frame: bytes) -> None:
        if self.transport is not None:
            self.transport.write(frame)

    async def answer(self, within: float) -> bytes | memoryview | Frame:
        """Wait for the first received piece and leave it in the queue; raises UpstreamError."""
        try:
            async with asyncio.timeout(within):
                while not self.received and self._error is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimedOut(f"the broker gave no answer within {within:g} s") from None
        if self.received:
            return self.received[0]
        assert self._error is not None
        raise self._error

    async def frame(self, within: float) -> Frame:
        """Remove and return the next decoded frame; anything before it is dropped."""
        while True:
            said = await self.answer(within)
            self.received.popleft()
            if isinstance(said, Frame):
                return said

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # Transport callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        try:
            pieces = self.decoder.feed(data)
        except BadFrame as fault:
            self._fail(BadAnswer(f"the broker does not speak Pulsar's protocol: {fault}"))
            self.close()
            return
        self.received.extend([data] if pieces is None else pieces)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        why = f": {error_text(exc)}" if isinstance(exc, OSError) else ""
        self._fail(ClosedEarly(f"the broker closed the connection without an answer{why}"))

    def _fail(self, error: UpstreamError) -> None:
        self._error = self._error or error
        self._news.set()


async def ask(url: ServiceUrl, connect: Command, lookup: Command, brokers: BrokerPool, within: float) -> Command:
    """Follow a redirect: repeat the client's CONNECT and lookup to another broker, and return its answer.

    Raises UpstreamError or NeedsChallenge.
    """
    connection = await brokers.dial(url, BrokerConnection)
    try:
        await introduce(connection, url, connect, within)
        connection.send(write(lookup))
        while True:
            frame = await connection.frame(within)
            if frame.type == LOOKUP_RESPONSE:
                return frame.command()
    except BadFrame as fault:
        raise _not_pulsar(url, fault) from None
    finally:
        connection.close()


async def introduce(connection: BrokerConnection, url: ServiceUrl, connect: Command, within: float) -> None:
    """Repeat a client's CONNECT on a new connection; raises UpstreamError or NeedsChallenge."""
    connection.send(write(connect))
    greeting = await connection.frame(within)
    if greeting.type == AUTH_CHALLENGE:
        raise NeedsChallenge
    if greeting.type != CONNECTED:
        try:
            error = greeting.command().error
        except BadFrame as fault:
            raise _not_pulsar(url, fault) from None
        text = error.message.decode("utf-8", "replace")
        raise Rejected(f"{url} answers CONNECT with error {error.error}: {text}")


def _not_pulsar(url: ServiceUrl, fault: BadFrame) -> BadAnswer:
    return BadAnswer(f"{url} does not speak Pulsar's protocol: {fault}")
