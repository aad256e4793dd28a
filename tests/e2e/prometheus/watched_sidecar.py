"""A real sidecar in front of simulated brokers, watched by a real Prometheus, and a load with some of everything."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import trustme
import yaml
from aiohttp import ClientSession
from aiohttp.web import Request, StreamResponse
from processes import BIN, free_port, started
from prometheus_server import Prometheus, scraping
from simulated.cluster import (
    Answer,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    dies,
    redirects,
    says,
)

from bench.binary_ends import Broker, client
from pulsar_ingress_proxy.binary.commands_pb2 import Command
from pulsar_ingress_proxy.binary.frames import write

HOST = "pulsar.example.com"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
OWNED = "/lookup/v2/topic/persistent/public/owned/orders"
EACH = 20
"""Lookups of the plain sort in one round of load."""


@dataclass(slots=True)
class Scene:
    """Brokers, a sidecar in front of them, and who watches it."""

    cluster: SimulatedCluster
    config: Path
    prometheus: Prometheus
    instance: str
    client: ClientSession
    url: str
    binary_port: int
    asked: int = 0
    unknown: int = 0

    async def ask(self, target: str, host: str = HOST, **headers: str) -> int:
        named = {"Host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.get(self.url + target, headers=named, allow_redirects=False) as answer:
            await answer.read()
        self.asked += 1
        return answer.status

    async def load(self) -> None:
        """Hits, misses, redirects, a leak, an unmapped redirect, a broker that dies, a command that no Pulsar has.

        It ends when Prometheus has seen all of it.
        """
        for _ in range(EACH):
            assert await self.ask(OWNED) == 200
            assert await self.ask(LOOKUP) == 307  # nobody has it, and the leader must say who shall
        assert await self.ask(LOOKUP, host="elsewhere.example.org") == 307
        assert await self.ask(LOOKUP, X_Pulsar_ListenerName="nobody") == 400
        assert await self.ask(LOOKUP, X_Pulsar_ListenerName="internal") == 403
        assert await self.ask("/admin/v2/brokers/ready") == 200
        await self.leak()
        asked = self.cluster.brokers[1]
        asked.script.append(to_lookups(redirects("http://stranger.pulsar.svc.cluster.local:8080")))
        assert await self.ask(LOOKUP) == 502
        asked.script.extend([to_lookups(dies()), to_lookups(dies())])
        assert await self.ask(LOOKUP) == 502
        await self.say_something_unknown()
        await self.prometheus.until("sum(pulsar_ingress_requests_total)", self.asked)
        await self.prometheus.until("sum(pulsar_ingress_unknown_commands_total)", self.unknown)

    async def say_something_unknown(self) -> None:
        newer = await client(self.binary_port)
        newer.transport.write(write(Command(type=4711)))
        newer.transport.close()  # which sends what was written first
        self.unknown += 1

    async def leak(self) -> None:
        """A broker answers with an address of the inside."""
        answer = Answer(200, json.dumps({"brokerUrl": "pulsar://10.0.0.1:6650"}).encode())
        self.cluster.brokers[1].script.append(to_lookups(says(answer)))
        assert await self.ask(LOOKUP) == 200


def to_lookups(step: Step) -> Step:
    """The step for the next lookup: discovery asks the same broker, from time to time."""

    async def wait(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        if received.path.startswith("/lookup/"):
            return await step(broker, request, received)
        broker.script.appendleft(wait)
        return await broker.answer(request, received)

    return wait


@asynccontextmanager
async def watched(
    folder: Path,
    rules: Path,
    others: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    alertmanager: str | None = None,
    *,
    discovers: bool = True,
) -> AsyncIterator[Scene]:
    """A sidecar with brokers that Prometheus scrapes, beside these other jobs, and tells that Alertmanager of.

    With `discovers`, the sidecar learns of the brokers from them, who refuse it at first.
    """
    port, binary_port, broker_port, metrics = (free_port() for _ in range(4))
    at = f"127.0.0.1:{metrics}"
    async with SimulatedCluster(brokers=3) as cluster:
        cluster.own("persistent://public/owned/orders", 2)
        if discovers:
            cluster.brokers[1].script.append(says(Answer(401)))  # to discovery, which asks first
        config = folder / "config.yaml"
        sockets = [f"http://127.0.0.1:{port}", f"pulsar://127.0.0.1:{binary_port}"]
        brokers = {
            "webServiceUrl": [cluster.brokers[1].web],
            "brokerServiceUrl": [f"pulsar://127.0.0.1:{broker_port}"],
            "discover": "admin" if discovers else "none",
        }
        settings = sidecar_config(cluster, sockets, brokers, metrics, folder / "events")
        config.write_text(yaml.safe_dump(settings | {"tls": certificate(folder)}))
        async with (
            await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", broker_port),
            started(BIN / "pulsar-ingress-proxy", "run", "--config", config, says="serving"),
            scraping({"sidecars": {at: at}, **others}, folder, rules, alertmanager) as prometheus,
            ClientSession() as client,
        ):
            yield Scene(cluster, config, prometheus, at, client, f"http://127.0.0.1:{port}", binary_port)


def certificate(folder: Path) -> dict[str, str]:
    """Of no socket here, but its expiry is watched."""
    pair = trustme.CA().issue_cert(HOST)
    files = {"certificate": folder / "tls.crt", "key": folder / "tls.key"}
    pair.cert_chain_pems[0].write_to_path(files["certificate"])
    pair.private_key_pem.write_to_path(files["key"])
    return {key: str(path) for key, path in files.items()}


def sidecar_config(
    cluster: SimulatedCluster, sockets: list[str], brokers: Mapping[str, object], metrics: int, events: Path
) -> dict[str, object]:
    """One broker is asked, which does not lead; the event log keeps next to nothing."""
    return {
        "clusterName": "pulsar",
        "bindAddresses": sockets,
        "brokers": brokers,
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": broker.name,
                "listeners": f"internal:{broker.web},external:https://broker-{n}.{HOST},"
                f"external:pulsar+ssl://broker-{n}.{HOST}:{6651 + n}",
            }
            for n, broker in enumerate(cluster.brokers)
        ],
        "events": {"path": str(events), "rotateBytes": 1000, "retainBytes": 1000, "compress": "none"},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
    }
