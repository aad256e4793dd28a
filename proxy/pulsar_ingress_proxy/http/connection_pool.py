"""Connections to brokers over HTTP, kept for the next request."""

import asyncio

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

_LIFETIME = 60.0
"""Seconds after which a connection is not used again, so that names are resolved again as pods move."""
_TICK = 0.1
"""Seconds between looks at which answers are overdue."""


class ConnectionPool:
    """Idle connections by broker address."""

    def __init__(self, brokers: BrokerPool, idle_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.brokers = brokers
        self.idle_timeout = idle_timeout
        """Seconds for which a connection may be idle."""
        self._idle: dict[str, list[UpstreamConnection]] = {}
        self._asked: set[UpstreamConnection] = set()
        """Connections whose answer is waited for without a timer of its own."""
        self._ticker = self._loop.call_later(_TICK, self._tick)
        self._sweeper = self._loop.call_later(idle_timeout, self._sweep)

    def kept(self, url: ServiceUrl) -> UpstreamConnection | None:
        """A connection that was kept and can still be used, if there is one."""
        idle = self._idle.get(url.text)
        while idle:
            connection = idle.pop()
            if connection.alive and self._loop.time() - connection.idle_since < self.idle_timeout:
                return connection
            connection.close()
        return None

    async def connection(self, url: ServiceUrl, reuse: bool) -> UpstreamConnection:
        """A connection that waits for a request: one that was kept, where that may be, else a new one.

        A new one takes the place of one that was kept, or each request that wants one would leave one more behind.
        """
        kept = self.kept(url)
        if kept is not None and reuse:
            return kept
        if kept is not None:
            kept.close()
        return await self.brokers.dial(url, lambda: UpstreamConnection(self._loop, url))

    def give_back(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose answer is whole; close any other."""
        self.brokers.succeeded(connection.url)
        now = self._loop.time()
        if connection.reusable and now - connection.born < _LIFETIME:
            connection.rest(now)
            idle = self._idle.get(connection.url.text)
            if idle is None:
                idle = self._idle[connection.url.text] = []
            idle.append(connection)
        else:
            connection.close()

    def watch(self, connection: UpstreamConnection) -> None:
        """See to it that an answer does not take for ever."""
        self._asked.add(connection)

    def unwatch(self, connection: UpstreamConnection) -> None:
        self._asked.discard(connection)

    def close(self) -> None:
        self._ticker.cancel()
        self._sweeper.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _tick(self) -> None:
        now = self._loop.time()
        for connection in list(self._asked):
            connection.expire(now)
        self._ticker = self._loop.call_later(_TICK, self._tick)

    def _sweep(self) -> None:
        """Close what nobody has used for long; broker connections must not outlive their welcome there."""
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
