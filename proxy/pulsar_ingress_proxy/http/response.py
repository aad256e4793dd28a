"""The answer to one request, written to the client as bytes: whole, as it comes, or of our own."""

import logging

from aiohttp import StreamReader

from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.http.client import ClientConnection, TooSlow
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.errors import BodyBroken, UpstreamError
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.routing.selection import Refusal

log = logging.getLogger("proxy.web")


class ResponseWriter:
    """One answer. Its head goes out once; what goes wrong after that can only be shown by breaking off."""

    def __init__(
        self,
        client: ClientConnection,
        record: AccessRecord,
        chunks: bool,
        keep_alive: bool,
        request_body: StreamReader | None = None,
    ) -> None:
        self._client = client
        self._record = record
        self._chunks = chunks
        """Whether the client knows chunks: HTTP/1.0 does not."""
        self.keep_alive = keep_alive
        self._request_body = request_body

    def whole(self, status: int, reason: bytes, fields: headers.Fields, body: bytes) -> None:
        fields.append(b"Content-Length: %d" % len(body))
        self.head(status, reason, fields, body)

    def head(self, status: int, reason: bytes, fields: headers.Fields, body: bytes = b"") -> None:
        """The head, and what follows it in the same write."""
        record = self._record
        fields.append(b"X-Request-Id: %b" % record.id.encode())
        if self._client.is_draining or (self._request_body is not None and not self._request_body.is_eof()):
            self.keep_alive = False  # nobody will read the rest of the body
        if not self.keep_alive:
            fields.append(b"Connection: close")
        record.status = status
        record.response_bytes += len(body)
        self._client.write(headers.write_head(b"HTTP/1.1 %d %b" % (status, reason), fields) + body)

    def refuse(self, refusal: Refusal, close: bool = False) -> None:
        """An answer of our own."""
        record = self._record
        self.keep_alive = self.keep_alive and not close
        if refusal.detail:
            log.warning("%s %s %s: %s: %s", record.id, record.method, record.kind, refusal.text, refusal.detail)
        reason, fields, body = headers.own_answer(refusal.status, refusal.code, refusal.text)
        if refusal.retry_after:
            fields.append(b"Retry-After: %d" % refusal.retry_after)
        self.head(refusal.status, reason, fields, body if record.method != "HEAD" else b"")

    async def stream(self, connection: UpstreamConnection, fields: headers.Fields, data: bytes, within: float) -> bool:
        """An answer as it comes, `data` being what has come of it; false where it broke on the way."""
        chunked = False
        if connection.length is not None:
            fields.append(b"Content-Length: %d" % connection.length)
        elif self._chunks:
            chunked = True
            fields.append(b"Transfer-Encoding: chunked")
        else:
            self.keep_alive = False
        self.head(connection.status, connection.reason, fields)
        try:
            while data or (data := await connection.read(within)):
                self._record.response_bytes += len(data)
                self._client.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
                data = b""
                await self._client.drain(within)
        except UpstreamError as error:
            # The head is out: a broken connection is the only way left to say that this is not all.
            log.warning("%s %s %s: %s", self._record.id, self._record.method, self._record.kind, error)
            if not isinstance(error, BodyBroken | TooSlow):
                self._record.upstream_errors.append(error.code)
            self.break_off(gently=chunked or connection.length is not None)
            return False
        if chunked:
            self._client.write(b"0\r\n\r\n")
        return True

    def break_off(self, gently: bool) -> None:
        self.keep_alive = False
        self._client.break_off(gently)
