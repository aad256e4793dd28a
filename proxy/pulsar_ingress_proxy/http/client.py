"""A client's connection: parses one request at a time and enforces limits, timeouts and back-pressure.

Each request has a parser of its own, which gets no byte of the next one; that is read only after the current one is
answered, so answers cannot get out of order. Parse errors are answered in JSON, an HTTP/2 preface is detected, and
after a protocol switch the bytes go to a tunnel.
"""

import asyncio
import logging
import socket
import struct
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from aiohttp import EMPTY_PAYLOAD, HttpVersion11, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.http.body import BodyEnd, room_for
from pulsar_ingress_proxy.http.request_cycle import RequestCycle
from pulsar_ingress_proxy.net.errors import BodyBroken, TooSlow
from pulsar_ingress_proxy.routing.selection import SHED
from pulsar_ingress_proxy.syntax.authorities import Address, Networks, peer_address

if TYPE_CHECKING:
    from pulsar_ingress_proxy.http.server import HttpServer

_HTTP2_PREFACE = "Pause on PRI/Upgrade"
"""llhttp's error for an HTTP/2 preface."""

_LINGER_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER to close with RST; without it the kernel sends FIN, even if the transport is aborted."""

_END_OF_HEAD = b"\r\n\r\n"
_TO_CLIENT, _TO_BROKER = range(2)

_LINGER_SECONDS = 2.0
"""Seconds that a refused client has to read the answer."""

log = logging.getLogger("proxy.web")


class Switched(Protocol):
    """Receives a client's bytes after a protocol switch."""

    def client_data(self, data: bytes) -> None: ...
    def client_lost(self) -> None: ...
    def client_writable(self, writable: bool) -> None: ...


