"""A client's connection joined to a broker's: frames pass both ways.

Lookups and commands with addresses go through `PendingLookups`. Of all other frames only the first bytes are read, to
find the next one, and they pass unchanged. Each side is read no faster than the other side accepts.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.broker_connection import BrokerConnection
from pulsar_ingress_proxy.binary.client import ClientContext, ConnectInfo
from pulsar_ingress_proxy.binary.endpoints import ConnectionTarget, connection_target
from pulsar_ingress_proxy.binary.fast_path import SHORTEST, TYPE
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame, FrameDecoder
from pulsar_ingress_proxy.binary.pending_lookups import PendingLookups
from pulsar_ingress_proxy.binary.subscription_relay import SubscriptionRelay
from pulsar_ingress_proxy.memory import HEAD, UNSENT
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import ClosedEarly, Unreachable, UpstreamError
from pulsar_ingress_proxy.net.tls import server_name
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.selection import SHED, Refusal
from pulsar_ingress_proxy.syntax.authorities import peer_address
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

if TYPE_CHECKING:
    from pulsar_ingress_proxy.binary.server import BinaryServer

_HIGH = 1 << 19
"""Unsent bytes of our own answers at which the session stops reading from the client."""
_EARLY = 1 << 16
"""Bytes accepted from a client before a broker has answered its CONNECT; real clients send none."""

_FROM_CLIENT, _TO_CLIENT, _TO_BROKER, _CONNECT = range(4)
"""What a session buffers: incomplete frames, unsent frames in each direction, and the client's CONNECT."""

Pieces = list[bytes | memoryview | Frame]

log = logging.getLogger("proxy.binary")


