"""The demo's brokers answer as the simulated ones do, which are compared with real brokers."""

from typing import Any

import pytest
from aiohttp import ClientSession
from broker_client import LOOKUP, STATS, TOPIC
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.demo.brokers import DemoCluster, bundle

EXTERNAL = {"external": "pulsar.example.com"}


async def answered(
    session: ClientSession, url: str, method: str, headers: dict[str, str]
) -> tuple[int, str | None, Any]:
    async with session.request(method, url, headers=headers, data=b"x", allow_redirects=False) as answer:
        body = await answer.text()
        return answer.status, answer.headers.get("Location"), await answer.json() if body.startswith("{") else body


@pytest.mark.parametrize("owner", [None, 0, 2])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("listener", [None, "external", "internal"])
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", LOOKUP),
        ("GET", f"{LOOKUP}?authoritative=false"),
        ("GET", f"{LOOKUP}?authoritative=true&listenerName=external"),
        ("GET", STATS),
        ("GET", f"{STATS}?authoritative=true"),
        ("PUT", "/admin/v2/persistent/public/default/orders/subscription/s"),
        ("GET", "/admin/v2/brokers/ready"),
    ],
)
async def test_brokers_of_the_demo_answer_as_the_simulated_ones_do(
    method: str, target: str, listener: str | None, at: int, owner: int | None
) -> None:
    headers = {"X-Pulsar-ListenerName": listener} if listener is not None else {}
    async with SimulatedCluster() as simulated, DemoCluster(EXTERNAL) as demo, ClientSession() as session:
        if owner is not None:
            simulated.own(TOPIC, owner)
            demo.owners[bundle(TOPIC)] = owner
        expected = await answered(session, simulated.brokers[at].web + target, method, headers)
        assert await answered(session, demo.brokers[at].web + target, method, headers) == expected
        assert demo.owners.get(bundle(TOPIC)) == simulated.owner(TOPIC)
