"""Bodies: of requests, streamed and kept as far as they may have to be sent again; of lookup answers, decoded."""

import zlib

from aiohttp import StreamReader

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.memory import Budget
from pulsar_ingress_proxy.net.errors import BadAnswer

_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


class RequestBody:
    """One body. What was sent is kept up to a limit; beyond it the body can be sent only once."""

    def __init__(self, reader: StreamReader, length: int | None, keep: int, budget: Budget) -> None:
        self.length = length
        self.size = 0
        self._reader = reader
        self._limit = keep
        self._budget = budget
        self._kept: list[bytes] = []
        self._kept_size = 0
        self.replayable = True

    @property
    def field(self) -> bytes:
        """The field that says where the body ends."""
        return b"Transfer-Encoding: chunked" if self.length is None else b"Content-Length: %d" % self.length

    async def send(self, connection: UpstreamConnection) -> None:
        """Send all of it: what was kept of an earlier try, then what the client still has."""
        for data in self._kept:
            self._write(connection, data)
            await connection.drain()
        while data := await self._reader.readany():
            self.size += len(data)
            self._keep(data)
            self._write(connection, data)
            await connection.drain()
        if self.length is None:
            connection.write(b"0\r\n\r\n")

    def drop(self) -> None:
        """Nobody will need it again."""
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

    def _write(self, connection: UpstreamConnection, data: bytes) -> None:
        if self.length is None:
            connection.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            connection.write(data)


def decode(body: bytes, codings: list[bytes], limit: int) -> bytes:
    """A lookup's answer without its content coding: what cannot be read cannot be verified.

    Raises BadAnswer where the coding is unknown or broken, or the body has more bytes than the limit.
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
