"""Request bodies on their way to a broker: streamed, and kept as far as they may have to be sent again."""

from aiohttp import StreamReader

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.memory import Budget


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
