"""Relays subscriptions to scalable topics to the controllers of the topics, for one client.

V5 clients that reach brokers through a proxy subscribe on a connection to any broker, but a broker accepts a
subscription only if it is the topic's controller (apache/pulsar#26275). So the sidecar asks a broker which one that is,
repeats the client's CONNECT there, and passes the subscription on, and then what the controller assigns.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.broker_connection import BrokerConnection, NeedsChallenge, introduce
from pulsar_ingress_proxy.binary.client import ClientContext
from pulsar_ingress_proxy.binary.commands_pb2 import (
    Command,
    KeepAlive,
    ScalableTopicClose,
    ScalableTopicDag,
    ScalableTopicLookup,
)
from pulsar_ingress_proxy.binary.endpoints import decide, is_through, through_target
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame, write
from pulsar_ingress_proxy.memory import HEAD, REQUEST
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import TimedOut, UpstreamError
from pulsar_ingress_proxy.routing.selection import OVERLOADED, Refusal, Selection
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

_KEEP_ALIVE = 30.0
"""Seconds without a frame after which a controller is asked whether it is there, as clients and brokers do."""
_PING = write(Command(type=commands.PING, ping=KeepAlive()))
_PONG = write(Command(type=commands.PONG, pong=KeepAlive()))

log = logging.getLogger("proxy.binary")


class _UnknownController(Exception):
    """The address book does not have the address of the controller."""


@dataclass(slots=True, eq=False)
class SubscriptionRelay:
    """A client's subscriptions to scalable topics, and one connection to each broker that has to do with them."""

    _context: ServerContext
    _client: ClientContext
    _joined: ServiceUrl
    """The broker that the client is joined to. It knows the controller of each topic, and may become it."""
    _send: Callable[[bytes], None]
    _start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts a task that ends with the client."""
    _lost: Callable[[], None]
    """Called when a connection is lost: the client has to subscribe again."""
    _connections: dict[ServiceUrl, asyncio.Future[BrokerConnection]] = field(default_factory=dict)
    _layouts: dict[int, asyncio.Future[ScalableTopicDag]] = field(default_factory=dict)
    """Questions to the joined broker, by the id of their session."""
    _sessions: Iterator[int] = field(default_factory=partial(count, 1))

    @property
    def is_needed(self) -> bool:
        """Whether subscriptions are relayed: not if the client reaches brokers directly, or cannot be repeated."""
        who, selection = self._client.connect_info, self._selection
        return is_through(selection) and not selection.shadow and who is not None and who.can_repeat

    @property
    def _selection(self) -> Selection:
        return decide(self._client.endpoint, self._context.decisions).decision.selection

    def subscribe(self, frame: Frame) -> None:
        """Relay a client's subscription; the client gets an answer later."""
        limits, in_flight = self._context.decisions.config.limits, self._context.metrics.in_flight.cell("binary")
        size = REQUEST + HEAD * len(frame.raw)
        command = frame.command()
        if in_flight[0] >= limits.in_flight or not self._context.buffers.take(size):
            self._refuse(command, OVERLOADED)
            return
        in_flight[0] += 1
        task = self._start(self._subscribe(command, frame))

        def ended(_: asyncio.Task[None]) -> None:
            in_flight[0] -= 1
            self._context.buffers.give_back(size)

        task.add_done_callback(ended)

    def pause_reading(self) -> None:
        """Read nothing more, as the client does not accept what there is."""
        for connection in self._connected():
            connection.pause_reading()

    def resume_reading(self) -> None:
        for connection in self._connected():
            connection.resume_reading()

    def _connected(self) -> list[asyncio.Transport]:
        connections = [one.result() for one in self._connections.values() if one.done() and not one.exception()]
        return [one.transport for one in connections if one.transport is not None]

    async def _subscribe(self, command: Command, frame: Frame) -> None:
        topic = command.scalable_topic_subscribe.topic
        try:
            controller = await self._connection(await self._controller_of(topic))
        except UpstreamError as error:
            log.warning("subscription to %r: %s", topic, error)
            self._refuse(command, Refusal(502, error.code, error.text), error.code)
        except NeedsChallenge:
            text = "the topic's controller is another broker, and the client's authentication cannot be repeated to it"
            self._refuse(command, Refusal(502, "auth-not-replayable", text))
        except _UnknownController as unknown:
            log.warning("subscription to %r: the controller is %s, which advertisedListeners lacks", topic, unknown)
            self._refuse(command, Refusal(502, "unknown-authority", "the topic's controller is not known here"))
        else:
            controller.send(frame.raw if frame.is_plain else frame.with_command(command))

    async def _controller_of(self, topic: bytes) -> ServiceUrl:
        """The topic's controller; if there is none yet, the joined broker, which becomes it by being subscribed at."""
        within = self._context.decisions.config.timeouts.lookup
        broker = await self._connection(self._joined)
        session = next(self._sessions)
        layout = self._layouts[session] = asyncio.get_running_loop().create_future()
        question = ScalableTopicLookup(session_id=session, topic=topic, create_if_missing=False)
        broker.send(write(Command(type=commands.SCALABLE_TOPIC_LOOKUP, scalable_topic_lookup=question)))
        try:
            async with asyncio.timeout(within):
                dag = await layout
        except TimeoutError:
            raise TimedOut(f"{self._joined} did not name the topic's controller within {within:g} s") from None
        finally:
            del self._layouts[session]
            closing = ScalableTopicClose(session_id=session)
            broker.send(write(Command(type=commands.SCALABLE_TOPIC_CLOSE, scalable_topic_close=closing)))
        named = [url.decode("utf-8", "replace") for url in (dag.url, dag.url_tls) if url]
        if not named:
            return self._joined
        snapshot = self._context.decisions.snapshot
        targets = [through_target(url, self._selection, snapshot) for url in named]
        found = next((target.urls[0] for target in targets if target.urls), None)
        if found is None:
            raise _UnknownController(", ".join(named))
        return found

    async def _connection(self, url: ServiceUrl) -> BrokerConnection:
        """The connection to a broker, made if there is none; raises UpstreamError or NeedsChallenge."""
        found = self._connections.get(url)
        if found is None:
            found = self._connections[url] = asyncio.get_running_loop().create_future()
            self._start(self._serve(url, found))
        return await asyncio.shield(found)

    async def _serve(self, url: ServiceUrl, ready: asyncio.Future[BrokerConnection]) -> None:
        """Connect to a broker in the client's name, and pass on what it sends, until either of them leaves."""
        who, within = self._client.connect_info, self._context.decisions.config.timeouts.lookup
        assert who is not None
        make = partial(BrokerConnection, commands.FROM_CONTROLLER)
        connection = None
        try:
            connection = await self._context.brokers.dial(url, make)
            await introduce(connection, url, who.connect, within)
            ready.set_result(connection)
            await self._pass_on(connection)
        except (UpstreamError, NeedsChallenge, BadFrame) as error:
            if not ready.done():
                del self._connections[url]
                who.can_repeat = who.can_repeat and not isinstance(error, NeedsChallenge)
                ready.set_exception(error)
                return
            log.warning("%s: the connection to %s, which assigns segments, is lost: %s", self._client, url, error)
            self._lost()
        finally:
            if connection is not None:
                connection.close()

    async def _pass_on(self, connection: BrokerConnection) -> None:
        is_asked = False
        while True:
            try:
                frame = await connection.frame(_KEEP_ALIVE)
            except TimedOut:
                if is_asked:
                    raise
                connection.send(_PING)
                is_asked = True
                continue
            is_asked = False
            match frame.type:
                case commands.PING:
                    connection.send(_PONG)
                case commands.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE | commands.SCALABLE_TOPIC_ASSIGNMENT_UPDATE:
                    self._send(frame.raw)
                case commands.SCALABLE_TOPIC_UPDATE:
                    update = frame.command().scalable_topic_update
                    layout = self._layouts.get(update.session_id)
                    if layout is not None and not layout.done():  # else it changed before the session was closed
                        layout.set_result(update.dag)
                case commands.AUTH_CHALLENGE:
                    raise NeedsChallenge
                case _:
                    pass  # an error comes before the end

    def _refuse(self, command: Command, refusal: Refusal, upstream: str | None = None) -> None:
        """Answer a subscription with an error, upon which clients try again if they had subscribed before."""
        record = self._client.other_record(self._context.decisions, refusal.status)
        record.upstream_errors = [upstream] if upstream is not None else []
        self._context.recorder.record(record)
        self._send(commands.subscription_failed(command.scalable_topic_subscribe.request_id, refusal))
