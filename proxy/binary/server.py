"""The sockets that clients come in by with the binary protocol. Each knows its listener, if it has one."""

import asyncio
import logging
import ssl
from typing import cast

from proxy.binary import commands
from proxy.binary.lane import Lane
from proxy.binary.session import Session
from proxy.listeners import BindAddress
from proxy.web.rim import Rim
from proxy.web.server import end_unread

_LAST_WORDS = 1.0
"""Seconds for clients to hear why their connection ends."""

log = logging.getLogger("proxy.binary")


class ClosedDoor(asyncio.Protocol):
    """What clients meet while there is no config to serve them by: a reason, and that they may come again."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(commands.goodbye(commands.SERVICE_NOT_READY, self._reason))
            self._transport.close()


class BinaryDoor:
    """One bound socket."""

    def __init__(self, rim: Rim, bind: BindAddress) -> None:
        self.bind = bind
        self._rim = rim
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self.lane = Lane(rim, bind)
        self._sessions: set[Session] = set()
        self._deserted = asyncio.Event()
        self._deserted.set()
        for gauge in (rim.metrics.connections, rim.metrics.in_flight):
            gauge.add("binary", by=0)

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Bind; raises OSError where that cannot be."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Session(self._rim, self),
            self.bind.host.strip("[]"),
            self.bind.port,
            ssl=tls,
            ssl_handshake_timeout=self._rim.rules.config.timeouts.head if tls is not None else None,
            reuse_address=True,
            backlog=1024,
        )
        self.adopt(self.bind)

    def adopt(self, bind: BindAddress) -> None:
        """Go by this line of the config from now on, also for what is asked on connections that there are."""
        self.bind = bind
        assert self._server is not None
        end_unread(self._server, self._rim.rules.config.timeouts.request)

    @property
    def port(self) -> int:
        """The port that was bound, which port 0 leaves to the system."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Stop accepting, let clients finish within so many seconds, then tell those that stay, and end them."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.drain()
        if await self._is_deserted(grace):
            return
        log.warning("%s: %d connections end, as drainSeconds are over", self.bind, len(self._sessions))
        for session in list(self._sessions):
            session.leave(commands.SERVICE_NOT_READY, "shutting-down: this sidecar is shutting down")
        if not await self._is_deserted(_LAST_WORDS):
            for session in list(self._sessions):
                session.reset()
            await self._deserted.wait()

    async def _is_deserted(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                await self._deserted.wait()
        except TimeoutError:
            return False
        return True

    # What sessions call.

    def admit(self, session: Session) -> bool:
        """Count a client in; false where it is one too many."""
        self._sessions.add(session)
        self._deserted.clear()
        if self._is_closed:  # it was on its way in
            session.drain()
        connections = self._rim.metrics.connections
        connections.add("binary")
        return connections.values["binary",] <= self._rim.rules.config.limits.connections

    def let_go(self, session: Session) -> None:
        self._rim.metrics.connections.add("binary", by=-1)
        self._sessions.discard(session)
        if not self._sessions:
            self._deserted.set()
