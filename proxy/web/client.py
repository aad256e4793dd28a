"""One client's connection: aiohttp's server protocol, with its parser, keep-alive and limits, and four things more.

Answers are written as bytes; parse errors are answered in JSON; an HTTP/2 preface is told apart; and after a
switch of protocols the bytes go to a tunnel.
"""

import asyncio
import ipaddress
import logging
import socket
import struct
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo
from aiohttp.web_request import BaseRequest

from proxy.config.model import Network
from proxy.observe.metrics import Metrics
from proxy.observe.records import Record
from proxy.web import heads

_HTTP2_PREFACE = "Pause on PRI/Upgrade"
"""What llhttp says when it has read one."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER for an end with RST; without it the system sends FIN, however a transport is closed."""

log = logging.getLogger("proxy.web")


class Switched(Protocol):
    """Who gets a client's bytes after a switch of protocols."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...
    def feed_eof(self) -> None: ...
    def client_writable(self, writable: bool) -> None: ...


class Answered:
    """What aiohttp wants of a response that has been written already."""

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: BaseRequest) -> None:
        pass

    async def write_eof(self) -> None:
        pass


class ClientConnection(RequestHandler):
    """A connection that a client, or the gateway for it, has opened."""

    __slots__ = ("_body", "_metrics", "_switched", "_trust", "peer")

    def __init__(self, manager: web.Server, metrics: Metrics, **settings: Any) -> None:
        super().__init__(manager, loop=asyncio.get_running_loop(), **settings)
        self._metrics = metrics
        self._switched: Switched | None = None
        self._body: StreamReader = EMPTY_PAYLOAD
        self._trust: tuple[tuple[Network, ...], bool] = ((), False)
        self.peer = ""

    def is_trusted(self, networks: tuple[Network, ...]) -> bool:
        """Whether the peer is one of the proxies whose forwarding headers count."""
        if self._trust[0] is not networks:
            address = ipaddress.ip_address(self.peer) if self.peer else None
            self._trust = (networks, address is not None and any(address in network for network in networks))
        return self._trust[1]

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken what was written."""
        if self._paused:
            await self._drain_helper()

    def break_off(self, gently: bool) -> None:
        """End the connection inside an answer. A reset is needed where the end of the connection is the answer's."""
        if self.transport is not None:
            if gently:
                self.transport.close()
            else:
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                self.transport.abort()

    def hand_over(self, switched: Switched) -> None:
        """From now on, the client's bytes are not HTTP."""
        self._switched = switched
        self.set_parser(cast(Any, switched))

    def let_read(self, readable: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if readable:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].partition("%")[0] if peer else ""
        self._metrics.connections.add("http")
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._metrics.connections.add("http", by=-1)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._switched is not None:
            self._switched.client_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._switched is not None:
            self._switched.client_writable(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages:
            message, body = self._messages[-1]
            if isinstance(message, _ErrInfo):
                self._break_body(_first_line(message.message))
            else:
                self._body = body

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a bool, aiohttp gives none
        """A client that ends inside a body can still be told so; over TLS there are no half-open connections."""
        return self._break_body("it ends early") and self.ssl_context is None

    def _break_body(self, why: str) -> bool:
        """Tell whoever reads the newest body that there is no more of it, which aiohttp's parser leaves out."""
        if self._body.is_eof():
            return False
        self._body.set_exception(RequestPayloadError(why))
        self._body.feed_eof()  # or aiohttp would wait for the rest, and stumble over the exception
        return True

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is not HTTP, or a fault of our own, in the form of all our answers."""
        code, text = "bad-request", _first_line(message)
        if text == _HTTP2_PREFACE:
            log.warning(
                "a gateway speaks HTTP/2 to this socket, which takes HTTP/1.1: in Istio name the port http (not http2 "
                "or grpc) and set h2UpgradePolicy to DO_NOT_UPGRADE; in Envoy drop http2_protocol_options"
            )
            self.break_off(gently=True)
        elif isinstance(exc, LineTooLong) or "Too many headers" in text:
            status, code, text = 431, "head-too-large", "the request line, a header or their number is over the limit"
        elif status >= 500 and not isinstance(exc, ConnectionError):
            log.error("%s %s failed", request.method, request.path, exc_info=exc)
            code, text = "internal-error", "this is a fault of the proxy; its log says more"
        if self.transport is None or self.transport.is_closing():
            raise ConnectionError("there is nobody to answer, or part of an answer is out already")
        if status < 500:  # the others were counted by their exchange
            self._metrics.count(Record(status=status))
        reason, headers, body = heads.own_answer(status, code, text)
        headers.append((b"Connection", b"close"))
        self.write(heads.write_head(b"HTTP/1.1 %d %b" % (status, reason), headers) + body)
        return cast(web.StreamResponse, Answered(keep_alive=False))


def _first_line(message: str | None) -> str:
    """What aiohttp's parser says, without the quotation that it adds."""
    return (message or "this is not HTTP/1.1").splitlines()[0].rstrip(":")
