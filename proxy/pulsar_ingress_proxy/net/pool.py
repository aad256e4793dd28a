"""Connections to brokers, kept for the next request, and which broker is asked next."""

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from typing import TypeVar

from pulsar_ingress_proxy.http.upstream import Unreachable, UpstreamConnection
from pulsar_ingress_proxy.net.tls import BrokerTls, WrongIdentity, in_words
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, ServiceUrl

_LIFETIME = 60.0
"""Seconds after which a connection is not used again, so that names are looked up anew as pods move."""
_TICK = 0.1
"""Seconds between looks at which answers are overdue."""
_EJECTED = 5.0
"""Seconds for which a broker that failed is asked last."""
_EJECTED_MOST = 60.0


Made = TypeVar("Made", bound=asyncio.Protocol)


class Pool:
    """Idle connections by broker address, and the memory of which brokers failed."""

    def __init__(self, connect_timeout: float, idle_timeout: float, tls: BrokerTls) -> None:
        self._loop = asyncio.get_running_loop()
        self.set_up(connect_timeout, idle_timeout, tls)
        self._idle: dict[ServiceUrl, list[UpstreamConnection]] = {}
        self._failures: dict[ServiceUrl, tuple[int, float]] = {}
        self._turn = 0
        self._asked: set[UpstreamConnection] = set()
        """Connections whose answer nobody waits for with a timer of his own."""
        self._ticker = self._loop.call_later(_TICK, self._tick)
        self._sweeper = self._loop.call_later(idle_timeout, self._sweep)

    def set_up(self, connect_timeout: float, idle_timeout: float, tls: BrokerTls) -> None:
        """What new connections are made by."""
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self.tls = tls

    def in_turn(self, urls: tuple[ServiceUrl, ...]) -> Iterator[ServiceUrl]:
        """All brokers once, each request beginning with the next one, those that failed of late at the end."""
        if len(urls) == 1:
            return iter(urls)
        self._turn += 1
        start = self._turn % len(urls)
        turn = urls[start:] + urls[:start]
        if not self._failures:
            return iter(turn)
        now = self._loop.time()
        return iter(sorted(turn, key=lambda url: self._failures.get(url, (0, 0.0))[1] > now))

    def kept_in_turn(self, urls: tuple[ServiceUrl, ...]) -> UpstreamConnection | None:
        """A kept connection to the broker whose turn it is, if there is one and no broker has failed of late."""
        if len(urls) == 1:
            return self.kept(urls[0])
        if self._failures and not self._failures.keys().isdisjoint(urls):
            return None
        connection = self.kept(urls[(self._turn + 1) % len(urls)])
        if connection is not None:
            self._turn += 1
        return connection

    def after(self, url: ServiceUrl, urls: tuple[ServiceUrl, ...]) -> Iterator[ServiceUrl]:
        """All brokers once, this one first, without a turn being taken."""
        place = urls.index(url)
        return iter(urls[place:] + urls[:place])

    def kept(self, url: ServiceUrl) -> UpstreamConnection | None:
        """A connection that was kept and can still be used, if there is one."""
        idle = self._idle.get(url)
        while idle:
            connection = idle.pop()
            if connection.alive and self._loop.time() - connection.idle_since < self._idle_timeout:
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
        return await self.dial(url, lambda: UpstreamConnection(self._loop, url))

    def give_back(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose answer is whole; close any other."""
        self.succeeded(connection.url)
        if connection.reusable and connection.alive and self._loop.time() - connection.born < _LIFETIME:
            connection.rest()
            self._idle.setdefault(connection.url, []).append(connection)
        else:
            connection.close()

    def failed(self, url: ServiceUrl) -> None:
        """Ask this broker last for a while, longer each time."""
        times = self._failures.get(url, (0, 0.0))[0] + 1
        self._failures[url] = (times, self._loop.time() + min(_EJECTED * 2 ** (times - 1), _EJECTED_MOST))

    def succeeded(self, url: ServiceUrl) -> None:
        """Ask this broker in its turn again."""
        self._failures.pop(url, None)

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

    async def dial(self, url: ServiceUrl, make: Callable[[], Made]) -> Made:
        """Look the name up and try its addresses in any order, each with its share of the time; raises Unreachable."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = await self._loop.getaddrinfo(url.host.strip("[]"), int(url.port), type=socket.SOCK_STREAM)
        except TimeoutError:
            raise Unreachable(f"{url.host} could not be looked up within {self._connect_timeout:g} s") from None
        except (OSError, UnicodeError) as error:  # a label of more than 63 letters is no name to IDNA
            raise Unreachable(f"{url.host} cannot be looked up: {error}") from None
        random.shuffle(addresses)
        deadline = self._loop.time() + self._connect_timeout
        problem = "it has no address"
        for left, (family, _, _, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            share = (deadline - self._loop.time()) / left
            try:
                async with asyncio.timeout(share):
                    return await self._open(url, make, family, str(address[0]), int(address[1]))
            except TimeoutError:
                problem = f"no connection within {share:.3g} s"
            except OSError as error:
                problem = in_words(error)
        raise Unreachable(f"{url} cannot be reached: {problem}")

    async def _open(self, url: ServiceUrl, make: Callable[[], Made], family: int, host: str, port: int) -> Made:
        tls = self.tls if url.scheme in TLS_SCHEMES else None
        transport, connection = await self._loop.create_connection(
            make,
            host,
            port,
            family=family,
            ssl=tls.context(url.scheme) if tls is not None else None,
            server_hostname=url.host.strip("[]") if tls is not None else None,
        )
        if tls is not None:
            try:
                tls.verify(transport.get_extra_info("ssl_object"))
            except WrongIdentity:
                transport.abort()
                raise
        return connection

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
                if connection.idle_since > now - self._idle_timeout and connection.alive:
                    kept.append(connection)
                else:
                    connection.close()
            if kept:
                self._idle[url] = kept
            else:
                del self._idle[url]
        # Clients can name any broker that a template covers, so what is remembered of failures must end.
        self._failures = {url: failure for url, failure in self._failures.items() if failure[1] + _EJECTED_MOST > now}
        self._sweeper = self._loop.call_later(self._idle_timeout / 2, self._sweep)
