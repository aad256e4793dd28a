"""A plain client of simulated brokers, which follows no redirect, and the names that its tests expect."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession, DummyCookieJar
from simulated.cluster import Listener, SimulatedBroker
from simulated.metadata import Family
from yarl import URL

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
STATS = "/admin/v2/persistent/public/default/orders/stats"
HEADER = "X-Pulsar-ListenerName"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
TWO_URLS = Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651")
both_families = pytest.mark.parametrize("family", FAMILIES)


def named(n: int) -> str:
    return f"pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"


def web(n: int) -> str:
    return f"http://{named(n)}:8080"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends targets byte for byte, follows no redirect, decodes nothing."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def send(
        self,
        broker: SimulatedBroker,
        target: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        url = URL(broker.web + target, encoded=True)
        async with self.session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            return Reply(response.status, response.headers, await response.read())

    async def location(self, broker: SimulatedBroker, target: str, **options: Any) -> str:
        reply = await self.send(broker, target, **options)
        assert reply.status == 307, reply
        return reply.headers["Location"]

    async def json(self, broker: SimulatedBroker, target: str, **options: Any) -> Any:
        reply = await self.send(broker, target, **options)
        assert reply.status == 200, reply
        return reply.json


@asynccontextmanager
async def broker_client() -> AsyncIterator[Client]:
    async with ClientSession(
        auto_decompress=False, cookie_jar=DummyCookieJar(), skip_auto_headers=["Accept-Encoding"]
    ) as session:
        yield Client(session)
