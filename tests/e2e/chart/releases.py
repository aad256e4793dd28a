"""A release of the chart on a node, simulated brokers behind it, and clients before it."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from apiclient import Object
from node import Pod

HOST = "pulsar.example.com"
TOPIC = "persistent://public/default/orders"
LOOKUP = f"/lookup/v2/topic/{TOPIC.replace('://', '/')}"
BROKER = "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"


def config(domain: str = HOST, **keys: Any) -> dict[str, Any]:
    """As an operator would write it. Brokers are reached from outside under a domain."""
    return {
        "brokers": {"webServiceUrl": ["http://pulsar-broker.pulsar.svc.cluster.local:8080"]},
        "ingresses": [{"name": "public", "hosts": [HOST], "listener": "external", "expose": ["lookup", "client"]}],
        "advertisedListeners": [
            {"broker": BROKER, "listeners": f"internal:http://{BROKER}:8080,external:https://broker-{{n}}.{domain}"}
        ],
        **keys,
    }


BROKEN = config(advertisedListeners=[{"broker": BROKER, "listeners": "external:https://broker-{m}.pulsar.example.com"}])
"""What values.schema.json allows, and `check` does not: a place in an address that the broker's name does not have."""


SECONDS = aiohttp.ClientTimeout(total=20)


class Client:
    """One who comes through the ingress, whatever leads there."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def lookup(self) -> tuple[int, Any]:
        """Status and body; redirects are not followed."""
        options: dict[str, Any] = {"headers": {"Host": HOST}, "allow_redirects": False, "timeout": SECONDS}
        async with self._session.get(self._url + LOOKUP, **options) as answer:
            return answer.status, json.loads(await answer.read() or b"null")

    async def address(self) -> str:
        """The web address of the broker that has the topic; or what else was said."""
        status, body = await self.lookup()
        return str(body["httpUrl"]) if status == 200 else f"{status} {body}"


class Load:
    """Lookups, four at a time, and what they were answered."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self._came = asyncio.Condition()

    async def ask(self, client: Client) -> None:
        while True:
            address = await client.address()
            async with self._came:
                self.answers[address] += 1
                self._came.notify_all()

    async def more(self, address: str, count: int = 50) -> None:
        """Wait until so many more have had that address."""
        enough = self.answers[address] + count
        try:
            async with asyncio.timeout(30), self._came:
                await self._came.wait_for(lambda: self.answers[address] >= enough)
        except TimeoutError:
            raise AssertionError(f"{address} should have come {enough} times: {self.answers}") from None


@asynccontextmanager
async def load(client: Client) -> AsyncIterator[Load]:
    """For as long as the block lasts. A lookup that fails, fails the block."""
    one = Load()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one.ask(client)) for _ in range(4)]
        yield one
        for task in running:
            task.cancel()


async def in_force(generation: int, pods: list[Pod]) -> None:
    """Wait until that is what all of them go by."""
    for pod in pods:
        await pod.containers["pulsar-ingress-proxy"].process.says(f"generation {generation} is in force")


def broker_address(n: int, domain: str = HOST) -> str:
    return f"https://broker-{n}.{domain}"


def config_map(namespace: str, name: str) -> Object:
    """Where it is."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}
