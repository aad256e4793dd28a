"""The pool of brokers: round robin, ejection of failed brokers, and dialling."""

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from typing import TypeVar

from pulsar_ingress_proxy.net.errors import Unreachable
from pulsar_ingress_proxy.net.tls import BrokerTls, WrongIdentity, error_text
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, ServiceUrl

_EJECTED = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds for which a broker is tried last after its first failure, its second in a row, and so on."""

Made = TypeVar("Made", bound=asyncio.Protocol)


class BrokerPool:
    """Orders brokers for each request, tracks failures, and dials."""

    def __init__(self, connect_timeout: float, tls: BrokerTls) -> None:
        self._loop = asyncio.get_running_loop()
        self._failures: dict[ServiceUrl, tuple[int, float]] = {}
        self._turn = 0
        self.set_up(connect_timeout, tls)

    def set_up(self, connect_timeout: float, tls: BrokerTls) -> None:
        self._connect_timeout = connect_timeout
        self.tls = tls

    def in_turn(self, urls: tuple[ServiceUrl, ...]) -> Iterator[ServiceUrl]:
        """All brokers in round-robin order, with recently failed ones last."""
        if len(urls) == 1:
            return iter(urls)
        self._turn += 1
        start = self._turn % len(urls)
        turn = urls[start:] + urls[:start]
        if not self._failures:
            return iter(turn)
        now = self._loop.time()
        return iter(sorted(turn, key=lambda url: self._failures.get(url, (0, 0.0))[1] > now))

    def failed(self, url: ServiceUrl) -> None:
        """Try this broker last for a while, longer each time."""
        now = self._loop.time()
        times = min(self._failures.get(url, (0, 0.0))[0] + 1, len(_EJECTED))
        # Clients can name any broker that a template covers, so old failures are dropped.
        self._failures = {each: one for each, one in self._failures.items() if one[1] + _EJECTED[-1] > now}
        self._failures[url] = (times, now + _EJECTED[times - 1])

    def succeeded(self, url: ServiceUrl) -> None:
        if self._failures:
            self._failures.pop(url, None)

    async def dial(self, url: ServiceUrl, make: Callable[[], Made]) -> Made:
        """Resolve the host and try its addresses in random order, sharing the timeout; raises Unreachable."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = await self._loop.getaddrinfo(url.host.strip("[]"), int(url.port), type=socket.SOCK_STREAM)
        except TimeoutError:
            raise Unreachable(f"{url.host} could not be looked up within {self._connect_timeout:g} s") from None
        except (OSError, UnicodeError) as error:  # IDNA rejects labels over 63 characters
            raise Unreachable(f"{url.host} cannot be looked up: {error}") from None
        except RuntimeError as error:
            # uvloop, if the resolver fails with EAI_SYSTEM and no errno, as glibc's does without a file descriptor.
            raise Unreachable(f"{url.host} cannot be looked up: the system has failed ({error})") from None
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
                problem = error_text(error)
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
