"""Brokers on loopback that look topics up, own bundles and redirect as Apache Pulsar's do, and misbehave on demand.

broker_api.py decides what they answer. This module has their sockets, received requests, tokens, compression,
WebSockets and faults. The binary protocol is left out: ports 6650 are advertised and never opened.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeAlias

from aiohttp import WSMsgType
from aiohttp.web import Application, AppRunner, Request, Response, SockSite, StreamResponse, WebSocketResponse

from simulated.broker_api import Answer, Received, answer, redirect, worker_of
from simulated.metadata import (
    INTERNAL,
    Broker,
    Family,
    Listener,
    LoadManager,
    Metadata,
    Topic,
    numbered,
)

__all__ = [
    "Answer",
    "Hold",
    "Listener",
    "Received",
    "SimulatedBroker",
    "SimulatedCluster",
    "Step",
    "Topic",
    "always",
    "dies",
    "redirects",
    "says",
    "wrong_listener",
]

NAME = "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"
EXTERNAL: Mapping[Family, Listener] = {
    "4.x": Listener(broker_service_url_tls="pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}"),
    "5.x": Listener(
        broker_service_url_tls="pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}",
        broker_https_url="https://broker-{n}.pulsar.example.com",
    ),
}
IDLE_SECONDS = 30  # httpServerIdleTimeout
COMPRESS_FROM = 32  # bytes; Jetty's least size
UNAUTHENTICATED = Answer(401, b"<html><body>Authentication required</body></html>", "text/html")


class SimulatedCluster:
    """N brokers on loopback that look topics up, own bundles and redirect as Apache Pulsar's do.

    `listeners` come beside `internal`, which is made of `name` unless it is given; their URLs are templates. Under
    `advertise_loopback` the brokers name the web address that they really listen on, as if clients could reach it.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        family: Family = "4.x",
        load_manager: LoadManager = "modular",
        leader: int = 0,
        token: str | None = None,
        name: str = NAME,
        listeners: Mapping[str, Listener] | None = None,
        missing_namespaces: Iterable[str] = (),
        advertise_loopback: bool = False,
        compress_always: bool = False,
        trust_forwarded: bool = False,
    ) -> None:
        self.metadata = Metadata(
            family,
            load_manager,
            leader=leader,
            missing_namespaces=set(missing_namespaces),
            trusts_forwarded=trust_forwarded,
        )
        self.token = token
        self.compress_always = compress_always
        self.brokers: list[SimulatedBroker] = []
        self._size = brokers
        self._name = name
        self._listeners = {"external": EXTERNAL[family]} if listeners is None else listeners
        self._advertise_loopback = advertise_loopback

    async def __aenter__(self) -> Self:
        for n in range(self._size):
            broker = SimulatedBroker(self, n)
            web_url = broker.web if self._advertise_loopback else f"http://{self._name}:8080"
            internal = Listener(broker_service_url=f"pulsar://{self._name}:6650", broker_http_url=web_url)
            named = {INTERNAL: internal, **self._listeners}
            listeners = {key: listener.numbered(n) for key, listener in named.items()}
            self.metadata.brokers.append(Broker(numbered(self._name, n), listeners))
            self.brokers.append(broker)
            await broker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            await broker.close()

    @property
    def leader(self) -> int:
        return self.metadata.leader

    def own(self, topic_or_bundle: str | Topic, broker: int) -> None:
        """`persistent://tenant/namespace/topic`, or a bundle: `tenant/namespace/0x00000000_0x40000000`."""
        self.metadata.owners[bundle_of(topic_or_bundle)] = broker

    def owner(self, topic_or_bundle: str | Topic) -> int | None:
        return self.metadata.owners.get(bundle_of(topic_or_bundle))

    def worker(self, function: str) -> int:
        """Which broker runs `tenant/namespace/function`."""
        return worker_of(function, self._size)

    def expire(self, broker: int) -> None:
        """End the metadata session of a broker that has died: its bundles are free, and another leads."""
        self.metadata.expire(broker)


