"""A bound socket of either protocol: it goes by a bind address of the config, knows its clients, and closes."""

import asyncio
import socket
import ssl
import sys
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.syntax.listeners import BindAddress

_LONGEST = 2**31 - 1
"""Milliseconds that TCP_USER_TIMEOUT can have."""


class Client(Protocol):
    """A connection that came in."""

    def reset(self) -> None:
        """End at once."""


Someone = TypeVar("Someone", bound=Client)


class SocketServer(Generic[Someone]):
    """What servers of both protocols have in common."""

    protocol: str
    """As metrics call it."""

    def __init__(self, context: ServerContext, bind: BindAddress) -> None:
        self.bind = bind
        self._context = context
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False
        self._clients: set[Someone] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @abstractmethod
    def __call__(self) -> asyncio.BaseProtocol:
        """Whoever meets the next client."""

    @abstractmethod
    def _let_finish(self, client: Someone) -> None:
        """Have a client leave as soon as it has nothing left to do here."""

    async def _tell_to_leave(self) -> None:
        """Have those leave who were not done in time."""

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Bind; raises OSError where that cannot be."""
        self._tls = tls
        self._server = await asyncio.get_running_loop().create_server(
            self,
            self.bind.host.strip("[]"),
            self.bind.port,
            ssl=tls,
            ssl_handshake_timeout=self._context.decisions.config.timeouts.head if tls is not None else None,
            reuse_address=True,
            backlog=1024,
        )
        self.adopt(self.bind)

    def stop_listening(self) -> None:
        """Let the address be bound by another; who is inside stays."""
        if self._server is not None:
            self._server.close()

    async def listen_again(self) -> None:
        """Raises OSError where the address is gone."""
        await self.open(self._tls)

    def adopt(self, bind: BindAddress) -> None:
        """Go by this line of the config from now on, and by the timeouts in force; also on connections that there are.

        The system ends connections whose client takes nothing of what is sent. No timer here could see them all: one
        that is closed with bytes left to send is out of our hands. Connections inherit that from the socket.
        """
        self.bind = bind
        assert self._server is not None
        if sys.platform == "linux":
            within = int(min(self._context.decisions.config.timeouts.request * 1000, _LONGEST))
            for listening in self._server.sockets:
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within)

    @property
    def port(self) -> int:
        """The port that was bound, which port 0 leaves to the system."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Stop accepting, let clients finish within so many seconds, then end those that stay."""
        self._is_closed = True
        self.stop_listening()
        for client in list(self._clients):
            self._let_finish(client)
        if await self._is_empty(grace):
            return
        await self._tell_to_leave()
        for client in list(self._clients):
            client.reset()
        await self._empty.wait()

    async def _is_empty(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    # What connections call.

    def admit(self, client: Someone) -> bool:
        """Count a client in; false where it is one too many."""
        self._clients.add(client)
        self._empty.clear()
        if self._is_closed:  # it was on its way in
            self._let_finish(client)
        connections = self._context.metrics.connections.cell(self.protocol)
        connections[0] += 1
        return connections[0] <= self._context.decisions.config.limits.connections

    def let_go(self, client: Someone) -> None:
        self._context.metrics.connections.add(self.protocol, by=-1)
        self._clients.discard(client)
        if not self._clients:
            self._empty.set()
