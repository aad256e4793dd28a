"""A connection to a broker; answers are parsed by httptools (llhttp, strict).

It handles framing and flow control; `RequestCycle` interprets the answers. aiohttp's client would cost four times as
much as everything else in a lookup.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from pulsar_ingress_proxy.http.headers import HOP_BY_HOP, Fields, connection_options, without
from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly, TimedOut, Truncated, UpstreamError
from pulsar_ingress_proxy.net.tls import closed_cleanly, error_text
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

_FRAMING = HOP_BY_HOP | {b"content-length"}

HEAD_LIMIT = 65536
"""Maximum size of an answer's head, including interim answers; brokers send a few hundred bytes."""
_BUFFER_LIMIT = 65536


class RawReceiver(Protocol):
    """Receives the bytes after a protocol switch."""

    def upstream_data(self, data: bytes) -> None: ...
    def upstream_lost(self) -> None: ...
    def upstream_writable(self, writable: bool) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """One request at a time: `ask`, `head`, then `read` until it returns nothing."""

    __slots__ = (
        "__weakref__",
        "_buffered",
        "_callback",
        "_chunked",
        "_chunks",
        "_closed_cleanly",
        "_error",
        "_framing",
        "_idle",
        "_interim",
        "_keep_alive",
        "_last_write",
        "_loop",
        "_method",
        "_parser",
        "_raw",
        "_reading_paused",
        "_timer",
        "_transport",
        "_waiter",
        "_within",
        "_write_waiter",
        "born",
        "codings",
        "complete",
        "fields",
        "head_bytes",
        "head_done",
        "idle_since",
        "length",
        "location",
        "location_field",
        "on_continue",
        "reason",
        "status",
        "tail",
        "upgrades",
        "url",
        "used",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, url: ServiceUrl) -> None:
        self.url = url
        self.used = False
        """Whether it is reused, so that the broker may have closed it in the meantime."""
        self.born = loop.time()
        self.idle_since = self.born
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._raw: RawReceiver | None = None
        self.on_continue: Callable[[], None] | None = None
        """Called when the broker asks for the body with a 100 (Continue)."""
        self._waiter: asyncio.Future[None] | None = None
        self._callback: Callable[[], None] | None = None
        self._within = self._last_write = 0.0
        self._write_waiter: asyncio.Future[None] | None = None
        self._error: UpstreamError | None = None
        self._closed_cleanly = url.scheme != "https"
        self._begin("GET")
        self._idle = True

    def _begin(self, method: str) -> None:
        self._method = method
        self._idle = False
        self.head_bytes = 0
        self._reading_paused = False
        self._interim = False
        self._keep_alive = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self.status = 0
        self.reason = b""
        self.fields: Fields = []
        """The fields that are passed to the client."""
        self._framing: list[tuple[bytes, bytes]] = []
        """The other fields, with their names in lower case."""
        self.location: bytes | None = None
        self.location_field = b""
        """The field that it is in."""
        self.codings: list[bytes] = []
        self.upgrades = False
        self.length: int | None = None
        self._chunked = False
        self.tail = b""
        self.head_done = False
        self.complete = False

    # Called by requests.

    @property
    def alive(self) -> bool:
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    def ask(self, method: str, data: bytes, callback: Callable[[], None] | None = None, within: float = 0) -> None:
        """Send a request's head, and its body if it is at hand; more of it follows with `write`.

        `callback` is called when an answer's head has arrived or the connection failed, instead of awaiting `head`. The
        pool applies the timeout `within`, as a timer for each connection would cost more.
        """
        if self._method == "HEAD":
            self._parser = httptools.HttpResponseParser(self)  # llhttp still expects the announced body
        self._begin(method)
        self._callback = callback
        self._within = within
        self.write(data)

    def forget(self) -> None:
        """Close the connection without a call to the callback."""
        self._callback = None
        self.close()

    def write(self, data: bytes) -> None:
        self._last_write = self._loop.time()
        if self._transport is not None:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the broker has read what was written."""
        if self._write_waiter is not None:
            await asyncio.shield(self._write_waiter)
        if self._error is not None:
            raise self._error

    async def head(self, within: float) -> None:
        """Wait for the head of the final answer."""
        while not self.head_done and self._error is None:
            await self._wait(within)
        if self._error is not None and not self.complete:
            raise self._error

    def expire(self, now: float) -> None:
        """Fail if the answer is overdue."""
        if self._callback is not None and self._last_write + self._within < now:
            self._time_out(self._within)

    async def read(self, within: float) -> bytes:
        """The next piece of the body; empty at its end."""
        while not self._chunks:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait(within)
        return self.take()

    def take(self) -> bytes:
        """What was received of the body so far."""
        data = b"".join(self._chunks) if len(self._chunks) > 1 else self._chunks.popleft() if self._chunks else b""
        self._chunks.clear()
        self._buffered = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    def rest(self, now: float) -> bool:
        """Make the connection idle, for the next request; false if the answer or a side does not allow that."""
        if not self.complete or not self._keep_alive or self.tail or self._error is not None or self._raw is not None:
            return False
        if self._chunks:
            self.take()
        self.used = self._idle = True
        self.on_continue = None
        self.idle_since = now
        return self._transport is not None

    def close(self) -> None:
        """Close the connection; after a protocol switch, once everything is sent."""
        if self._transport is not None:
            if self._raw is not None:
                self._transport.close()
            else:
                self._transport.abort()

    def fail(self, error: UpstreamError) -> None:
        """Close the connection and raise the error in pending calls."""
        if self._error is None:
            self._error = error
        self.close()
        self._wake()

    def switch(self, receiver: RawReceiver) -> asyncio.Transport:
        """After a 101: pass the connection's bytes to the receiver."""
        if self._error is not None:
            raise self._error
        if self._transport is None:
            raise Truncated("the broker closed the connection when it had switched protocols")
        self._raw = receiver
        return self._transport

    # Transport callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        if self._raw is not None:
            self._raw.upstream_data(data)
            return
        if self._idle:
            # An unsolicited answer would be taken for that of the next request.
            self.fail(BadAnswer("the broker sent data on an idle connection"))
            return
        if self.complete:
            if self.status == 101:
                self.tail += data
                self._wake()  # the head may have come in the same read
            else:
                self.fail(BadAnswer("the broker sent more than its answer"))
            return
        rest = b""
        if not self.head_done:
            # Limits what the parser gets, as it does not report where the head ended.
            room = HEAD_LIMIT - self.head_bytes
            data, rest = data[:room], data[room:]
            self.head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            self.tail = data[switched.args[0] :]
        except httptools.HttpParserError as error:
            ours = error.__context__
            self.fail(ours if isinstance(ours, BadAnswer) else BadAnswer(f"the broker's answer is not HTTP: {error}"))
            return
        if not self.head_done and self.head_bytes == HEAD_LIMIT:
            self.fail(BadAnswer(f"the head of the broker's answer has more than {HEAD_LIMIT} bytes"))
            return
        if rest:
            self.data_received(rest)
            return
        if self._buffered > _BUFFER_LIMIT and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        # RFC 9112 9.8: without close_notify, an answer that ends with the connection may be truncated.
        if not self._closed_cleanly and self._transport is not None:
            self._closed_cleanly = closed_cleanly(self._transport.get_extra_info("ssl_object"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        del self._parser  # a reference cycle, which would stay until a full garbage collection
        why = f": {error_text(exc)}" if isinstance(exc, OSError) else ""
        if self._raw is not None:
            self._raw.upstream_lost()
        elif self._idle:
            self._error = self._error or ClosedEarly(f"the broker closed an idle connection{why}")
        elif self.complete or self._error is not None:
            pass
        elif self.head_done and self._is_close_delimited() and exc is None and self._closed_cleanly:
            self.complete = True
        else:
            if self.head_bytes:
                self._error = Truncated(f"the broker closed the connection inside its answer{why}")
            else:
                self._error = ClosedEarly(f"the broker closed the connection without an answer{why}")
        self.resume_writing()
        self._wake()

    def pause_writing(self) -> None:
        if self._raw is not None:
            self._raw.upstream_writable(False)
        elif self._write_waiter is None:
            self._write_waiter = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._raw is not None:
            self._raw.upstream_writable(True)
        waiter, self._write_waiter = self._write_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # Parser callbacks.

    def on_message_begin(self) -> None:
        if self.complete:  # a second answer
            raise BadAnswer("the broker sent more than its answer")

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_done:  # trailers are dropped
            return
        key = name.lower()
        if key in _FRAMING:
            self._framing.append((key, value))
            return
        field = b"%b: %b" % (name, value)
        if key == b"location":
            if self.location is not None:
                return  # only the first one is looked at, so no other passes
            self.location, self.location_field = value, field
        elif key == b"content-encoding":
            self.codings.append(value)
        self.fields.append(field)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 100:
            raise BadAnswer(f"the broker's answer has the status {self.status}")
        self._interim = self.status < 200 and self.status != 101
        if self._interim:
            return
        for name, value in self._framing:
            if name == b"content-length":
                self.length = int(value)
            elif name == b"transfer-encoding":
                self._chunked = True
                if value.strip().lower() != b"chunked":
                    raise BadAnswer("the broker's answer has a transfer coding that was not asked for")
            elif name == b"upgrade":
                self.upgrades = True
            elif name == b"connection" and (named := connection_options(value)):
                self.fields = without(self.fields, named)
        self.head_done = True
        if self._method == "HEAD":
            self._keep_alive = self._parser.should_keep_alive()
            self.complete = True

    def on_body(self, data: bytes) -> None:
        if self._method == "HEAD":
            raise BadAnswer("the broker sent a body with its answer to HEAD")
        self._chunks.append(data)
        self._buffered += len(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self.reason, self.fields, self._framing, self.location, self.codings = b"", [], [], None, []
            if self.status == 100 and self.on_continue is not None:
                self.on_continue()
            return
        self._keep_alive = self._parser.should_keep_alive()
        self.complete = True

    # Waiting.

    def _is_close_delimited(self) -> bool:
        return self.length is None and not self._chunked

    async def _wait(self, within: float) -> None:
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_later(within, self._time_out, within)
        try:
            await self._waiter
        finally:
            self._timer.cancel()
            self._waiter = None

    def _time_out(self, within: float) -> None:
        # The timeout begins with the last write: the broker need not answer while a body is being sent.
        left = self._last_write + within - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._time_out, within)
        else:
            self.fail(TimedOut(f"the broker gave no answer within {within:g} s"))

    def _wake(self) -> None:
        if self._callback is not None and (self.head_done or self._error is not None):
            callback, self._callback = self._callback, None
            callback()
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
