"""What one sidecar asks of its surroundings: requests to the API server, and the series of its metrics."""

import asyncio
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.binary_ends import client
from bench.processes import free_ports, started
from bench.soak_brokers import Brokers
from bench.soak_kubernetes import NAMESPACE, ApiServer
from bench.soak_tally import MARK, Tally, mark

SIZES = (1, 11)
"""Ingresses of the two sidecars whose series are compared."""
TARGETS = (
    "/lookup/v2/topic/persistent/public/default/orders",
    "/lookup/v2/topic/persistent/public/default/orders?listenerName=staging",
    "/lookup/v2/topic/persistent/public/default/orders?listenerName=internal",
    "/admin/v2/brokers/ready",
    "/favicon.ico",
)
TIMES = 20
"""Of each request: brokers redirect, fail and answer at random."""


@dataclass(frozen=True, slots=True)
class Measured:
    series: int
    """Of a sidecar with one ingress, which has had lookups, misses, redirects and failures in both protocols."""
    series_per_ingress: float
    scrape_bytes: int
    """Of the larger one."""
    watches: int
    polls: float
    """Requests to the API server a minute, beyond watches and lists, where it has no CRDs."""


async def measure(seconds: float) -> Measured:
    found = [await _sidecar(size, seconds if size == SIZES[0] else 0) for size in SIZES]
    (small, _, requests), (large, scrape_bytes, _) = found
    return Measured(
        series=small,
        series_per_ingress=(large - small) / (SIZES[1] - SIZES[0]),
        scrape_bytes=scrape_bytes,
        watches=requests["watch"],
        polls=requests["other"] / seconds * 60,
    )


async def _sidecar(ingresses: int, idle: float) -> tuple[int, int, Counter[str]]:
    """Series and bytes of a scrape after some requests, and requests to the API server until then."""
    http, named, metrics, pods = free_ports(4)
    api = ApiServer()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        async with api, Brokers(random.Random(7), Tally(), pods) as brokers:
            config = _config(ingresses, http, named, metrics, brokers, folder)
            (folder / "config.yaml").write_text(yaml.safe_dump(config))
            command = ["env", f"KUBECONFIG={api.kubeconfig(folder)}", sys.executable, "-m", "pulsar_ingress_proxy"]
            command += ["run", "--config", str(folder / "config.yaml")]
            with started(command, named, None, folder / "said"):  # it is bound last
                await _ask(http, named, ingresses)
                await asyncio.sleep(idle)
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{metrics}/metrics") as answer,
                ):
                    text = await answer.text()
    series = sum(len(family.samples) for family in text_string_to_metric_families(text))
    return series, len(text.encode()), api.requests


def _config(ingresses: int, http: int, named: int, metrics: int, brokers: Brokers, folder: Path) -> dict[str, Any]:
    binary = [f"pulsar://127.0.0.1:{server.port}" for server in brokers.binary]
    lines = [
        {
            "broker": f"pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local",
            "listeners": f"internal:{brokers.cluster.brokers[n].web},internal:{url},"
            f"external:https://broker-{n}.example.com,external:pulsar://broker-{n}.example.com:6650",
        }
        for n, url in enumerate(binary)
    ]
    return {
        "bindAddresses": [f"http://127.0.0.1:{http}", f"external:pulsar://127.0.0.1:{named}"],
        "brokers": {
            "webServiceUrl": [broker.web for broker in brokers.cluster.brokers[: len(binary)]],
            "brokerServiceUrl": binary,
        },
        "ingresses": [
            {"name": f"ingress-{n}", "hosts": [f"i{n}.example.com"], "listener": "external"} for n in range(ingresses)
        ],
        "advertisedListeners": lines,
        "kubernetes": {"enabled": True, "namespaces": [NAMESPACE], "gateways": ["nginx"]},
        "events": {"path": str(folder / "events")},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": None},
    }


async def _ask(http: int, named: int, ingresses: int) -> None:
    async with aiohttp.ClientSession() as session:
        for number in range(ingresses):
            for target in TARGETS * TIMES:
                headers = {"Host": f"i{number}.example.com", MARK: mark(b"")}
                async with session.get(
                    f"http://127.0.0.1:{http}{target}", headers=headers, allow_redirects=False
                ) as answer:
                    with suppress(aiohttp.ClientPayloadError):  # the broker disconnected inside its answer
                        await answer.read()
    asking = await client(named)
    asking.ask()
    await asking.first
    asking.transport.abort()
