"""The brokers of the soak test: they answer, redirect, fail, are late, disconnect, go away and come back elsewhere.

A seed decides what happens.
"""

import asyncio
import random
from typing import Self

from aiohttp.typedefs import Handler
from aiohttp.web import Request, Response, StreamResponse

from bench.binary_ends import CONNECT, CONNECTED, LOOKUP, LOOKUP_RESPONSE, Frames
from bench.soak_tally import HOST, INSIDE, MARK, Tally, mark
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connected, LookupResponse
from pulsar_ingress_proxy.binary.frames import write
from pulsar_ingress_proxy.demo.brokers import DemoBroker, DemoCluster

REDIRECT, FOUND, FAILED = 0, 1, 2  # LookupType of PulsarApi.proto
SERVICE_NOT_READY = 6
_KIND = 9  # offset of the type in a frame
CONFIGURED, PODS = 3, 2
"""Brokers that the config names, with HTTP and the binary protocol, and brokers in pods, with HTTP only."""
ADDRESSES = 100


class Brokers:
    """All brokers. Those of the config come back on another port, those in pods at another address."""

    def __init__(self, dice: random.Random, tally: Tally, web_port: int) -> None:
        self._dice = dice
        self._tally = tally
        self._web_port = web_port
        self._moves = 0
        self.cluster = DemoCluster({"external": HOST})
        self.binary = [BinaryServer(dice, tally) for _ in range(CONFIGURED)]

    async def __aenter__(self) -> Self:
        for place in range(CONFIGURED + PODS):
            await self.come(place)
        return self

    async def __aexit__(self, *_: object) -> None:
        for place in range(CONFIGURED + PODS):
            await self.go(place)

    async def come(self, place: int) -> None:
        """Start a broker; a pod's at an address that no broker of another name has had."""
        broker = DemoBroker(self.cluster, place)
        broker.intercept = self._serve
        if place < CONFIGURED:
            await broker.start()
            await self.binary[place].open()
        else:
            self._moves += 1
            address = f"127.0.1.{1 + self._moves % (ADDRESSES // PODS) * PODS + place - CONFIGURED}"
            await broker.start(address, self._web_port)
            broker.name, broker.internal = address, broker.web
        self.cluster.brokers[place:] = [broker, *self.cluster.brokers[place + 1 :]]

    async def go(self, place: int) -> None:
        """Answer what is in progress over HTTP, and hang up on binary connections."""
        # asyncio up to 3.11 leaks a connection that it has accepted but not made when its server closes.
        while accepting := [task for task in asyncio.all_tasks() if "_accept_connection2" in str(task.get_coro())]:
            await asyncio.wait(accepting)
        if place < CONFIGURED:
            self.binary[place].close()
        await self.cluster.brokers[place].close()

    def unload(self) -> None:
        """Take their owners from all bundles, so that lookups are redirected again."""
        self.cluster.owners.clear()

    async def _serve(self, request: Request, handler: Handler) -> StreamResponse:
        if request.headers.get(MARK) != mark(await request.read()):
            self._tally.wrong[f"a broker got another request than was sent: {request.method}"] += 1
        try:
            return await self._fate(request, handler)
        except ConnectionError:  # the sidecar disconnected, as its client did
            return Response()

    async def _fate(self, request: Request, handler: Handler) -> StreamResponse:
        dice = self._dice
        roll = dice.random()
        if roll < 0.75:
            return await handler(request)
        if roll < 0.83:
            return await _in_pieces(request, handler)
        if roll < 0.89:
            await asyncio.sleep(dice.uniform(0.001, 0.02))
            return await handler(request)
        if roll < 0.93:
            return Response(status=dice.choice((500, 503)), body=b'{"reason":"soak"}', content_type="application/json")
        if roll < 0.96:
            return await _dies(request, handler)
        if roll < 0.98 and request.path.startswith("/admin/v2/brokers"):
            self._tally.hung_up += 1
            return await _dies(request, handler, after=1)
        location = f"{dice.choice(self.cluster.brokers).internal}{request.rel_url.raw_path_qs}"
        return Response(status=307, headers={"Location": location})