class ClientConnection(BaseProtocol):
    """A connection from a client or its gateway."""

    __slots__ = (
        "_body",
        "_body_end",
        "_charged",
        "_head_bytes",
        "_head_end",
        "_held",
        "_is_excess",
        "_is_refused",
        "_request",
        "_server",
        "_switched",
        "_timer",
        "_trust",
        "_unsent",
        "_was_held",
        "_write_waiter",
        "address",
        "idle_since",
        "is_draining",
        "is_paused",
        "loop",
        "peer_field",
    )  # fmt: skip

    def __init__(self, server: "HttpServer") -> None:
        self.loop = server.loop
        super().__init__(self.loop)
        self._server = server
        self._parser: HttpRequestParser | None = None
        """The parser of the current request. It keeps the head that it parsed, so there is none between requests."""
        self._request: RequestCycle | None = None
        """The current request."""
        self._body: StreamReader = EMPTY_PAYLOAD
        """The body of the current request, fed by the parser."""
        self._held = b""
        """Bytes received after the current request."""
        self._was_held = False
        """Whether they are being parsed: they have waited for the request before them, not for the sidecar."""
        self._body_end = BodyEnd(0)
        """Where the body of the current request ends."""
        self._head_bytes = 0
        """Size of the incomplete head."""
        self._head_end = b""
        """Its last bytes, which may begin the blank line that ends it."""
        self._switched: Switched | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._trust: tuple[Networks | None, bool] = (None, False)
        self._charged = 0
        """Bytes charged to the shared budget."""
        self._unsent = (0, 0)
        """The unsent bytes among them: to the client, and to the broker at the other end of a tunnel."""
        self._write_waiter: asyncio.Future[None] | None = None
        self._is_excess = False
        """Whether the connection is over the limit: any request gets a 503."""
        self._is_refused = False
        """Whether a refusal is being sent."""
        self.is_paused = False
        """Whether the write buffer is over its limit."""
        self.is_draining = False
        self.idle_since = 0.0
        """When the last request ended, by the loop's clock."""
        self.address: Address | None = None
        self.peer_field = b""
        """The address as written to X-Forwarded-For."""

    # Called by requests.

    def is_trusted(self, proxies: Networks) -> bool:
        """Whether the peer is a trusted proxy, whose forwarding headers count."""
        if self._trust[0] is not proxies:
            self._trust = (proxies, proxies.has(self.address))
        return self._trust[1]

    def charge(self, size: int) -> bool:
        """Charge bytes to the shared budget; false if it is exhausted."""
        if self.transport is None or not self._server.buffers.take(size):
            return False
        self._charged += size
        return True

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    async def drain(self, within: float) -> None:
        """Wait until the client has read what was written; raises TooSlow."""
        if not self.is_paused:
            return
        self._write_waiter = self._write_waiter or self.loop.create_future()
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(self._write_waiter)
        except TimeoutError:
            raise TooSlow(f"the client has read nothing for {within:g} s") from None

    def break_off(self, gently: bool) -> None:
        """Close the connection inside an answer; an answer that ends with the connection needs a reset."""
        if self.transport is not None:
            if gently:
                self.transport.close()
            else:
                self.reset()

    def reset(self) -> None:
        """Close the connection with RST, even if it is closing and has bytes left to send."""
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            if sock is not None:  # over TLS, the socket can be gone before connection_lost
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            self.transport.abort()

    def hand_over(self, switched: Switched) -> None:
        """Pass the client's bytes to a tunnel from now on."""
        self._switched = switched
        held, self._held = self._held, b""
        if held:
            switched.client_data(held)
            self.let_read(True)

    def let_read(self, readable: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if readable:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def charge_tunnel(self, size: int) -> None:
        """Charge the bytes of a tunnel that are unsent to the broker."""
        self._hold_unsent(_TO_BROKER, size)

    def request_ended(self, keep_alive: bool) -> None:
        """The request has ended; the next one may begin."""
        self._request = None
        self.idle_since = self.loop.time()
        if self.transport is None:
            return
        if not keep_alive or self.is_draining or not (self._body is EMPTY_PAYLOAD or self._body.is_eof()):
            self._held = b""
            self.transport.close()
            return
        self._parser = None
        held = self._unsent[_TO_CLIENT] + len(self._held)
        self._server.buffers.give_back(self._charged - held)
        self._charged = held
        if self._held:
            # Through the event loop, or pipelined requests would recurse.
            self.loop.call_soon(self._parse_held)

    def _parse_held(self) -> None:
        """Parse what was received after the last request, unless the client does not read its answers."""
        if self._request is None and self.transport is not None and not self.is_paused:
            held, self._held = self._held, b""
            self._server.buffers.give_back(len(held))
            self._charged -= len(held)
            if held:
                self._was_held = True
                self._feed(held)
                self._was_held = False
            if len(self._held) <= memory.READ_BUFFER:
                self.let_read(True)

    # Transport callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = peer_address(peer)
        self.peer_field = peer[0].partition("%")[0].encode() if peer else b""
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=memory.UNSENT)
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._is_excess = not self._server.admit(self)
        if self._is_excess:
            self._timer = self.loop.call_later(self._server.head_timeout, self.break_off, True)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        self._server.buffers.give_back(self._charged)
        self._charged, self._unsent, self._held = 0, (0, 0), b""
        if self._write_waiter is not None and not self._write_waiter.done():
            self._write_waiter.set_result(None)
        if not self._body.is_eof():
            self._break_body("the connection is lost")
        if self._switched is not None:
            self._switched.client_lost()
        if self._request is not None:
            self._request.abandon()
        # Break reference cycles, which would stay until a full garbage collection.
        self._body = EMPTY_PAYLOAD
        self._parser = None
        self._server.let_go(self)

    def close(self) -> None:
        """Close the connection after the current request."""
        self.is_draining = True
        if self._request is None and self.transport is not None:
            self.transport.close()

    def close_if_idle(self, since: float) -> None:
        """Close the connection if it had no request since then."""
        if self._request is None and self.idle_since < since and self.transport is not None:
            self.transport.close()

    def pause_writing(self) -> None:
        self.is_paused = True
        if self.transport is not None:
            self._hold_unsent(_TO_CLIENT, self.transport.get_write_buffer_size())
        if self._switched is not None:
            self._switched.client_writable(False)

    def resume_writing(self) -> None:
        self.is_paused = False
        self._hold_unsent(_TO_CLIENT, 0)
        waiter, self._write_waiter = self._write_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._switched is not None:
            self._switched.client_writable(True)
        self._parse_held()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called by the body's reader when it has caught up."""
        super().resume_reading(resume_parser)
        if len(self._held) > memory.READ_BUFFER:
            self.let_read(False)

    def eof_received(self) -> bool:
        """Keep a half-open connection, so that a truncated body can be answered; TLS has no half-open connections."""
        is_open = not self._body.is_eof()
        if is_open:
            self._break_body("it ends early")
        return is_open and self.transport is not None and self.transport.get_extra_info("sslcontext") is None

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return  # a body's reader resumes after the connection was lost
        if self._switched is not None:
            self._switched.client_data(data)
        elif self._request is not None and not self._body.is_eof():
            self._feed(data)
        elif self._request is not None or self._held or self.is_paused:
            self._hold(data)
        else:
            self._feed(data)

    def _hold(self, data: bytes) -> None:
        """Buffer early bytes. Reading continues up to a limit, so that a disconnect is noticed."""
        if not data or self._is_refused:
            return
        if self.charge(len(data)):
            self._held += data
            if len(self._held) > memory.READ_BUFFER:
                self.let_read(False)
        elif self._request is not None:
            self.let_read(False)
            self.is_draining = True  # bytes after the current request are lost
        else:
            self.reset()

    def _feed(self, data: bytes) -> None:
        """Parse bytes of a request's head, or of the current request's body."""
        if self._is_refused:
            return
        if self._is_excess:
            self._refuse(503, "overloaded", "more connections are open than limits.connections allows", retry_after=1)
            return
        try:
            if self._request is None:
                self._read_head(data)
            else:
                self._read_body(data)
        except HttpProcessingError as error:
            self._not_http(error)

    def _read_head(self, data: bytes) -> None:
        """Parse a head and hold what follows it, so that the parser does not see it yet; raises HttpProcessingError."""
        if not self._head_bytes:
            data = data.lstrip(b"\r\n")  # RFC 9112 2.2
        rest, end = b"", (self._head_end + data).find(_END_OF_HEAD)
        if end >= 0 and (end := end + 4 - len(self._head_end)) < len(data):
            data, rest = data[:end], data[end:]
        # Before parsing: the parser keeps a head until the next one comes, also if the request is refused.
        room = memory.HEAD * len(data) + memory.FIELD * data.count(b"\n")
        if not self.charge(room if self._head_bytes else room + memory.REQUEST):
            self._refuse_overload()
            return
        parser = self._current_parser()
        messages, _, _ = parser.feed_data(data)
        if rest and not messages:  # the blank line was inside an HTTP/2 preface
            messages, _, _ = parser.feed_data(rest)
        if messages:
            self._begin(*messages[0], len(data), rest)
        else:
            self._wait_for_head(data)

    def _current_parser(self) -> HttpRequestParser:
        if self._parser is None:
            limits = self._server.limits
            self._parser = HttpRequestParser(
                self,
                self.loop,
                memory.READ_BUFFER,
                max_line_size=limits.head_bytes,
                max_field_size=limits.head_bytes,
                max_headers=limits.headers,
                auto_decompress=False,
                max_msg_queue_size=1,
            )
        return self._parser

    def _begin(self, message: RawRequestMessage, body: StreamReader, last_bytes: int, rest: bytes) -> None:
        """Start a request with a complete head; `rest` came after it."""
        size = self._head_bytes + last_bytes
        if self._timer is not None:
            self._stop_timer()
        self._head_bytes, self._head_end = 0, b""
        limit = self._server.limits.head_bytes
        if size > limit and headers.size(message) > limit:
            self._refuse_head()
            return
        if not self._was_held and self._server.overload.refuses(self.transport):
            self._shed(message, body, rest)
            return
        self._body = body
        if body is not EMPTY_PAYLOAD:
            if not self.charge(room_for(_length(message))):
                self._refuse_overload()
                return
            self._body_end = BodyEnd(_length(message))
            if rest:
                self._read_body(rest)
        elif rest:
            self._hold(rest)
        if message.upgrade:  # the parser assumes that the upgrade succeeds, which is not known yet
            self._current_parser().feed_data(b"")
            self._current_parser().set_upgraded(False)
        self._request = RequestCycle(self._server, self, message, body)
        self._request.start()

    def _read_body(self, data: bytes) -> None:
        """Parse bytes of a body and hold what follows it; raises HttpProcessingError.

        A parser that saw the next request would put the last trailer of this one among that one's fields.
        """
        size = self._body_end.size_in(data)
        self._current_parser().feed_data(data[:size])
        if size < len(data):
            self._hold(data[size:])

    def _wait_for_head(self, data: bytes) -> None:
        """Apply the size limit and the timeout to an incomplete head."""
        self._head_bytes += len(data)
        self._head_end = (self._head_end + data)[-3:]
        if self._head_bytes > self._server.limits.head_bytes:
            self._refuse_head()
        elif self._head_bytes and self._timer is None:
            self._timer = self.loop.call_later(self._server.head_timeout, self._head_timed_out)

    def _head_timed_out(self) -> None:
        self._refuse(408, "head-timeout", "the head of the request did not come in time")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold_unsent(self, where: int, size: int) -> None:
        more = size - self._unsent[where]
        if more > 0 and not self.charge(more):
            self.reset()  # one side does not read, and other connections need the memory
            return
        if more < 0 and self.transport is not None:
            self._server.buffers.give_back(-more)
            self._charged += more
        self._unsent = (size, self._unsent[1]) if where == _TO_CLIENT else (self._unsent[0], size)

    def _break_body(self, why: str) -> None:
        """Fail the body for its reader."""
        self._body.set_exception(BodyBroken(f"the request's body is broken: {why}"))
        self._body.feed_eof()

    # Refusals before there is a request.

    def _not_http(self, error: HttpProcessingError) -> None:
        # aiohttp's message without the excerpt that it appends.
        text = (error.message or "this is not HTTP/1.1").splitlines()[0].rstrip(":")
        if self._request is not None:  # its body is broken
            self._break_body(text)
        elif text == _HTTP2_PREFACE:
            log.warning(
                "received HTTP/2, but this socket accepts only HTTP/1.1: in Istio name the port http (not http2 "
                "or grpc) and set h2UpgradePolicy to DO_NOT_UPGRADE; in Envoy drop http2_protocol_options"
            )
            self.break_off(gently=True)
        elif isinstance(error, LineTooLong) or "Too many headers" in text:
            text = "the request line, a header or their number is over the limit"
            self._refuse(431, "head-too-large", text)
        else:
            self._refuse(400, "bad-request", text)

    def _shed(self, message: RawRequestMessage, body: StreamReader, rest: bytes) -> None:
        """Refuse a request to shed load. The connection stays, as a new one would cost more, unless a body follows."""
        self._server.count_shed()
        if body is not EMPTY_PAYLOAD:
            self._close_with(SHED.status, SHED.code, SHED.text, SHED.retry_after)
            return
        is_last = message.should_close or message.version < HttpVersion11 or self.is_draining
        self.write(_shed_answer(message.method == "HEAD", is_last))
        self._body = EMPTY_PAYLOAD
        if rest:
            self._hold(rest)
        if message.upgrade:
            self._current_parser().set_upgraded(False)
        self.request_ended(not is_last)
        if not rest:
            # Once in a turn: libuv extends a turn while 1,024 sockets have data, and timers and tasks wait meanwhile.
            self.let_read(False)
            self.loop.call_soon(self.let_read, True)

    def _refuse_head(self) -> None:
        self._refuse(431, "head-too-large", "the head of the request is over the limit (limits.headBytes)")

    def _refuse_overload(self) -> None:
        text = "connections hold more bytes than limits.bufferBytes allows"
        self._refuse(503, "overloaded", text, retry_after=1)

    def _refuse(self, status: int, code: str, text: str, retry_after: int = 0) -> None:
        """Answer without a request, and close the connection."""
        self._server.count_refusal(status)
        self._close_with(status, code, text, retry_after)

    def _close_with(self, status: int, code: str, text: str, retry_after: int) -> None:
        self._stop_timer()
        reason, fields, body = headers.own_answer(status, code, text)
        if retry_after:
            fields.append(b"Retry-After: %d" % retry_after)
        fields.append(b"Connection: close")
        self.write(headers.write_head(b"HTTP/1.1 %d %b" % (status, reason), fields) + body)
        self._is_refused = True
        if self.transport is not None and self.transport.can_write_eof():
            # RFC 9112 9.6: closing while the client still sends would reset the connection and lose the answer.
            self.transport.write_eof()
            self._timer = self.loop.call_later(_LINGER_SECONDS, self.break_off, True)
        else:
            self.break_off(gently=True)


@cache
def _shed_answer(is_head: bool, is_last: bool) -> bytes:
    reason, fields, body = headers.own_answer(SHED.status, SHED.code, SHED.text)
    fields.append(b"Retry-After: %d" % SHED.retry_after)
    if is_last:
        fields.append(b"Connection: close")
    return headers.write_head(b"HTTP/1.1 %d %b" % (SHED.status, reason), fields) + (b"" if is_head else body)


def _length(message: RawRequestMessage) -> int | None:
    """The size of a request's body; None if it is chunked."""
    return None if message.chunked else int(message.headers.get("Content-Length", 0))
