"""The sidecar of the soak test: its config, what its process and its metrics show, and what it knows of the cluster."""

import asyncio
import gzip
import json
import os
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.processes import START_SECONDS, CannotMeasure, Child
from bench.soak_brokers import CONFIGURED, Brokers, inside
from bench.soak_checks import MORE_DESCRIPTORS, Sample
from bench.soak_churn import Certificates
from bench.soak_kubernetes import NAMESPACE, Objects
from bench.soak_tally import HOST

OTHER_ADDRESS = "127.0.3.1"
"""Not the one that connections leave from, so that none of them takes the port while the socket is closed."""
REST_SECONDS = 30
"""Seconds after which nothing may be in flight, and discovery knows the cluster as it is."""


@dataclass(frozen=True, slots=True)
class Ports:
    http: int
    https: int
    named: int
    """Of the binary socket that has a listener; clients of the next one miss."""
    unnamed: int
    secure: int
    other: int
    """Of a socket that is open every other time."""
    metrics: int
    console: int
    pods: int


def config(
    ports: Ports, brokers: Brokers, certificates: Certificates, events: Path, is_following: bool
) -> dict[str, Any]:
    """A realistic config, with metrics, events and the console; redirects of lookups are rewritten, or followed."""
    web = [broker.web for broker in brokers.cluster.brokers[:CONFIGURED]]
    binary = [f"pulsar://127.0.0.1:{server.port}" for server in brokers.binary]
    listeners = [
        [
            f"internal:{web[number]}",
            f"internal:{binary[number]}",
            f"external:https://broker-{number}.{HOST}",
            f"external:pulsar://broker-{number}.{HOST}:6650",
            f"external:pulsar+ssl://broker-{number}.{HOST}:6651",
        ]
        for number in range(CONFIGURED)
    ]
    return {
        "bindAddresses": [
            f"http://127.0.0.1:{ports.http}",
            f"https://127.0.0.1:{ports.https}",
            f"external:pulsar://127.0.0.1:{ports.named}",
            f"pulsar://127.0.0.1:{ports.unnamed}",
            f"external:pulsar+ssl://127.0.0.1:{ports.secure}",
            *([f"http://{OTHER_ADDRESS}:{ports.other}"] if is_following else []),
        ],
        "tls": {"certificate": str(certificates.folder / "tls.crt"), "key": str(certificates.folder / "tls.key")},
        "brokers": {"webServiceUrl": web, "brokerServiceUrl": binary},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {"broker": inside(number), "listeners": listeners[number]} for number in range(CONFIGURED)
        ],
        "redirects": {"lookup": "follow" if is_following else "rewrite", "admin": "follow"},
        "kubernetes": {
            "enabled": True,
            "namespaces": [NAMESPACE],
            "gateways": ["nginx"],
            "brokerSelector": "app=broker",
        },
        "events": {"path": str(events), "retainBytes": 1 << 34},
        "metrics": {"address": f"127.0.0.1:{ports.metrics}"},
        "console": {"address": f"127.0.0.1:{ports.console}"},
        "timeouts": {"upstreamIdle": 5},
        "drainSeconds": 5,
        "log": {"level": "warning", "format": "text"},
    }


class Metrics:
    """One scrape of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> int:
        return int(
            sum(
                sample.value
                for sample in self._samples
                if sample.name == f"pulsar_ingress_{name}" and labels.items() <= sample.labels.items()
            )
        )


class View:
    """The running sidecar as seen from outside."""

    def __init__(self, child: Child, ports: Ports, objects: Objects, certificates: Certificates) -> None:
        self._child = child
        self._ports = ports
        self._objects = objects
        self._certificates = certificates

    async def ready(self) -> None:
        until = monotonic() + START_SECONDS
        while await self._differences():
            if monotonic() > until:
                raise CannotMeasure("the sidecar does not become ready")
            await asyncio.sleep(0.05)

    async def metrics(self) -> Metrics:
        return Metrics(await asyncio.to_thread(_get, self._ports.metrics, "/metrics"))

    async def sample(self, seconds: float) -> Sample:
        metrics = await self.metrics()
        return Sample(
            seconds,
            self._child.resident_bytes(),
            len(os.listdir(f"/proc/{self._child.pid}/fd")),
            metrics.total("asyncio_tasks"),
            metrics.total("requests_total"),
        )

    async def at_rest(self, before: Sample) -> tuple[str, ...]:
        """What differs from the cluster once nothing is left of the load, or after some time."""
        until = monotonic() + REST_SECONDS
        while True:
            metrics, now, differences = await self.metrics(), await self.sample(0), await self._differences()
            is_quiet = not metrics.total("in_flight_requests") and not metrics.total("connections")
            is_level = now.descriptors <= before.descriptors + MORE_DESCRIPTORS and now.tasks <= before.tasks
            if (is_quiet and is_level and not differences) or monotonic() > until:
                return differences
            await asyncio.sleep(0.1)

    async def _differences(self) -> tuple[str, ...]:
        """Between what is in the cluster and the folder of certificates, and what the sidecar has in force."""
        try:
            ingresses = json.loads(await asyncio.to_thread(_get, self._ports.console, "/api/ingresses"))["ingresses"]
            brokers = json.loads(await asyncio.to_thread(_get, self._ports.console, "/api/brokers"))["brokers"]
            shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self._ports.https))
        except OSError as error:
            return (f"no answer: {error}",)
        hosts = {one["name"]: one["hosts"] for one in ingresses if one["source"] == "discovery"}
        addresses = {
            name: address["url"]
            for one in brokers
            for name in one["names"]
            for address in one["addresses"]
            if name in self._objects.addresses and address["listener"] == "internal"
        }
        wanted = {name: f"http://{ip}:{self._ports.pods}" for name, ip in self._objects.addresses.items()}
        pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
            (hosts, self._objects.hosts),
            (addresses, wanted),
            ({"certificate": shown}, {"certificate": self._certificates.newest}),
        ]
        return tuple(
            f"{name}: {known.get(name)}, not {true.get(name)}"
            for known, true in pairs
            for name in sorted(known.keys() | true.keys())
            if known.get(name) != true.get(name)
        )


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def written(folder: Path) -> Iterator[dict[str, Any]]:
    """Every event of the finished files."""
    for path in sorted(folder.glob("[!.]*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from map(json.loads, lines)
