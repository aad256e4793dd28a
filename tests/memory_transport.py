"""A connection without a socket: what a protocol writes comes to its peer at once, or when the peer reads again."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise

TURNS = 30
"""Turns of the event loop that a request needs at most, from a task to its answer."""


class MemoryTransport(asyncio.Transport):
    """Gives what is written to a function; a protocol that closes it is told so in the loop's next turn.

    A single byte that the peer does not read fills its buffer, so that small cases show what a full one does.
    """

    def __init__(self, protocol: asyncio.BaseProtocol, written: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self._protocol, self._written = protocol, written
        self._is_closed = self._is_lost = False
        self._unread = b""
        self.is_stalled = False
        """Whether the peer does not read."""
        self.is_paused = False
        """Whether the protocol does not read."""
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed:
            return
        if not self.is_stalled:
            self._written(bytes(data))
            return
        was_empty, self._unread = not self._unread, self._unread + bytes(data)
        if was_empty and self._unread:
            self._protocol.pause_writing()

    def read_again(self) -> None:
        """The peer reads again, and gets all that waits."""
        self.is_stalled = False
        waiting, self._unread = self._unread, b""
        if waiting:
            self._written(waiting)
            self._protocol.resume_writing()
        if self._is_closed:
            self._lose()

    def receive(self, data: bytes) -> None:
        """Bytes of the peer; those that come after the end go nowhere."""
        assert not self.is_paused
        if not self._is_closed:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)

    def close(self) -> None:
        self._is_closed = True
        if not self._unread:
            self._lose()

    def abort(self) -> None:
        self._is_closed, self._unread = True, b""
        self._lose()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            asyncio.get_running_loop().call_soon(lambda: self._protocol.connection_lost(None))

    def is_closing(self) -> bool:
        return self._is_closed

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return len(self._unread)


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The data cut at these places; none is empty."""
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    return [data[start:end] for start, end in pairwise(places)]


async def turns(number: int = TURNS) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
