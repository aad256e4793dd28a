"""The sockets that clients come in by with the binary protocol. Each knows its listener, if it has one."""

import asyncio
import logging
from typing import cast

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.lane import Lane
from pulsar_ingress_proxy.binary.session import Session
from pulsar_ingress_proxy.net.context import Rim
from pulsar_ingress_proxy.net.socket_server import Doorway
from pulsar_ingress_proxy.syntax.listeners import BindAddress

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


class BinaryDoor(Doorway[Session]):
    """One bound socket."""

    protocol = "binary"

    def __init__(self, rim: Rim, bind: BindAddress) -> None:
        super().__init__(rim, bind)
        self.lane = Lane(rim)
        for gauge in (rim.metrics.connections, rim.metrics.in_flight):
            gauge.add("binary", by=0)

    def __call__(self) -> Session:
        return Session(self._rim, self)

    def _let_finish(self, client: Session) -> None:
        client.drain()

    async def _tell_to_leave(self) -> None:
        log.warning("%s: %d connections end, as drainSeconds are over", self.bind, len(self._inside))
        for session in list(self._inside):
            session.leave(commands.SERVICE_NOT_READY, "shutting-down: this sidecar is shutting down")
        await self._is_deserted(_LAST_WORDS)
