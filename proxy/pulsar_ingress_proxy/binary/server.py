"""The servers for the binary protocol, one for each bind address."""

import logging

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.fast_path import FastPathCache
from pulsar_ingress_proxy.binary.session import Session
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.socket_server import SocketServer
from pulsar_ingress_proxy.routing.selection import SHED
from pulsar_ingress_proxy.syntax.listeners import BindAddress

_CLOSING_SECONDS = 1.0
"""Seconds for clients to receive the reason before their connection is reset."""

log = logging.getLogger("proxy.binary")


class BinaryServer(SocketServer[Session]):
    """One bound socket."""

    protocol = "binary"

    def __init__(self, context: ServerContext, bind: BindAddress) -> None:
        super().__init__(context, bind)
        self.fast_paths = FastPathCache(context)
        for counted in (context.metrics.connections, context.metrics.in_flight, context.metrics.shed):
            counted.add("binary", by=0)

    def __call__(self) -> Session:
        return Session(self._context, self)

    def count_shed(self) -> None:
        """Count a lookup or connection that was refused to shed load."""
        self._context.metrics.requests.add("other", "binary", str(SHED.status))
        self._context.metrics.shed.add("binary")

    def _let_finish(self, client: Session) -> None:
        client.drain()

    async def _tell_to_leave(self) -> None:
        log.warning("%s: closing %d connections that did not drain within drainSeconds", self.bind, len(self._clients))
        for session in list(self._clients):
            session.leave(commands.SERVICE_NOT_READY, "shutting-down: this sidecar is shutting down")
        await self._is_empty(_CLOSING_SECONDS)