async def _in_pieces(request: Request, handler: Handler) -> StreamResponse:
    whole = await handler(request)
    if not isinstance(whole, Response) or not isinstance(whole.body, bytes) or len(whole.body) < 2:
        return whole
    answer = StreamResponse(status=whole.status, headers=whole.headers)
    if len(whole.body) % 2:
        answer.content_length = len(whole.body)
    else:
        answer.enable_chunked_encoding()
    await answer.prepare(request)
    half = len(whole.body) // 2
    for piece in (whole.body[:half], whole.body[half:]):
        await answer.write(piece)
        await asyncio.sleep(0.002)
    return answer


async def _dies(request: Request, handler: Handler, after: int | None = None) -> StreamResponse:
    """The connection ends after so many bytes of the body, or before any answer."""
    whole = await handler(request)
    assert isinstance(whole, Response)
    body = whole.body if isinstance(whole.body, bytes) else b""
    partial = StreamResponse(status=whole.status, headers=whole.headers)
    partial.content_length = len(body)
    if after is not None:
        await partial.prepare(request)
        await partial.write(body[:after])
    if request.transport is not None:
        request.transport.close()
    return partial


def inside(broker: int) -> str:
    return f"pulsar-broker-{broker}.pulsar-broker.pulsar{INSIDE}"


class BinaryServer:
    """The binary protocol of one broker, on another port each time that it opens."""

    def __init__(self, dice: random.Random, tally: Tally) -> None:
        self._dice = dice
        self._tally = tally
        self._connections: set[BinaryBroker] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: BinaryBroker(self._dice, self._tally, self._connections), "127.0.0.1", 0, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Hang up on all, among them connections that the system has accepted and nobody has seen yet."""
        if self._server is not None:
            self._tally.hung_up += len(self._connections) + self._tally.connecting
            self._server.close()
        self._server = None
        for connection in list(self._connections):
            connection.transport.abort()


class BinaryBroker(Frames):
    """One connection: answers CONNECT, and lookups at random."""

    def __init__(self, dice: random.Random, tally: Tally, open_ones: "set[BinaryBroker]") -> None:
        super().__init__()
        self._dice, self._tally, self._open_ones = dice, tally, open_ones
        self._held: bytes | None = None
        """Frames that wait until the second piece of an answer is sent; None: nothing is being sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self)

    def heard(self, frame: bytes) -> None:
        if frame[_KIND] == CONNECT:
            self._say(write(Command(type=CONNECTED, connected=Connected(server_version=b"soak"))))
        elif frame[_KIND] == LOOKUP:
            self._answer(Command.FromString(frame[8:]).lookup.request_id)

    def _answer(self, number: int) -> None:
        roll, url = self._dice.random(), f"pulsar://{inside(self._dice.randrange(CONFIGURED))}:6650".encode()
        if roll < 0.005:
            self._tally.hung_up += 1
            self.transport.abort()
            return
        if roll < 0.04:
            said = LookupResponse(response=FAILED, request_id=number, error=SERVICE_NOT_READY, message=b"soak")
        elif roll < 0.1:
            said = LookupResponse(response=REDIRECT, request_id=number, url=url, authoritative=True)
        else:
            said = LookupResponse(response=FOUND, request_id=number, url=url, authoritative=True)
        frame = write(Command(type=LOOKUP_RESPONSE, lookup_response=said))
        if roll > 0.9 and self._held is None:
            cut = self._dice.randrange(1, len(frame))
            self._say(frame[:cut])
            self._held = frame[cut:]
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.005), self._say_held)
        elif roll > 0.8:
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.02), self._say, frame)
        else:
            self._say(frame)

    def _say(self, data: bytes) -> None:
        if self._held is not None:
            self._held += data
        elif not self.transport.is_closing():
            self.transport.write(data)

    def _say_held(self) -> None:
        held, self._held = self._held or b"", None
        self._say(held)
