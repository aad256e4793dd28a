"""Makes docs/overview.png: real sidecars under a load with some of everything, a real Prometheus, the overview of it.

`python tests/e2e/prometheus/overview_picture.py [FILE [MINUTES]]`; as many minutes as it shows, 6 if not given.
"""

import asyncio
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(Path(__file__).parents[1])]

import yaml  # noqa: E402
from aiohttp import ClientSession  # noqa: E402
from aiohttp.web import Request, StreamResponse  # noqa: E402
from processes import BIN, free_port, started  # noqa: E402
from prometheus_server import scraping  # noqa: E402

from dashboards.picture import draw  # noqa: E402
from pulsar_ingress_proxy.demo.cluster import (  # noqa: E402
    EXTERNAL,
    Answer,
    Listener,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    dies,
    redirects,
    says,
)

SIDECARS = ("gateway-0", "gateway-1", "gateway-2")
HOST, PARTNER, ELSEWHERE = "pulsar.example.com", "pulsar.partner.example", "pulsar.example.net"
PARTNERS = Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651")
A_SECOND = 25
"""Requests to each sidecar, on average."""

# Host, path, further fields, and how often of a thousand.
ASKED: Sequence[tuple[str, str, dict[str, str], int]] = (
    (HOST, "/lookup/v2/topic/persistent/public/owned/orders", {}, 574),
    (HOST, "/lookup/v2/topic/persistent/public/new-{n}/orders", {}, 120),
    (PARTNER, "/lookup/v2/topic/persistent/public/owned/orders", {}, 220),
    (HOST, "/admin/v2/brokers/ready", {}, 70),
    (ELSEWHERE, "/lookup/v2/topic/persistent/public/owned/orders", {}, 8),
    (HOST, "/lookup/v2/topic/persistent/public/owned/orders", {"X-Pulsar-ListenerName": "internal"}, 4),
    (HOST, "/lookup/v2/topic/persistent/public/owned/orders", {"X-Pulsar-ListenerName": "nobody"}, 4),
)
LEAK = says(Answer(200, json.dumps({"brokerUrl": "pulsar://10.0.0.1:6650"}).encode()))
STRANGER = redirects("http://stranger.pulsar.svc.cluster.local:8080")


def slow(seconds: float) -> Step:
    async def wait(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        await asyncio.sleep(seconds)
        return await broker.answer(request, received)

    return wait


# When, as a share of the time; what brokers do then, and how often.
HAPPENS: Sequence[tuple[float, Step, int]] = (
    (0.30, LEAK, 2),
    (0.47, STRANGER, 3),
    (0.60, slow(0.12), 60),
    *((0.78 + 0.005 * number, dies(), 8) for number in range(12)),
)


def config(cluster: SimulatedCluster, number: int, port: int, metrics: int) -> dict[str, Any]:
    return {
        "clusterName": "pulsar",
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "brokers": {"webServiceUrl": [broker.web for broker in cluster.brokers[1:]]},  # not the leader
        "redirects": {"lookup": "follow" if number == 2 else "rewrite"},
        "ingresses": [
            {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"},
            {"name": "partners", "hosts": [PARTNER], "listener": "partner"},
        ],
        "advertisedListeners": [
            {
                "broker": broker.name,
                "listeners": f"internal:{broker.web},external:https://broker-{n}.{HOST},"
                f"external:pulsar+ssl://broker-{n}.{HOST}:{6651 + n},partner:http://b{n}.partner.example:8080,"
                f"partner:pulsar://b{n}.partner.example:6650,partner:pulsar+ssl://b{n}.partner.example:6651",
            }
            for n, broker in enumerate(cluster.brokers)
        ],
        "console": {"address": None},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
    }


async def load(session: ClientSession, url: str, seconds: float, seed: int) -> None:
    """Requests in no order, more and fewer of them as time goes by."""
    chance, began = random.Random(seed), time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        ((host, path, fields, _),) = chance.choices(ASKED, [often for *_, often in ASKED])
        target = url + path.replace("{n}", str(chance.randrange(10_000)))  # a bundle that nobody has yet
        async with session.get(target, headers={"Host": host, **fields}, allow_redirects=False) as answer:
            await answer.read()
        pace = A_SECOND * (1 + 0.35 * math.sin(elapsed / seconds * 2 * math.pi + seed))
        await asyncio.sleep(chance.expovariate(pace))


async def happen(cluster: SimulatedCluster, files: Sequence[Path], seconds: float) -> None:
    began = time.monotonic()
    for share, step, times in HAPPENS:
        await asyncio.sleep(began + share * seconds - time.monotonic())
        for number in range(times):
            cluster.brokers[1 + number % 2].script.append(step)
    for file in files[:2]:  # the last of them has not heard of it yet
        changed = file.with_suffix(".new")
        changed.write_text(f"{file.read_text()}drainSeconds: 5\n")
        changed.replace(file)


async def make(out: Path, minutes: float) -> None:
    seconds, spare = minutes * 60, 20
    listeners = {"external": EXTERNAL["4.x"], "partner": PARTNERS}
    with tempfile.TemporaryDirectory() as folder:
        async with SimulatedCluster(brokers=3, listeners=listeners) as cluster, AsyncExitStack() as stack:
            cluster.own("persistent://public/owned/orders", 2)
            urls, files, scraped = [], [], {}
            for number, name in enumerate(SIDECARS):
                port, metrics = free_port(), free_port()
                file = Path(folder) / f"{name}.yaml"
                file.write_text(yaml.safe_dump(config(cluster, number, port, metrics)))
                await stack.enter_async_context(
                    started(BIN / "pulsar-ingress-proxy", "run", "--config", file, says="serving")
                )
                urls.append(f"http://127.0.0.1:{port}")
                files.append(file)
                scraped[name] = f"127.0.0.1:{metrics}"
            rules = ROOT / "dashboards/rules.yaml"
            prometheus = await stack.enter_async_context(scraping({"sidecars": scraped}, Path(folder), rules))
            session = await stack.enter_async_context(ClientSession())
            async with asyncio.TaskGroup() as tasks:
                for number, url in enumerate(urls):
                    tasks.create_task(load(session, url, seconds + spare, number))
                tasks.create_task(happen(cluster, files, seconds))
            await asyncio.to_thread(draw, prometheus.url, "overview", minutes, 15, out)


if __name__ == "__main__":
    wanted = [*sys.argv[1:], *(str(ROOT / "docs/overview.png"), "6")[len(sys.argv) - 1 :]]
    asyncio.run(make(Path(wanted[0]), float(wanted[1])))
