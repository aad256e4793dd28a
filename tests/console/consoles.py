"""A sidecar with a console, in front of simulated brokers: all of it on loopback sockets."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession
from simulated.cluster import Answer, SimulatedCluster, says
from yarl import URL

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping

HOST = "pulsar.example.com"
LOOKUP = "/lookup/v2/topic/persistent/public/default/"
STRANGER = "pulsar://pulsar-broker-9.pulsar-broker.pulsar.svc.cluster.local:6650"
LEAK = says(Answer(200, json.dumps({"brokerUrl": STRANGER}).encode(), "application/json"))


class Place:
    """A sidecar and its brokers; `session` takes paths of the console."""

    def __init__(
        self, cluster: SimulatedCluster, sidecar: Sidecar, session: ClientSession, keys: dict[str, Any]
    ) -> None:
        self.cluster = cluster
        self.sidecar = sidecar
        self.session = session
        self.keys = keys

    async def get(self, path: str, **headers: str) -> ClientResponse:
        """An answer of the console, read to its end."""
        async with self.session.get(path, headers=headers) as answer:
            await answer.read()
            return answer

    async def api(self, path: str) -> Any:
        answer = await self.get(f"/api/{path}")
        assert answer.status == 200, await answer.text()
        return await answer.json()

    async def what_if(self, **question: Any) -> Any:
        async with self.session.post("/api/what-if", json=question) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def ask(self, path: str, host: str = HOST, **headers: str) -> int:
        """One request to the sidecar, as a gateway sends it."""
        url = URL(f"http://127.0.0.1:{self.sidecar.http_servers[0].port}{path}", encoded=True)
        fields = {"Host": host, "X-Forwarded-Proto": "https", **headers}
        async with self.session.get(url, headers=fields, allow_redirects=False) as answer:
            await answer.read()
            return answer.status

    async def hit(self, topic: str = "orders") -> None:
        """One that is not redirected: its bundle has an owner."""
        self.cluster.own(f"persistent://public/default/{topic}", 0)
        assert await self.ask(LOOKUP + topic) == 200

    async def miss(self, topic: str = "orders") -> None:
        assert await self.ask(LOOKUP + topic, host="elsewhere.example.org") in (200, 307)

    async def leak(self) -> None:
        broker = self.cluster.brokers[1]
        broker.script.append(LEAK)
        assert await self.ask(LOOKUP + "leaking") == 200

    async def redirect(self) -> None:
        """A lookup of a bundle that nobody owns, at a broker that does not lead."""
        assert await self.ask("/lookup/v2/topic/persistent/new/bundle/t") == 307

    async def reload(self, **keys: Any) -> None:
        await self.sidecar.reload(load_mapping({**self.keys, **keys}))


@asynccontextmanager
async def serving(cluster: SimulatedCluster, **keys: Any) -> AsyncIterator[Place]:
    """The pool is one broker that does not lead, so that it is certain who is asked first."""
    config: dict[str, Any] = {
        "bindAddresses": ["http://127.0.0.1:0"],
        "metrics": {"address": "127.0.0.1:0"},
        "console": {"address": "127.0.0.1:0"},
        "brokers": {"webServiceUrl": [cluster.brokers[1].web]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": broker.name,
                "listeners": f"internal:{broker.web}, external:https://broker-{broker.index}.{HOST}, "
                f"external:pulsar+ssl://broker-{broker.index}.{HOST}:{6651 + broker.index}",
            }
            for broker in cluster.brokers
        ],
        "drainSeconds": 0,
        **keys,
    }
    sidecar = Sidecar(load_mapping(config), "config.yaml")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", os.devnull)  # the system's CAs take 30 ms to load, and none is needed here
        await sidecar.start()
    try:
        console = f"http://127.0.0.1:{sidecar.console_port}" if sidecar.console_port is not None else None
        async with ClientSession(console) as session:
            yield Place(cluster, sidecar, session, config)
    finally:
        await sidecar.stop()
