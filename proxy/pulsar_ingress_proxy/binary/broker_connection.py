"""A connection to a broker on which the sidecar waits for answers: until a client is joined to it, or to ask something.

What a broker says is kept in order and in whole, so that whoever takes the connection over misses nothing.
"""

import asyncio
from collections import deque
from typing import cast

from pulsar_ingress_proxy.binary.commands import FROM_BROKER
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame, FrameDecoder
from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly, TimedOut, UpstreamError
from pulsar_ingress_proxy.net.tls import in_words


class BrokerConnection(asyncio.Protocol):
    """Say something, then wait for what the broker says to it."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder(FROM_BROKER, None, is_strict=False)
        self.heard: deque[bytes | memoryview | Frame] = deque()
        self.transport: asyncio.Transport | None = None
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def say(self, frame: bytes) -> None:
        if self.transport is not None:
            self.transport.write(frame)

    async def answer(self, within: float) -> bytes | memoryview | Frame:
        """The first of what was heard and not taken out; raises UpstreamError."""
        try:
            async with asyncio.timeout(within):
                while not self.heard and self._error is None:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
        except TimeoutError:
            raise TimedOut(f"the broker gave no answer within {within:g} s") from None
        if self.heard:
            return self.heard[0]
        assert self._error is not None
        raise self._error

    async def frame(self, within: float) -> Frame:
        """The next frame of those that matter, taken out; what came before it is nobody's business."""
        while True:
            said = await self.answer(within)
            self.heard.popleft()
            if isinstance(said, Frame):
                return said

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        try:
            pieces = self.decoder.feed(data)
        except BadFrame as fault:
            self._fail(BadAnswer(f"the broker does not speak Pulsar's protocol: {fault}"))
            self.close()
            return
        self.heard.extend([data] if pieces is None else pieces)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        why = f": {in_words(exc)}" if isinstance(exc, OSError) else ""
        self._fail(ClosedEarly(f"the broker closed the connection without an answer{why}"))

    def _fail(self, error: UpstreamError) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