class SimulatedBroker:
    """One broker: what it calls itself (`name`), where it really listens (`web`), what it was asked (`requests`).

    `script` holds steps that take one request each; while it is empty the broker answers as brokers do.
    """

    def __init__(self, cluster: SimulatedCluster, index: int) -> None:
        self.index = index
        self.requests: list[Received] = []
        self.script: deque[Step] = deque()
        self._cluster = cluster
        self._socket = bind(0)
        self._port: int = self._socket.getsockname()[1]
        self._runner: AppRunner | None = None
        self.web = f"http://127.0.0.1:{self._port}"

    @property
    def name(self) -> str:
        return self._cluster.metadata.brokers[self.index].name

    @property
    def id(self) -> str:
        return self._cluster.metadata.brokers[self.index].id

    @property
    def listeners(self) -> dict[str, Listener]:
        """What it publishes; entries may be changed or removed."""
        return self._cluster.metadata.brokers[self.index].listeners

    async def start(self) -> None:
        app = Application()
        app.router.add_route("*", r"/{path:[\s\S]*}", self._serve)
        self._runner = AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
        )
        await self._runner.setup()
        await SockSite(self._runner, self._socket).start()
        self._cluster.metadata.alive.add(self.index)

    async def stop(self) -> None:
        """Die as by kill -9: nothing is finished, and the others do not know until `cluster.expire`.

        The port stays bound, so that nobody else can have it, but takes no connections.
        """
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        for site in runner.sites:
            await site.stop()
        self._socket = bind(self._port)
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    async def close(self) -> None:
        await self.stop()
        self._socket.close()

    async def _serve(self, request: Request) -> StreamResponse:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers)
        received = Received(request.method, request.raw_path, headers, await request.content.read())
        self.requests.append(received)
        if self.script:
            return await self.script.popleft()(self, request, received)
        return await self.answer(request, received)

    async def answer(self, request: Request, received: Received) -> StreamResponse:
        """Answer as brokers do. A step may have changed the request."""
        token = self._cluster.token
        free = received.path in ("/status.html", "/metrics", "/metrics/")
        if token is not None and not free and received.header("Authorization") != f"Bearer {token}":
            return self.respond(UNAUTHENTICATED, received)
        if received.path.startswith("/ws/v2/"):
            return await echo(request)
        return self.respond(answer(self._cluster.metadata, self.index, received), received)

    def respond(self, answer: Answer, received: Received) -> Response:
        headers = {"broker-address": self.name}  # ResponseHandlerFilter: in every answer
        body = answer.body
        if answer.location is not None:
            headers["Location"] = answer.location
        if body:
            headers["Content-Type"] = answer.content_type
        asked = len(body) >= COMPRESS_FROM and "gzip" in (received.header("Accept-Encoding") or "")
        if asked or (body and self._cluster.compress_always):
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            body = gzip.compress(body, mtime=0)
        return Response(status=answer.status, headers=headers, body=body)


def bundle_of(topic_or_bundle: str | Topic) -> str:
    if isinstance(topic_or_bundle, Topic):
        return topic_or_bundle.bundle
    return Topic.parse(topic_or_bundle).bundle if "://" in topic_or_bundle else topic_or_bundle


def bind(port: int) -> socket.socket:
    unconnected = socket.socket()
    unconnected.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    unconnected.bind(("127.0.0.1", port))
    return unconnected


async def echo(request: Request) -> StreamResponse:
    """Any WebSocket endpoint: every message comes back."""
    connection = WebSocketResponse()
    await connection.prepare(request)
    async for message in connection:
        if message.type is WSMsgType.TEXT:
            await connection.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await connection.send_bytes(message.data)
    return connection


Step: TypeAlias = Callable[[SimulatedBroker, Request, Received], Awaitable[StreamResponse]]


def always(step: Step) -> Step:
    """The step for every request, until the script is cleared."""

    async def again(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        broker.script.appendleft(again)
        return await step(broker, request, received)

    return again


def says(answer: Answer) -> Step:
    """This answer to any request."""

    async def say(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        return broker.respond(answer, received)

    return say


def redirects(base: str) -> Step:
    """A 307 to the same path and query at `http://authority`. Two brokers that `always` do it to each other loop."""

    async def point(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        return broker.respond(redirect(base + received.target), received)

    return point


def wrong_listener(name: str) -> Step:
    """The URLs of another listener than the one asked for, as concurrent lookups got them (apache/pulsar#26244)."""

    async def confuse(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        return await broker.answer(request, replace(received, target=received.target_with({"listenerName": name})))

    return confuse


def dies(after: int | None = None) -> Step:
    """The connection ends after so many bytes of the body, or before any answer."""

    async def die(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        whole = await broker.answer(request, received)
        if not isinstance(whole, Response) or not isinstance(whole.body, bytes):
            raise TypeError(f"{received.target} has no plain body to cut")
        partial = StreamResponse(status=whole.status, headers=whole.headers)
        partial.content_length = len(whole.body)
        if after is not None:
            await partial.prepare(request)
            await partial.write(whole.body[:after])
        if request.transport is not None:
            request.transport.close()
        return partial

    return die


@dataclass(frozen=True, slots=True)
class Hold:
    """Delays a request: `reached` is set when it arrives, and it is answered once `release` is set."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        self.reached.set()
        await self.release.wait()
        return await broker.answer(request, received)
