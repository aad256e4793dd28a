"""Base of the servers of both protocols: one bound socket, its clients, and its shutdown."""

import asyncio
import os
import socket
import ssl
import sys
from abc import abstractmethod
from functools import partial
from typing import Generic, Protocol, TypeVar

from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.syntax.listeners import BindAddress

_LONGEST = 2**31 - 1
"""Maximum of TCP_USER_TIMEOUT in milliseconds."""
_BACKLOG = 1024
_ACCEPTS = 32
"""Connections that each turn of the loop accepts. libuv accepts one by each file descriptor of a socket, so that under
load, where a turn takes tenths of a second, new connections would wait until their client gives up."""


class Client(Protocol):
    """An accepted connection."""

    def reset(self) -> None:
        """Close immediately."""


ClientType = TypeVar("ClientType", bound=Client)


class SocketServer(Generic[ClientType]):
    """A bound socket and its clients."""

    protocol: str
    """The value of the metrics label."""

    def __init__(self, context: ServerContext, bind: BindAddress) -> None:
        self.bind = bind
        self.overload = context.overload
        self._context = context
        self._server: asyncio.Server | None = None
        self._accepting: list[asyncio.Server] = []
        """The same sockets again."""
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False
        self._clients: set[ClientType] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @abstractmethod
    def __call__(self) -> asyncio.BaseProtocol:
        """Create the protocol for an accepted connection."""

    @abstractmethod
    def _let_finish(self, client: ClientType) -> None:
        """Close a client's connection as soon as it is idle."""

    async def _tell_to_leave(self) -> None:
        """Close the connections that did not drain in time."""

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Bind the socket; raises OSError."""
        self._tls = tls
        timeout = self._context.decisions.config.timeouts.head if tls is not None else None
        listen = partial(
            asyncio.get_running_loop().create_server, self, ssl=tls, ssl_handshake_timeout=timeout, backlog=_BACKLOG
        )
        self._server = await listen(self.bind.host.strip("[]"), self.bind.port, reuse_address=True)
        for listening in self._server.sockets:
            for _ in range(_ACCEPTS - 1):
                self._accepting.append(await listen(sock=socket.socket(fileno=os.dup(listening.fileno()))))
        self.adopt(self.bind)

    def stop_listening(self) -> None:
        """Release the address; open connections stay."""
        if self._server is not None:
            self._server.close()
        for server in self._accepting:
            server.close()
        self._accepting.clear()

    async def listen_again(self) -> None:
        """Bind again after `stop_listening`; raises OSError."""
        await self.open(self._tls)

    def adopt(self, bind: BindAddress) -> None:
        """Apply a bind address of the config and the current timeouts; open connections use the new bind address, too.

        TCP_USER_TIMEOUT makes the kernel drop connections whose client does not read. A timer here would miss those
        that are closed with unsent bytes. New connections inherit it from the socket.
        """
        self.bind = bind
        assert self._server is not None
        if sys.platform == "linux":
            within = int(min(self._context.decisions.config.timeouts.request * 1000, _LONGEST))
            for listening in self._server.sockets:
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within)

    @property
    def port(self) -> int:
        """The port that was bound; the kernel chooses it for port 0."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Stop accepting, let clients finish within `grace` seconds, then close the rest."""
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

    # Called by connections.

    def admit(self, client: ClientType) -> bool:
        """Register a client; false if limits.connections is exceeded."""
        self._clients.add(client)
        self._empty.clear()
        if self._is_closed:  # accepted before the socket was closed
            self._let_finish(client)
        connections = self._context.metrics.connections.cell(self.protocol)
        connections[0] += 1
        return connections[0] <= self._context.decisions.config.limits.connections

    def let_go(self, client: ClientType) -> None:
        self._context.metrics.connections.add(self.protocol, by=-1)
        self._clients.discard(client)
        if not self._clients:
            self._empty.set()
