"""The sockets that clients come in by. Each knows its listener, if it has one."""

import asyncio
import socket
import ssl
import sys
from typing import cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_request import BaseRequest

from proxy.listeners import BindAddress
from proxy.observe.records import Record
from proxy.web.client import Answered, ClientConnection, TooSlow, head_size
from proxy.web.exchange import Exchange
from proxy.web.lane import Lane, Run
from proxy.web.rim import Rim


def end_unread(server: asyncio.Server, within: float) -> None:
    """Let the system end connections whose client takes nothing of what is sent for so many seconds.

    No timer here could see them all: one that is closed with bytes left to send is out of our hands. Connections
    inherit it.
    """
    if sys.platform == "linux":
        for listening in server.sockets:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(within * 1000))


class Door(web.Server):
    """One bound socket."""

    def __init__(self, rim: Rim, bind: BindAddress) -> None:
        super().__init__(self._answer, handler_cancellation=True)
        self.bind = bind
        self._rim = rim
        self._lane = Lane(rim)
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._clients: set[ClientConnection] = set()
        self._deserted = asyncio.Event()
        self._deserted.set()

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Bind; raises OSError where that cannot be."""
        self._server = await asyncio.get_running_loop().create_server(
            self,
            self.bind.host.strip("[]"),
            self.bind.port,
            ssl=tls,
            ssl_handshake_timeout=self.head_timeout if tls is not None else None,
            reuse_address=True,
            backlog=1024,
        )
        self.adopt(self.bind)

    def adopt(self, bind: BindAddress) -> None:
        """Go by this line of the config from now on, and by the timeouts in force."""
        self.bind = bind
        assert self._server is not None
        end_unread(self._server, self._rim.rules.config.timeouts.request)

    @property
    def port(self) -> int:
        """The port that was bound, which port 0 leaves to the system."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Stop accepting, let what runs finish within so many seconds, then end it."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.close()
        try:
            async with asyncio.timeout(grace):
                await self._deserted.wait()
        except TimeoutError:
            for client in list(self._clients):
                client.reset()
            await self._deserted.wait()

    # What connections call.

    def admit(self, client: ClientConnection) -> bool:
        """Count a client in; false where it is one too many."""
        self._clients.add(client)
        self._deserted.clear()
        if self._is_closed:  # it was on its way in
            client.close()
        connections = self._rim.metrics.connections
        connections.add("http")
        return connections.values["http",] <= self._rim.rules.config.limits.connections

    def let_go(self, client: ClientConnection) -> None:
        self._rim.metrics.connections.add("http", by=-1)
        self._clients.discard(client)
        if not self._clients:
            self._deserted.set()

    @property
    def head_timeout(self) -> float:
        return self._rim.rules.config.timeouts.head

    def exchange(self, client: ClientConnection, message: RawRequestMessage) -> Exchange:
        """A request without a body."""
        return Exchange(self._rim, self.bind, client, message)

    def begin_alike(self, client: ClientConnection, data: bytes) -> Run | None:
        """A lookup that is like one before, or None."""
        return self._lane.begin(client, data)

    def learn(self, client: ClientConnection, data: bytes, exchange: Exchange) -> None:
        """So that the next may be."""
        self._lane.learn(client, data, exchange, self.bind)

    def count(self, record: Record) -> None:
        """What was answered before it became a request."""
        self._rim.metrics.count(record)

    # What aiohttp calls.

    def __call__(self) -> ClientConnection:
        config = self._rim.rules.config
        return ClientConnection(
            self,
            keepalive_timeout=config.timeouts.client_idle,
            max_line_size=config.limits.head_bytes,
            max_field_size=config.limits.head_bytes,
            max_headers=config.limits.headers,
            auto_decompress=False,
            access_log=None,
        )

    async def _answer(self, request: BaseRequest) -> web.StreamResponse:
        """A request that goes aiohttp's way: with a body, an upgrade, or others before it."""
        client = cast(ClientConnection, request.protocol)
        if head_size(request._message) > client.max_line_size:
            client.refuse_head()
            return cast(web.StreamResponse, Answered(keep_alive=False))
        body = request.content if request.body_exists else None
        exchange = Exchange(self._rim, self.bind, client, request._message, body)
        keep_alive = await exchange.run()
        try:
            # Before the next request is begun, or one who asks and does not read would fill the memory.
            await client.drain(self._rim.rules.config.timeouts.request)
        except TooSlow:
            client.reset()
        return cast(web.StreamResponse, Answered(keep_alive and not client.is_draining))
