"""A sidecar as a process that watches a real API server, simulated brokers behind it, and the objects of both."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from apiclient import Object
from processes import BIN, Process, free_port, started
from prometheus_client.parser import text_string_to_metric_families
from simulated.cluster import SimulatedBroker, SimulatedCluster

HOST = "pulsar.example.com"
LISTENER = "pulsar-ingress-proxy/listener"
BROKER_PORTS = [{"name": "http", "port": 8080}, {"name": "pulsar", "port": 6650}]


def broker_name(namespace: str) -> str:
    """What the brokers of a StatefulSet call themselves, by number."""
    return f"pulsar-broker-{{n}}.pulsar-broker.{namespace}.svc.cluster.local"


def topic(name: str) -> str:
    """In a namespace of its own: brokers own bundles, of which a namespace has a few."""
    return f"persistent://public/{name}/topic"


def ingress(namespace: str, name: str, host: str, listener: str | None = None, service: str = "sidecar") -> Object:
    backend = {"service": {"name": service, "port": {"number": 8080}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {LISTENER: listener} if listener is not None else {},
        },
        "spec": {"rules": [rule], "tls": [{"hosts": [host]}]},
    }


def broker_objects(namespace: str, n: int, ip: str) -> list[Object]:
    """A broker's pod, a Service of its own with its endpoint, and the Ingress by which it is reached from outside."""
    name, labels = f"pulsar-broker-{n}", {"app": "broker", "broker": str(n)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {
                "hostname": name,
                "subdomain": "pulsar-broker",
                "containers": [{"name": "broker", "image": "pulsar"}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"broker-{n}", "namespace": namespace},
            "spec": {"clusterIP": "None", "selector": labels, "ports": BROKER_PORTS},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"broker-{n}-a",
                "namespace": namespace,
                "labels": {"kubernetes.io/service-name": f"broker-{n}"},
            },
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": [ip],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": name, "namespace": namespace},
                }
            ],
            "ports": BROKER_PORTS,
        },
        ingress(namespace, f"broker-{n}", f"broker-{n}.{HOST}", "external", f"broker-{n}"),
    ]


def running_pod(ip: str) -> Object:
    """The status of a pod that a kubelet has started."""
    ready = {"type": "Ready", "status": "True"}
    return {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}}


class Gate:
    """A sidecar, and a client before it."""

    def __init__(self, sidecar: Process, client: aiohttp.ClientSession, port: int, metrics_port: int) -> None:
        self.sidecar = sidecar
        self._client = client
        self._port = port
        self._metrics_port = metrics_port

    async def lookup(self, host: str = HOST, name: str = "orders") -> tuple[int, Any]:
        """Status and body of the answer; redirects are not followed."""
        url = f"http://127.0.0.1:{self._port}/lookup/v2/topic/{topic(name).replace('://', '/')}"
        async with self._client.get(url, headers={"Host": host}, allow_redirects=False) as answer:
            return answer.status, json.loads(await answer.read() or b"null")

    @property
    def generation(self) -> int:
        """The newest that it has said to be in force."""
        return max(map(int, re.findall(r"generation (\d+) is in force", self.sidecar.output)), default=1)

    async def after(self, change: Awaitable[object]) -> float:
        """Make a change that makes a new generation, and wait for that; the seconds in between."""
        awaited = self.generation + 1
        await change
        began = time.monotonic()
        await self.sidecar.says(f"generation {awaited} is in force")
        return time.monotonic() - began

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """All samples of ours: by name, and the values of their labels."""
        async with self._client.get(f"http://127.0.0.1:{self._metrics_port}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        return {
            (sample.name.removeprefix("pulsar_ingress_"), *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }

    async def until(self, value: float | None, *sample: str) -> None:
        """Wait until a sample has a value; None: until it is not there."""
        async with asyncio.timeout(40):
            while True:
                if (await self.metrics()).get(sample) == value:
                    return
                await asyncio.sleep(0.05)  # metrics tell nobody

    async def restarts(self, reason: str) -> float:
        """How many watches, of all kinds, were begun anew for that."""
        samples = await self.metrics()
        return sum(value for name, value in samples.items() if name[0] == "discovery_restarts_total" and reason in name)

    async def readiness(self) -> str:
        async with self._client.get(f"http://127.0.0.1:{self._metrics_port}/readyz") as answer:
            return (await answer.text()).strip()


@asynccontextmanager
async def gate(folder: Path, kubeconfig: Path, brokers: list[SimulatedBroker], **keys: Any) -> AsyncIterator[Gate]:
    """A sidecar before these brokers, that reaches its cluster by a kubeconfig."""
    config = folder / "config.yaml"
    port, metrics_port = free_port(), free_port()
    values = {
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "metrics": {"address": f"127.0.0.1:{metrics_port}"},
        "brokers": {"webServiceUrl": [broker.web for broker in brokers]},
        **keys,
        "kubernetes": {"enabled": True, "brokerSelector": "app=broker", **keys.get("kubernetes", {})},
    }
    config.write_text(yaml.safe_dump(values))
    async with (
        started(
            BIN / "pulsar-ingress-proxy", "run", "--config", config, says="serving", KUBECONFIG=str(kubeconfig)
        ) as sidecar,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        yield Gate(sidecar, client, port, metrics_port)


def tags(cluster: SimulatedCluster) -> list[list[str]]:
    """The listener of every request that brokers have seen, and that they are forgotten for."""
    seen = [request.values("X-Pulsar-ListenerName") for broker in cluster.brokers for request in broker.requests]
    for broker in cluster.brokers:
        broker.requests.clear()
    return sorted(seen)
