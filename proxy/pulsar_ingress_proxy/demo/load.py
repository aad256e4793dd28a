"""The demo's load: steady lookups that hit, some that miss, brokers that redirect, and one answer that leaks.

It gives the console and the metrics something to show.
"""

import asyncio
import random
from collections.abc import Iterator

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from pulsar_ingress_proxy.demo.brokers import DemoCluster

PAUSE = 0.04
"""Seconds between requests."""
_LEAK_AT = 40
_UNLOAD_EVERY = 97

_HOSTS = ("pulsar.example.com",) * 4 + ("partners.example.net",)
_NAMESPACES = ("public/default", "shop/orders", "shop/billing", "iot/sensors")
_AGENTS = ("Pulsar-Java-v4.0.7",) * 2 + ("Pulsar-Java-v5.0.0", "Pulsar-CPP-v3.8.0", "pulsar-client-go/0.16")

_STRANGER = "pulsar-broker-9.pulsar-broker.pulsar.svc.cluster.local"
"""A broker that is not in the address book."""


async def _leak(_: web.Request, __: Handler) -> web.StreamResponse:
    url = f"pulsar://{_STRANGER}:6650"
    return web.json_response({"brokerUrl": url, "httpUrl": f"http://{_STRANGER}:8080", "nativeUrl": url})


async def ask(
    session: aiohttp.ClientSession, gateway: str, url: str, agent: str = "demo"
) -> tuple[int, str | None, bytes]:
    """Ask for a URL through the gateway, as if it ended TLS; returns status, Location and body."""
    target = URL(url, encoded=True)
    headers = {"Host": target.raw_authority, "X-Forwarded-Proto": target.scheme, "User-Agent": agent}
    address = URL(gateway + target.raw_path_qs, encoded=True)
    async with session.get(address, headers=headers, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location"), await answer.read()


class Load:
    """Endless requests, the same in every run."""

    def __init__(self, cluster: DemoCluster, session: aiohttp.ClientSession, gateway: str) -> None:
        self._cluster = cluster
        self._session = session
        self._gateway = gateway
        self._dice = random.Random(7)  # noqa: S311 - chance, not secrecy

    async def run(self) -> None:
        for number, (host, path) in enumerate(self._requests()):
            for broker in self._cluster.brokers:
                broker.intercept = _leak if number == _LEAK_AT else None
            await self._follow(f"https://{host}{path}")
            if number % _UNLOAD_EVERY == 0:
                # As when bundles are unloaded: the next lookups are redirected, until they have owners again.
                self._cluster.owners.clear()
            await asyncio.sleep(PAUSE * self._dice.uniform(0.2, 1.8))

    def _requests(self) -> Iterator[tuple[str, str]]:
        """Host and path of each."""
        dice = self._dice
        number = 0
        while True:
            host = dice.choice(_HOSTS)
            topic = f"persistent/{dice.choice(_NAMESPACES)}/topic-{dice.randrange(40)}"
            lookup = f"/lookup/v2/topic/{topic}"
            match number % 50:
                case 12:  # a host that no ingress has
                    yield "pulsar.old-name.example.org", lookup
                case 31:  # a listener that no broker has
                    yield "pulsar.example.com", f"{lookup}?listenerName=staging"
                case 5 | 22 | 44:  # the owner alone knows
                    yield host, f"/admin/v2/{topic}/stats"
                case _:
                    yield host, lookup
            number += 1

    async def _follow(self, url: str) -> None:
        """Ask as a client behind the gateway does, and follow redirects."""
        for _ in range(5):
            status, location, _ = await ask(self._session, self._gateway, url, self._dice.choice(_AGENTS))
            if status not in (302, 307) or location is None:
                return
            if not (URL(location, encoded=True).host or "").endswith(_HOSTS):
                return  # an internal name, as after a miss
            url = location
