"""A real sidecar with a console, simulated brokers behind it, and clients before it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession
from processes import Process, free_port, started
from simulated.cluster import Answer, SimulatedCluster, says
from yarl import URL

HOST = "pulsar.example.com"
LOOKUP = "/lookup/v2/topic/persistent/public/default/"
STRANGER = {"brokerUrl": "pulsar://pulsar-broker-9.pulsar-broker.pulsar.svc.cluster.local:6650"}


class ConsoleStack:
    def __init__(self, cluster: SimulatedCluster, session: ClientSession, folder: Path) -> None:
        self.cluster = cluster
        self._session = session
        self._file = folder / "config.yaml"
        self.port, self.metrics, self.console_port = free_port(), free_port(), free_port()
        self.keys: dict[str, Any] = {
            "bindAddresses": [f"http://127.0.0.1:{self.port}"],
            "metrics": {"address": f"127.0.0.1:{self.metrics}"},
            "console": {"address": f"127.0.0.1:{self.console_port}"},
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
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.console_port}/"

    def write(self, **keys: Any) -> None:
        self._file.write_text(yaml.safe_dump({**self.keys, **keys}))

    @asynccontextmanager
    async def running(self, environ: Mapping[str, str] | None = None, **keys: Any) -> AsyncIterator[Process]:
        """The sidecar, with these keys of the config and these variables of the environment."""
        self.write(**keys)
        command = (sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", self._file)
        async with started(*command, says="serving", **(environ or {})) as process:
            yield process

    async def ask(self, path: str, host: str = HOST) -> int:
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        headers = {"Host": host, "X-Forwarded-Proto": "https", "User-Agent": "Pulsar-Java-v4.0.7"}
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            await answer.read()
            return answer.status

    async def hit(self, topic: str = "orders") -> None:
        self.cluster.own(f"persistent://public/default/{topic}", 0)
        assert await self.ask(LOOKUP + topic) == 200

    async def miss(self, topic: str = "orders") -> None:
        assert await self.ask(LOOKUP + topic, host="elsewhere.example.org") in (200, 307)

    async def leak(self) -> None:
        self.cluster.brokers[1].script.append(says(Answer(200, json.dumps(STRANGER).encode(), "application/json")))
        assert await self.ask(LOOKUP + "leaking") == 200

    async def redirect(self) -> None:
        self.cluster.metadata.owners.clear()
        assert await self.ask("/lookup/v2/topic/persistent/new/bundle/t") == 307

    async def failure(self) -> None:
        self.cluster.brokers[1].script.append(says(Answer(503, b"no", "text/plain")))
        assert await self.ask(LOOKUP + "failing") == 503

    async def everything(self) -> None:
        await self.hit()
        await self.miss()
        await self.leak()
        await self.redirect()


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[ConsoleStack]:
    async with SimulatedCluster(brokers=3) as cluster, ClientSession() as session:
        yield ConsoleStack(cluster, session, folder)
