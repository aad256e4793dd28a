"""Request bodies: where they end, streamed, and kept for replay up to a limit; bodies of lookup answers, decoded."""

import re
import zlib

from aiohttp import StreamReader

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.memory import TRANSFER, Budget
from pulsar_ingress_proxy.net.errors import BadAnswer

LOOKUP_BODY_LIMIT = 1 << 20
"""Maximum size of a lookup's answer; real ones have a few hundred bytes."""
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]*")
_LINE_BYTES = 1024
"""Bytes that are kept of a line between chunks: its size is at the beginning."""
_LAST_CHUNK = b"0\r\n\r\n"
_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


class BodyEnd:
    """Finds where a body ends among the bytes that are received.

    Only the end of a well-formed body counts: the parser, which gets the same bytes, refuses any other.
    """

    def __init__(self, length: int | None) -> None:
        """Without a length, the body is chunked."""
        self._left = length or 0
        """Bytes still to come, of the body or of a chunk and its line end."""
        self._is_found = length is not None
        """Whether it ends with the bytes still to come."""
        self._is_in_trailers = False
        self._line = b""
        """The beginning of a line that is incomplete."""

    def size_in(self, data: bytes) -> int:
        """How many of the bytes received next belong to the body."""
        size = 0
        while size < len(data):
            if self._left:
                step = min(self._left, len(data) - size)
                self._left -= step
            elif self._is_found:
                break
            else:
                step = (data.find(b"\n", size) + 1 or len(data)) - size
                self._line = (self._line + data[size : size + min(step, _LINE_BYTES)])[:_LINE_BYTES]
                if data[size + step - 1] == ord("\n"):
                    self._read_line()
            size += step
        return size

    def _read_line(self) -> None:
        line, self._line = self._line, b""
        if self._is_in_trailers:
            self._is_found = line == b"\r\n"
        elif (match := _CHUNK_SIZE.match(line)) and (size := int(match[0] or b"0", 16)):
            self._left = size + 2
        else:
            self._is_in_trailers = True


class RequestBody:
    """One request body. It is kept for replay up to a limit; a larger one can be sent only once."""

    def __init__(self, reader: StreamReader, length: int | None, keep: int, budget: Budget) -> None:
        self.length = length
        self.size = 0
        self._reader = reader
        self._limit = keep
        self._budget = budget
        self._kept: list[bytes] = []
        self._kept_size = 0
        self._is_reserved = False
        self.replayable = True

    @property
    def field(self) -> bytes:
        """The header field that frames the body."""
        return b"Transfer-Encoding: chunked" if self.length is None else b"Content-Length: %d" % self.length

    def is_whole(self) -> bool:
        """Whether all of it has arrived and can be replayed."""
        if self._is_reserved:
            return True
        total = self._reader.total_bytes
        self._is_reserved = (
            self._reader.is_eof()
            and self._reader.exception() is None
            and not self.size
            and total <= self._limit
            and self._budget.take(total)
        )
        if self._is_reserved:
            self._kept_size = total
        return self._is_reserved

    def whole(self) -> bytes:
        """All of it, framed; only if `is_whole`."""
        if not self.size and (data := self._reader.read_nowait()):
            self._kept = [data]
            self.size = len(data)
        data = b"".join(map(self._framed, self._kept))
        return data if self.length is not None else data + _LAST_CHUNK

    async def send(self, connection: UpstreamConnection) -> None:
        """Send all of it: what was kept from an earlier attempt, then the rest as the client sends it."""
        for data in self._kept:
            connection.write(self._framed(data))
            await connection.drain()
        while data := await self._reader.readany():
            self.size += len(data)
            self._keep(data)
            connection.write(self._framed(data))
            await connection.drain()
        if self.length is None:
            connection.write(_LAST_CHUNK)

    def drop(self) -> None:
        """Release the kept bytes."""
        self._budget.give_back(self._kept_size)
        self._kept, self._kept_size = [], 0

    def _keep(self, data: bytes) -> None:
        fits = self.replayable and self._kept_size + len(data) <= self._limit
        if fits and self._budget.take(len(data)):
            self._kept.append(data)
            self._kept_size += len(data)
        else:
            self.replayable = False
            self.drop()

    def _framed(self, data: bytes) -> bytes:
        return data if self.length is not None else b"%x\r\n%b\r\n" % (len(data), data)


def decode(body: bytes, codings: list[bytes], limit: int) -> bytes:
    """Undo the content coding of a lookup's answer, so that its addresses can be checked.

    Raises BadAnswer if the coding is unknown or broken, or if the body is over the limit.
    """
    if len(body) > limit:
        raise BadAnswer(f"a lookup's answer has more than {limit} bytes")
    if not codings:
        return body
    name = b", ".join(codings).strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WINDOWS:
        raise BadAnswer(f"a lookup's answer has the coding '{name.decode('latin-1')}', which was not asked for")
    decoder = zlib.decompressobj(wbits=_WINDOWS[name])
    try:
        plain = decoder.decompress(body, limit)
    except zlib.error as error:
        raise BadAnswer(f"a lookup's answer is not what its coding says: {error}") from None
    if not decoder.eof:
        raise BadAnswer("a lookup's answer is cut short, or larger than it may be")
    return plain


def room_for(length: int | None) -> int:
    """Bytes to charge for a body in transit."""
    return TRANSFER if length is None else min(2 * length, TRANSFER)