@dataclass(slots=True, eq=False)
class Session(asyncio.Protocol):
    """The client's side, and the link to the broker's."""

    _context: ServerContext
    _server: "BinaryServer"
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _client: ClientContext = field(init=False)
    _lookups: PendingLookups = field(init=False)
    _from_client: FrameDecoder = field(init=False)
    _from_broker: FrameDecoder | None = None
    _broker: asyncio.Transport | None = None
    _relay: SubscriptionRelay | None = None
    """If the client left the choice of the broker to the sidecar."""
    _transport: asyncio.Transport | None = None
    _timer: asyncio.TimerHandle | None = None
    _connected: bool = False
    _draining: bool = False
    _early: Pieces = field(default_factory=list)
    """What the client sent after its CONNECT, before a broker answered that."""
    _deferred: bytearray = field(default_factory=bytearray)
    """Our own frames, deferred to the end of the frame that is being sent to the client."""
    _is_full: bool = False
    """Whether the write buffer to the client is over its limit."""
    _is_broker_full: bool = False
    _is_throttled: bool = False
    """Whether reading is paused because the client does not read our own answers."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _charged: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """Bytes charged to the shared budget, by kind of buffer."""

    # Callbacks of the client's transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = client = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        client.set_write_buffer_limits(high=UNSENT)
        most = self._context.decisions.config.limits.command_bytes
        unknown = partial(self._context.metrics.unknown_command, "client")
        self._from_client = FrameDecoder(commands.FROM_CLIENT, most, is_strict=True, on_unknown=unknown)
        peer = client.get_extra_info("peername")
        name = server_name(client.get_extra_info("ssl_object"))
        self._client = ClientContext(self._context, self._server, peer_address(peer), name)
        in_flight = self._context.metrics.in_flight.cell("binary")
        self._lookups = PendingLookups(
            self._context, self._client, self._send, self._start, self._client.fast_path(), in_flight
        )
        if not self._server.admit(self):
            text = "more connections are open than limits.connections allows"
            self._refuse(Refusal(503, "too-many-connections", text), commands.NOT_ALLOWED)
            return
        within = self._context.decisions.config.timeouts.head
        text = f"no CONNECT came within {within:g} s (timeouts.head)"
        self._timer = self._loop.call_later(within, self._timed_out, text)

    def data_received(self, data: bytes) -> None:
        decoder, broker = self._from_client, self._broker
        may_be_fast = len(data) > SHORTEST and data[TYPE] == commands.LOOKUP and not (decoder.left or decoder.held)
        overload = self._server.overload
        if may_be_fast and broker is not None and not (overload.is_overloaded or overload.refuses(self._transport)):
            made = self._lookups.ask_fast(data)
            if made is not None:
                broker.write(made)
                return
        try:
            pieces = decoder.feed(data)
            if broker is None:
                self._take_connect([data] if pieces is None else pieces)
            elif pieces is None:
                broker.write(data)
            else:
                self._forward_from_client(pieces, broker, may_shed=True)
        except BadFrame as fault:
            self._protocol_error("client", fault)
        if decoder.held or self._charged[_FROM_CLIENT]:
            self._hold(_FROM_CLIENT, len(decoder.held) + sum(map(_size, self._early)))

    def _hold(self, where: int, size: int) -> None:
        """Charge for the bytes buffered there now; close the connection if the shared budget is exhausted."""
        more = size - self._charged[where]
        if more > 0 and not self._context.buffers.take(more):
            if where in (_FROM_CLIENT, _CONNECT):
                text = "connections hold more bytes than limits.bufferBytes allows"
                self._refuse(Refusal(503, "overloaded", text), commands.TOO_MANY_REQUESTS)
            else:  # one side does not read, and other connections need the memory
                self.reset()
            return
        if more < 0:
            self._context.buffers.give_back(-more)
        self._charged[where] = size

    def pause_writing(self) -> None:
        self._is_full = True
        if self._transport is not None:
            self._hold(_TO_CLIENT, self._transport.get_write_buffer_size() + len(self._deferred))
        if self._broker is not None and not self._broker.is_closing():
            self._broker.pause_reading()
        if self._relay is not None:
            self._relay.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._hold(_TO_CLIENT, len(self._deferred))
        if self._broker is not None and not self._broker.is_closing():
            self._broker.resume_reading()
        if self._relay is not None:
            self._relay.resume_reading()
        self._update_reading()

    def _update_reading(self) -> None:
        client = self._transport
        if client is None or client.is_closing():
            return
        self._is_throttled = self._is_throttled and (self._is_full or len(self._deferred) > _HIGH)
        if self._is_broker_full or self._is_throttled:
            client.pause_reading()
        else:
            client.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._stop_timer()
        for task in list(self._tasks):
            task.cancel()
        if self._broker is not None:
            self._broker.close()
        self._lookups.end()
        self._context.buffers.give_back(sum(self._charged))
        self._charged = [0, 0, 0, 0]
        self._server.let_go(self)

    # Connecting: a client is joined to the first broker that answers its CONNECT.

    def _take_connect(self, pieces: Pieces) -> None:
        """Read the client's CONNECT. Anything after it waits until a broker has answered, as others may be tried."""
        if self._client.connect_info is not None:
            self._early += pieces
            if sum(map(_size, self._early)) > _EARLY and self._transport is not None:
                self._transport.pause_reading()
        elif pieces:
            first, *self._early = pieces
            if not isinstance(first, Frame) or first.type != commands.CONNECT:
                raise BadFrame("the first command is not CONNECT")
            self._stop_timer()
            if self._transport is None or self._transport.is_closing():
                return
            if self._server.overload.refuses(self._transport):
                self._server.count_shed()
                self.leave(commands.TOO_MANY_REQUESTS, f"{SHED.code}: {SHED.text}")
                return
            decisions = self._context.decisions
            where = connection_target(first.command().connect, self._client.endpoint, decisions)
            trusts = decisions.config.brokers.trust_original_principal
            self._client.connect_info, frame = ConnectInfo.of(first, trusts, where.keeps_name)
            self._hold(_CONNECT, HEAD * len(frame))
            if self._transport.is_closing():
                return
            if where.refusal is not None:
                self._refuse(where.refusal, commands.NOT_ALLOWED)
            else:
                self._start(self._join(where, frame, decisions))

    async def _join(self, where: ConnectionTarget, frame: bytes, decisions: DecisionCache) -> None:
        """Send CONNECT to one broker after the other until one answers or the timeout is reached."""
        timeouts = decisions.config.timeouts
        last_from = self._loop.time() + timeouts.lookup - timeouts.connect
        urls = list(self._context.brokers.in_turn(where.urls))
        errors: list[UpstreamError] = []
        for url in urls:
            is_last = url is urls[-1] or self._loop.time() >= last_from
            try:
                connection = await self._connect(url, frame, timeouts.lookup if is_last else timeouts.connect, is_last)
            except UpstreamError as error:
                self._context.brokers.failed(url)
                errors.append(error)
                log.warning("%s: %s", url, error if is_last else f"{error}; asking the next broker")
                if is_last:
                    break
            else:
                if errors:
                    record = self._client.other_record(decisions, 200)
                    record.upstream_errors = [error.code for error in errors]
                    self._context.recorder.record(record)
                self._context.brokers.succeeded(url)
                if where.is_any:
                    self._relay = SubscriptionRelay(
                        self._context, self._client, url, self._send, self._start, self._disconnect
                    )
                self._take_over(connection)
                return
        last = errors[-1] if errors else Unreachable("brokers.brokerServiceUrl has none")
        self._refuse(Refusal(502, last.code, last.text), commands.SERVICE_NOT_READY, [error.code for error in errors])

    async def _connect(self, url: ServiceUrl, frame: bytes, within: float, is_last: bool) -> BrokerConnection:
        """Connect to a broker and wait for its answer to the client's CONNECT; raises UpstreamError."""
        connection = await self._context.brokers.dial(url, BrokerConnection)
        try:
            connection.send(frame)
            answer = await connection.answer(within)
            if not is_last and isinstance(answer, Frame) and answer.type == commands.ERROR:
                error = answer.command().error
                if error.error == commands.SERVICE_NOT_READY:
                    raise ClosedEarly(f"the broker is not ready: {error.message.decode('utf-8', 'replace')}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_over(self, connection: BrokerConnection) -> None:
        """Join the client to a broker that has answered, and pass on what either has sent meanwhile."""
        broker, client = connection.transport, self._transport
        if client is None or client.is_closing():
            connection.close()
            return
        if broker is None:  # it answered and closed, as after an error
            for piece in connection.received:
                client.write(piece.raw if isinstance(piece, Frame) else piece)
            client.close()
            return
        broker.set_write_buffer_limits(high=UNSENT)
        broker.set_protocol(_BrokerSide(self))
        self._broker, self._from_broker = broker, connection.decoder
        self._from_broker.on_unknown = partial(self._context.metrics.unknown_command, "broker")
        try:
            self._forward_from_broker(list(connection.received), client)
            if not self._connected:
                within = self._context.decisions.config.timeouts.lookup
                text = f"CONNECT led to no CONNECTED within {within:g} s (timeouts.lookup)"
                self._timer = self._loop.call_later(within, self._timed_out, text)
            early, self._early = self._early, []
            self._forward_from_client(early, broker)
            self._hold(_FROM_CLIENT, len(self._from_client.held))
        except BadFrame as fault:
            self._protocol_error("client or broker", fault)
            return
        client.resume_reading()

    # From the client.

    def _forward_from_client(self, pieces: Pieces, broker: asyncio.Transport, may_shed: bool = False) -> None:
        """`may_shed`: they have just come, so that the time since then is the time that they have waited."""
        for piece in pieces:
            if not isinstance(piece, Frame):
                broker.write(piece)
            elif piece.type == commands.LOOKUP:
                if may_shed and self._server.overload.refuses(self._transport):
                    self._server.count_shed()
                    self._send(commands.lookup_failed(piece.command().lookup.request_id, SHED))
                elif frame := self._lookups.ask(piece):
                    broker.write(frame)
            elif piece.type == commands.PARTITION_METADATA:
                self._from_client.counted += 1
                broker.write(self._without_originals(piece))
            elif piece.type == commands.SCALABLE_TOPIC_SUBSCRIBE:
                self._from_client.noted = True
                if self._relay is not None and self._relay.is_needed:
                    self._relay.subscribe(piece)
                else:
                    broker.write(piece.raw)
            elif piece.type == commands.AUTH_RESPONSE:
                if self._connected and self._client.connect_info is not None:
                    self._client.connect_info.renew(piece.command().auth_response.response)
                    self._hold(_CONNECT, max(self._charged[_CONNECT], HEAD * len(piece.raw)))
                broker.write(piece.raw)
            else:
                raise BadFrame("a second CONNECT")

    def _without_originals(self, frame: Frame) -> bytes:
        if self._context.decisions.config.brokers.trust_original_principal:
            return frame.raw
        command = frame.command()
        changed = commands.clear_originals(command.partition_metadata)
        return frame.with_command(command) if changed or not frame.is_plain else frame.raw

    # From the broker.

    def broker_data(self, data: bytes) -> None:
        decoder, client = self._from_broker, self._transport
        if client is None or decoder is None:
            return
        if len(data) > SHORTEST and data[TYPE] == commands.LOOKUP_RESPONSE and not (decoder.left or decoder.held):
            made = self._lookups.answer_fast(data)
            if made is not None:
                client.write(made)
                return
        if self._deferred and decoder.left <= len(data):
            data = self._flush_deferred(data, decoder, client)
        try:
            pieces = decoder.feed(data)
            if pieces is None:
                client.write(data)
            else:
                self._forward_from_broker(pieces, client)
        except BadFrame as fault:
            self._protocol_error("broker", fault)
        if self._draining:
            self._loop.call_soon(self._leave_if_idle)

    def _flush_deferred(self, data: bytes, decoder: FrameDecoder, client: asyncio.Transport) -> bytes:
        """Insert the deferred frames after the current frame."""
        left = decoder.left
        decoder.feed(data[:left])
        client.write(data[:left])
        later, self._deferred = self._deferred, bytearray()
        client.write(later)
        self._hold(_TO_CLIENT, client.get_write_buffer_size() if self._is_full else 0)
        self._update_reading()
        return data[left:]

    def _send(self, frame: bytes) -> None:
        """Send a frame of our own, at the next frame boundary."""
        if self._transport is None:
            return
        if self._from_broker is not None and self._from_broker.left:
            self._deferred += frame
            self._hold(_TO_CLIENT, self._transport.get_write_buffer_size() + len(self._deferred))
        else:
            self._transport.write(frame)
        if self._is_full or len(self._deferred) > _HIGH:
            self._is_throttled = True
            self._update_reading()
        if self._draining:
            self._loop.call_soon(self._leave_if_idle)

    def _forward_from_broker(self, pieces: Pieces, client: asyncio.Transport) -> None:
        for piece in pieces:
            if not isinstance(piece, Frame):
                client.write(piece)
            elif piece.type in commands.CARRIERS:
                is_answer = piece.type == commands.LOOKUP_RESPONSE
                if frame := self._lookups.answer(piece) if is_answer else self._lookups.push(piece):
                    client.write(frame)
            else:
                if piece.type == commands.CONNECTED:
                    self._on_connected(piece)
                elif piece.type == commands.ERROR and self._from_broker is not None:
                    self._from_broker.counted += 1
                elif piece.type == commands.AUTH_CHALLENGE and not self._connected and self._client.connect_info:
                    self._client.connect_info.can_repeat = False  # the response is for this broker only
                client.write(piece.raw)

    def _on_connected(self, frame: Frame) -> None:
        self._connected = True
        self._stop_timer()
        size = frame.command().connected.max_message_size
        if size > 0 and self._from_broker is not None:
            self._from_client.allow_messages(size)
            self._from_broker.allow_messages(size)

    def broker_lost(self) -> None:
        self._lookups.fail()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def broker_pauses(self, is_full: bool) -> None:
        self._is_broker_full = is_full
        self._hold(_TO_BROKER, self._broker.get_write_buffer_size() if is_full and self._broker is not None else 0)
        self._update_reading()

    # Ending the session.

    def _refuse(self, refusal: Refusal, code: int, errors: list[str] | None = None) -> None:
        record = self._client.other_record(self._context.decisions, refusal.status)
        record.upstream_errors = errors or []
        self._context.recorder.record(record)
        detail = f": {refusal.detail}" if refusal.detail else ""
        log.warning("%s rejected %s: %s%s", record.id, self._client, refusal.text, detail)
        self.leave(code, f"{refusal.code}: {refusal.text}")

    def _timed_out(self, text: str) -> None:
        self._refuse(Refusal(408, "too-slow", text), commands.NOT_ALLOWED)

    def _protocol_error(self, who: str, fault: BadFrame) -> None:
        """Close both connections, as the rest of the stream cannot be decoded."""
        log.warning("%s: invalid frame from the %s; closing the connection: %s", self._client, who, fault)
        record = self._client.other_record(self._context.decisions, 400 if who == "client" else 502)
        if who != "client":
            record.upstream_errors.append("bad-answer")
        self._context.recorder.record(record)
        self.leave(commands.NOT_ALLOWED, f"bad-frame: {fault}")

    def drain(self) -> None:
        """Close the session as soon as it is idle."""
        self._draining = self._lookups.is_closing = True
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        """Without producers and consumers, a client loses nothing once all its requests are answered."""
        if not (self._lookups.are_open or self._from_client.noted or self._awaits_broker()):
            self.leave(commands.SERVICE_NOT_READY, "shutting-down: this sidecar is shutting down")

    def _awaits_broker(self) -> bool:
        """Whether the broker still owes a response, or is sending one."""
        broker = self._from_broker
        return broker is not None and (self._from_client.counted > broker.counted or not broker.is_between)

    def leave(self, code: int, text: str) -> None:
        """Close both connections; the client is told why, unless a frame is being sent to it."""
        client = self._transport
        if client is None or client.is_closing():
            return
        if self._from_broker is None or not self._from_broker.left:
            client.write(commands.closing_error(code, text))
        client.close()
        if self._broker is not None:
            self._broker.close()

    def reset(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task that ends with the client."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("internal error", exc_info=error)
                self.reset()

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task


class _BrokerSide(asyncio.Protocol):
    """The broker's side."""

    __slots__ = ("_session", "data_received")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.data_received = session.broker_data  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.broker_lost()

    def pause_writing(self) -> None:
        self._session.broker_pauses(True)

    def resume_writing(self) -> None:
        self._session.broker_pauses(False)


def _size(piece: bytes | memoryview | Frame) -> int:
    return len(piece.raw if isinstance(piece, Frame) else piece)
