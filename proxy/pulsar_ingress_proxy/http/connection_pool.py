"""Pool of idle HTTP connections to brokers."""

import asyncio
from weakref import WeakSet

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

_LIFETIME = 60.0
"""Maximum age of a connection in seconds, so that names are resolved again when pods move."""
_TICK = 0.1
"""Seconds between checks for overdue answers."""


class ConnectionPool:
    """Idle connections by broker address."""

    def __init__(self, brokers: BrokerPool, idle_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.brokers = brokers
        self.idle_timeout = idle_timeout
        """Seconds."""
        self._idle: dict[str, list[UpstreamConnection]] = {}
        self._open: WeakSet[UpstreamConnection] = WeakSet()
        """All connections, whose answers may be overdue."""
        self._ticker = self._loop.call_later(_TICK, self._tick)
        self._sweeper = self._loop.call_later(idle_timeout, self._sweep)

    def kept(self, url: ServiceUrl) -> UpstreamConnection | None:
        """An idle connection that can be reused, if there is one."""
        idle = self._idle.get(url.text)
        while idle:
            connection = idle.pop()
            if connection.alive and self._loop.time() - connection.idle_since < self.idle_timeout:
                return connection
            connection.close()
        return None

    async def connection(self, url: ServiceUrl, reuse: bool) -> UpstreamConnection:
        """An idle connection if `reuse` allows it, else a new one.

        A new connection replaces an idle one, so that the pool does not grow with each of them.
        """
        kept = self.kept(url)
        if kept is not None and reuse:
            return kept
        if kept is not None:
            kept.close()
        connection = await self.brokers.dial(url, lambda: UpstreamConnection(self._loop, url))
        self._open.add(connection)
        return connection

    def give_back(self, connection: UpstreamConnection) -> None:
        """Keep the connection if it can be reused; otherwise close it."""
        self.brokers.succeeded(connection.url)
        now = self._loop.time()
        if now - connection.born < _LIFETIME and connection.rest(now):
            idle = self._idle.get(connection.url.text)
            if idle is None:
                idle = self._idle[connection.url.text] = []
            idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._ticker.cancel()
        self._sweeper.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _tick(self) -> None:
        now = self._loop.time()
        for connection in list(self._open):
            connection.expire(now)
        self._ticker = self._loop.call_later(_TICK, self._tick)

    def _sweep(self) -> None:
        """Close connections that were idle for too long, before the broker does."""
        now = self._loop.time()
        for url, connections in list(self._idle.items()):
            kept: list[UpstreamConnection] = []
            for connection in connections:
                if connection.idle_since > now - self.idle_timeout and connection.alive:
                    kept.append(connection)
                else:
                    connection.close()
            if kept:
                self._idle[url] = kept
            else:
                del self._idle[url]
        self._sweeper = self._loop.call_later(self.idle_timeout / 2, self._sweep)
