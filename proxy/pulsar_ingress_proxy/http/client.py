"""One client's connection: aiohttp's server protocol, with its parser, keep-alive and limits, and a few things more.

A request without a body, on a connection that waits for one, goes straight to its exchange, without a task or a
Request object; all others go aiohttp's own way. Answers are written as bytes. Parse errors are answered in JSON, an
HTTP/2 preface is told apart, and after a switch of protocols the bytes go to a tunnel.
"""

import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo
from aiohttp.web_request import BaseRequest

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.net.errors import UpstreamError
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.syntax.authorities import Network

if TYPE_CHECKING:
    from pulsar_ingress_proxy.http.server import HttpServer

_HTTP2_PREFACE = "Pause on PRI/Upgrade"
"""What llhttp says when it has read one."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER for an end with RST; without it the system sends FIN, however a transport is closed."""

_TO_CLIENT, _TO_BROKER = range(2)

_LINGERING = 2.0
"""Seconds in which a client that was refused may hear of it."""

log = logging.getLogger("proxy.web")


class Switched(Protocol):
    """Who gets a client's bytes after a switch of protocols."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...
    def feed_eof(self) -> None: ...
    def client_writable(self, writable: bool) -> None: ...


class Ongoing(Protocol):
    """A request that is being answered without a task."""

    def abandon(self) -> None: ...


class TooSlow(UpstreamError):
    """The client does not read its answer."""

    code = "client-stalled"


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

    __slots__ = (
        "_body",
        "_buffers",
        "_charged",
        "_head_bytes",
        "_head_timer",
        "_held",
        "_http_server",
        "_is_excess",
        "_is_taking_up",
        "_ongoing",
        "_switched",
        "_transport",
        "_trust",
        "_unsent",
        "is_draining",
        "loop",
        "peer",
        "peer_field",
    )  # fmt: skip

    def __init__(self, server: "HttpServer", **settings: Any) -> None:
        self.loop = asyncio.get_running_loop()
        super().__init__(server, loop=self.loop, **settings)
        self._http_server = server
        self._buffers = server.buffers
        self._ongoing: Ongoing | None = None
        self._held = b""
        """What came while a request was being answered. While there is any, all that arrives is appended to it and
        nothing is read from the socket, so that bytes are looked at in the order in which they came."""
        self._is_taking_up = False
        """Whether the held bytes are about to be taken up."""
        self._switched: Switched | None = None
        self._body: StreamReader = EMPTY_PAYLOAD
        self._transport: asyncio.BaseTransport | None = None
        """As long as there is a connection; aiohttp forgets its own as soon as it closes it."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._trust: tuple[tuple[Network, ...], bool] = ((), False)
        self._is_excess = False
        """One more connection than there may be: it gets a 503."""
        self._charged = 0
        """Bytes that this connection holds of the budget of all."""
        self._unsent = [0, 0]
        """Those among them that wait to be taken, by the client and by the broker at the other end of a tunnel."""
        self.is_draining = False
        self.peer, self.peer_field = "", b""

    # What exchanges call.

    def is_trusted(self, networks: tuple[Network, ...]) -> bool:
        """Whether the peer is one of the proxies whose forwarding headers count."""
        if self._trust[0] is not networks:
            address = ipaddress.ip_address(self.peer) if self.peer else None
            self._trust = (networks, address is not None and any(address in network for network in networks))
        return self._trust[1]

    def charge(self, size: int) -> bool:
        """Hold so many bytes more; false where all connections together would hold too many."""
        if self._transport is None or not self._buffers.take(size):
            return False
        self._charged += size
        return True

    def release(self) -> None:
        """Give back what was held for requests that have ended; `connection_lost` gives back all."""
        if self._transport is None:
            return
        held = self._unsent[_TO_CLIENT] + self._unsent[_TO_BROKER] + len(self._held) + memory.HEAD * self._head_bytes
        if self._messages:
            held += sum(_cost(message) for message, _ in self._messages if type(message) is RawRequestMessage)
        self._buffers.give_back(self._charged - held)
        self._charged = held

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    async def drain(self, within: float) -> None:
        """Wait until the client has taken what was written; raises TooSlow if it does not."""
        if self._paused:
            try:
                async with asyncio.timeout(within):
                    await self._drain_helper()
            except TimeoutError:
                raise TooSlow(f"the client has read nothing for {within:g} s") from None

    def break_off(self, gently: bool) -> None:
        """End the connection inside an answer. A reset is needed where the end of the connection is the answer's."""
        if self.transport is not None:
            if gently:
                self.transport.close()
            else:
                self.reset()

    def reset(self) -> None:
        """End the connection at once, also one that is closed and has bytes left to send."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:  # over TLS, the socket can be gone before we are told
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            cast(asyncio.Transport, self._transport).abort()

    def refuse_head(self) -> None:
        """The head has more bytes than it may have, be they one line or many."""
        self._refuse(431, "head-too-large", "the head of the request is over the limit (limits.headBytes)")

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

    def tunnel_waits(self, size: int) -> None:
        """So many bytes of a tunnel have not been taken by the broker."""
        self._hold_unsent(_TO_BROKER, size)

    def _hold_unsent(self, where: int, size: int) -> None:
        more = size - self._unsent[where]
        if more > 0 and not self.charge(more):
            self.reset()  # one side does not read, and others need the memory
            return
        if more < 0:
            self._buffers.give_back(-more)
            self._charged += more
        self._unsent[where] = size

    def request_ended(self, keep_alive: bool) -> None:
        """A request that was answered without a task is done with."""
        self._ongoing = None
        if self.transport is None:
            return
        if not keep_alive or self.is_draining or self._force_close:
            self._held = b""
            self.transport.close()
            return
        self._next_keepalive_close_time = self.loop.time() + self._keepalive_timeout
        if self._head_bytes:
            self._start_head_timer()
        self.release()
        self._take_up_held()

    def _take_up_held(self) -> None:
        if self._held and not self._is_taking_up:
            # In a turn of its own, or a pipeline of requests would become a stack of calls.
            self._is_taking_up = True
            self.loop.call_soon(self._look_at_held)

    def _look_at_held(self) -> None:
        self._is_taking_up = False
        if self._ongoing is None and not self._paused:
            held, self._held = self._held, b""
            self._look_at(held)
            if not self._held:
                self.let_read(True)

    # What the transport and aiohttp call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].partition("%")[0] if peer else ""
        self.peer_field = self.peer.encode()
        self._transport = transport
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=memory.UNSENT)
        super().connection_made(transport)
        self._is_excess = not self._http_server.admit(self)
        if self._is_excess:
            self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        self._transport = None
        ongoing, self._ongoing = self._ongoing, None
        super().connection_lost(exc)
        if ongoing is not None:
            ongoing.abandon()
        self._buffers.give_back(self._charged)
        self._charged, self._unsent = 0, [0, 0]
        self._http_server.let_go(self)

    def close(self) -> None:
        """End the connection, after the request under way; aiohttp would stop listening to that one's body."""
        if self._ongoing is not None or self._request_in_progress or self._messages:
            self.is_draining = True
        else:
            self.force_close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._transport is not None:
            self._hold_unsent(_TO_CLIENT, cast(asyncio.Transport, self._transport).get_write_buffer_size())
        if self._switched is not None:
            self._switched.client_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._hold_unsent(_TO_CLIENT, 0)
        if self._switched is not None:
            self._switched.client_writable(True)
        self._take_up_held()

    def data_received(self, data: bytes) -> None:
        if self._held or self._ongoing is not None:
            self._hold(data)
        else:
            self._look_at(data)

    def _look_at(self, data: bytes) -> None:
        if self._force_close:
            return  # it has been refused, and hears of it
        if self._is_excess:
            self._refuse(503, "overloaded", "more connections are open than limits.connections allows", retry_after=1)
        elif self._waiter is None or self._waiter.done() or self._messages:
            found, queued = self._request_count, len(self._messages)
            if self._body.is_eof() and self._switched is None and not self.charge(memory.HEAD * len(data)):
                self.reset()  # it asks for more before it has its answer, and others need the memory
                return
            super().data_received(data)
            if not self._charge_fields(islice(self._messages, queued, None)):
                self.reset()
                return
            self._note_body()
            if self._request_count > found:
                self._head_bytes = 0
                self._stop_head_timer()
            elif self._request_count == 0:
                self._mind_head(len(data))  # a head that began before aiohttp waited for one
        elif self._paused:  # whoever does not read what he asked for is not asked for more
            self._hold(data)
        else:
            self._begin(data)

    def _hold(self, data: bytes) -> None:
        self.let_read(False)
        if self.charge(len(data)):
            self._held += data
        elif self._ongoing is not None:
            self.is_draining = True  # what comes after the request under way is lost
        else:
            self.reset()

    def _begin(self, data: bytes) -> None:
        """Data on a connection that waits for a request: as in aiohttp, but for requests that need no task."""
        assert self._parser is not None
        assert self._waiter is not None
        if not self.charge((0 if self._head_bytes else memory.REQUEST) + memory.HEAD * len(data)):
            self._refuse_excess()
            return
        try:
            messages, upgraded, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            fault: tuple[Any, StreamReader] = (_ErrInfo(400, error, error.message), EMPTY_PAYLOAD)
            messages, upgraded, tail = [fault], False, b""
        if not messages:
            self._mind_head(len(data))
            return
        is_short, self._head_bytes = self._head_bytes + len(data) <= self.max_line_size, 0
        self._stop_head_timer()
        if not self._charge_fields(messages):
            self._refuse_excess()
            return
        message, body = messages[0]
        is_bare = body is EMPTY_PAYLOAD and type(message) is RawRequestMessage and not message.upgrade
        if is_bare and is_short and len(messages) == 1:
            self._parser.message_consumed()
            self._request_count += 1
            self._note_rest(data)
            cycle = self._http_server.cycle(self, message)
            self._ongoing = cycle
            cycle.start()
            return
        self._request_count += len(messages)
        self._messages.extend(messages)
        self._waiter.set_result(None)
        if len(self._messages) >= self._max_msg_queue_size:
            self._pause_reading_for_buffer()
        self._upgraded = upgraded
        self._message_tail = tail if upgraded else b""
        self._note_body()

    def _note_rest(self, data: bytes) -> None:
        """See what followed a head that ended in this data: nothing, or the beginning of the next."""
        _, end, rest = data.partition(b"\r\n\r\n")
        if not end:  # it came in two pieces
            rest = data.lstrip(b"\r\n")
        self._head_bytes = len(rest)

    def _charge_fields(self, messages: Iterable[tuple[Any, StreamReader]]) -> bool:
        fields = sum(len(message.raw_headers) for message, _ in messages if type(message) is RawRequestMessage)
        return self.charge(memory.FIELD * fields)

    def _refuse_excess(self) -> None:
        text = "connections hold more bytes than limits.bufferBytes allows"
        self._refuse(503, "overloaded", text, retry_after=1)

    def _mind_head(self, size: int) -> None:
        """A head has begun and is not whole: it may take only so long, and be only so large."""
        if self._upgraded or self._payload_parser is not None:
            return
        self._head_bytes += size
        if self._head_bytes > self.max_line_size:
            self.refuse_head()
        else:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._http_server.head_timeout, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        if self._is_excess:
            self.break_off(gently=True)
        else:
            self._refuse(408, "head-timeout", "the head of the request did not come in time")

    def _process_keepalive(self) -> None:
        if self._ongoing is not None:  # or aiohttp would think that the connection idles
            self._next_keepalive_close_time = self.loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def _note_body(self) -> None:
        """Remember the newest body, and tell its reader if the parser has found that it is broken."""
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
        """Answer what is not HTTP in the form of all our answers."""
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
        self._refuse(status, code, text)
        return cast(web.StreamResponse, Answered(keep_alive=False))

    def _refuse(self, status: int, code: str, text: str, retry_after: int = 0) -> None:
        """Answer what never became a request, and end the connection."""
        self._stop_head_timer()
        self._http_server.count(AccessRecord(status=status))
        reason, fields, body = headers.own_answer(status, code, text)
        if retry_after:
            fields.append(b"Retry-After: %d" % retry_after)
        fields.append(b"Connection: close")
        self.write(headers.write_head(b"HTTP/1.1 %d %b" % (status, reason), fields) + body)
        self._is_excess = False
        self._force_close = True  # so that aiohttp takes no more of it
        if self.transport is not None and self.transport.can_write_eof():
            # RFC 9112 9.6: to close it while the client still sends would reset it, and the answer be lost.
            self.transport.write_eof()
            self._head_timer = self.loop.call_later(_LINGERING, self.break_off, True)
        else:
            self.break_off(gently=True)


def head_size(message: RawRequestMessage) -> int:
    """The bytes of a head, but for what its lines had to spare."""
    line = len(message.method) + len(message.path) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in message.raw_headers)


def _cost(message: RawRequestMessage) -> int:
    return memory.HEAD * head_size(message) + memory.FIELD * len(message.raw_headers)


def _first_line(message: str | None) -> str:
    """What aiohttp's parser says, without the quotation that it adds."""
    return (message or "this is not HTTP/1.1").splitlines()[0].rstrip(":")
