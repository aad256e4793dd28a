"""The servers for HTTP, one for each bind address."""

import asyncio

from pulsar_ingress_proxy.config.model import Limits
from pulsar_ingress_proxy.http.client import ClientConnection
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.socket_server import SocketServer
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.routing.selection import SHED
from pulsar_ingress_proxy.syntax.listeners import BindAddress

_SWEEPS = 8
"""Checks for idle connections within one idle timeout."""


class HttpServer(SocketServer[ClientConnection]):
    """One bound socket."""

    protocol = "http"

    def __init__(self, context: ServerContext, pool: ConnectionPool, bind: BindAddress) -> None:
        super().__init__(context, bind)
        self.context = context
        self.pool = pool
        self.buffers = context.buffers
        self.loop = asyncio.get_running_loop()
        self.in_flight = context.metrics.in_flight.cell("http")
        self.tasks = context.metrics.tasks.cell()
        self._sweeper = self.loop.call_later(0, self._sweep)

    def __call__(self) -> ClientConnection:
        return ClientConnection(self)

    async def close(self, grace: float) -> None:
        await super().close(grace)
        self._sweeper.cancel()

    def _let_finish(self, client: ClientConnection) -> None:
        client.close()

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        within = self.context.decisions.config.timeouts.client_idle
        since = self.loop.time() - within
        for client in list(self._clients):
            client.close_if_idle(since)
        self._sweeper = self.loop.call_later(within / _SWEEPS, self._sweep)

    # Called by connections.

    @property
    def limits(self) -> Limits:
        return self.context.decisions.config.limits

    @property
    def head_timeout(self) -> float:
        return self.context.decisions.config.timeouts.head

    def count_refusal(self, status: int) -> None:
        """Count an answer that was sent without a request."""
        Outcome(AccessRecord(status=status), self.context.metrics).count(0, None)

    def count_shed(self) -> None:
        """Count a request that was refused to shed load; without its time, as that would cost more than the answer."""
        self.context.metrics.requests.add("other", "http", str(SHED.status))
        self.context.metrics.shed.add("http")
