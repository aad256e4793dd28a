"""Every query of every panel, asked of a real Prometheus that scraped a real sidecar under load."""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession
from aiohttp.web import Request, StreamResponse
from processes import BIN, free_port, started
from prometheus_server import Prometheus, scraping

from proxy.demo.brokers import (
    Answer,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    dies,
    redirects,
    says,
)

ROOT = Path(__file__).parents[3]
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards").glob("*.json"))}
HOST = "pulsar.example.com"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
OWNED = "/lookup/v2/topic/persistent/public/owned/orders"
EACH = 20
"""Lookups of the plain sort in one round of load."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of one panel."""

    panel: dict[str, Any]
    expr: str
    legend: str
    is_instant: bool

    @property
    def labels(self) -> list[str]:
        return re.findall(r"{{\s*(\w+)\s*}}", self.legend)


@dataclass(slots=True)
class Scene:
    """Brokers, a sidecar in front of them, and who watches it."""

    cluster: SimulatedCluster
    config: Path
    prometheus: Prometheus
    instance: str
    client: ClientSession
    url: str
    asked: int = 0

    async def ask(self, target: str, host: str = HOST, **headers: str) -> int:
        named = {"Host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.get(self.url + target, headers=named, allow_redirects=False) as answer:
            await answer.read()
        self.asked += 1
        return answer.status

    async def load(self) -> None:
        """Hits, misses, redirects, a leak, an unmapped redirect, a broker that dies; until Prometheus has seen it."""
        for _ in range(EACH):
            assert await self.ask(OWNED) == 200
            assert await self.ask(LOOKUP) == 307  # nobody has it, and the leader must say who shall
        assert await self.ask(LOOKUP, host="elsewhere.example.org") == 307
        assert await self.ask(LOOKUP, X_Pulsar_ListenerName="nobody") == 400
        assert await self.ask(LOOKUP, X_Pulsar_ListenerName="internal") == 403
        assert await self.ask("/admin/v2/brokers/ready") == 200
        asked = self.cluster.brokers[1]
        asked.script.append(to_lookups(says(Answer(200, json.dumps({"brokerUrl": "pulsar://10.0.0.1:6650"}).encode()))))
        assert await self.ask(LOOKUP) == 200
        asked.script.append(to_lookups(redirects("http://stranger.pulsar.svc.cluster.local:8080")))
        assert await self.ask(LOOKUP) == 502
        asked.script.extend([to_lookups(dies()), to_lookups(dies())])
        assert await self.ask(LOOKUP) == 502
        await self.prometheus.until("sum(pulsar_ingress_requests_total)", self.asked)


def to_lookups(step: Step) -> Step:
    """The step for the next lookup: discovery asks the same broker, from time to time."""

    async def wait(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        if received.path.startswith("/lookup/"):
            return await step(broker, request, received)
        broker.script.appendleft(wait)
        return await broker.answer(request, received)

    return wait


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    port, metrics = free_port(), free_port()
    async with SimulatedCluster(brokers=3) as cluster:
        cluster.own("persistent://public/owned/orders", 2)
        cluster.brokers[1].script.append(says(Answer(401)))  # to discovery, which asks first
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(sidecar_config(cluster, port, metrics, tmp_path / "events")))
        async with (
            started(BIN / "pulsar-ingress-proxy", "run", "--config", config, says="serving"),
            scraping(f"127.0.0.1:{metrics}", tmp_path, ROOT / "dashboards/rules.yaml") as prometheus,
            ClientSession() as client,
        ):
            yield Scene(cluster, config, prometheus, f"127.0.0.1:{metrics}", client, f"http://127.0.0.1:{port}")


def sidecar_config(cluster: SimulatedCluster, port: int, metrics: int, events: Path) -> dict[str, object]:
    """One broker is asked, which does not lead; the event log keeps next to nothing."""
    return {
        "clusterName": "pulsar",
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "brokers": {"webServiceUrl": [cluster.brokers[1].web], "discover": "admin"},
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


async def test_every_panel_has_data_of_the_right_shape(scene: Scene) -> None:
    prometheus = scene.prometheus
    await prometheus.until("sum(pulsar_ingress_discovery_restarts_total)", 1)  # so it has asked, and waits
    await scene.load()
    await first_ones_count(scene)
    scene.config.write_text(scene.config.read_text() + "drainSeconds: 1\n")
    await prometheus.until("pulsar_ingress_snapshot_generation", 2)
    await scene.load()
    await prometheus.until("sum(pulsar_ingress_events_dropped_total)", 1)
    await variables_offer_the_sidecar(scene)
    empty = []
    for name, dashboard in DASHBOARDS.items():
        for target in targets(dashboard):
            found = await answers(prometheus, target)
            where = f"{name}: {target.panel['title']}: {target.expr}"
            if found:
                check(where, target, found)
            else:
                empty.append(where)
    assert empty == []  # the load has something for every panel
    await rules_are_healthy(prometheus)


async def first_ones_count(scene: Scene) -> None:
    """The very first leak of a sidecar is on the dashboard as one, and fires its alert."""
    (panel,) = (
        panel for panel in panels(DASHBOARDS["overview"]) if panel["title"] == "Leaks" and panel["type"] == "stat"
    )
    (target,) = panel["targets"]
    assert await scene.prometheus.number(substituted(target["expr"])) == 1
    await scene.prometheus.until('count(ALERTS{alertname="PulsarIngressLeak", alertstate="firing"})', 1)


async def variables_offer_the_sidecar(scene: Scene) -> None:
    offered = {"job": ["sidecars"], "instance": [scene.instance]}
    for dashboard in DASHBOARDS.values():
        variables = {each["name"]: each["query"] for each in dashboard["templating"]["list"]}
        for name, values in offered.items():
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variables[name])
            assert asked is not None
            match = {"match[]": substituted(asked[1])}
            assert await scene.prometheus.api(f"label/{asked[2]}/values", **match) == values


async def rules_are_healthy(prometheus: Prometheus) -> None:
    groups = (await prometheus.api("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert [rule for rule in rules if rule["health"] != "ok"] == []


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def targets(dashboard: dict[str, Any]) -> Iterator[Target]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Target(
                panel, substituted(target["expr"]), target.get("legendFormat", ""), target.get("instant", False)
            )


def substituted(expr: str) -> str:
    """As Grafana would ask with all chosen."""
    expr = expr.replace("$__rate_interval", "1m").replace("$__range", "1m")
    expr = re.sub(r"\$(job|instance)\b", ".+", expr)
    assert "$" not in expr
    return expr


async def answers(prometheus: Prometheus, target: Target) -> list[dict[str, Any]]:
    """What it has for a query: each with its labels, and its samples that are numbers."""
    if target.is_instant:
        found = [(each["metric"], [each["value"]]) for each in await prometheus.query(target.expr)]
    else:
        now = time.time()
        ranged = await prometheus.api("query_range", query=target.expr, start=str(now - 10), end=str(now), step="1")
        assert ranged["resultType"] == "matrix"
        found = [(each["metric"], each["values"]) for each in ranged["result"]]
    numbers = [
        {"labels": labels, "numbers": [float(value) for _, value in samples if math.isfinite(float(value))]}
        for labels, samples in found
    ]
    return [each for each in numbers if each["numbers"]]


def check(where: str, target: Target, found: list[dict[str, Any]]) -> None:
    """A legend has the labels it names, a number is one number, a share is a share."""
    for label in target.labels:
        assert any(label in each["labels"] for each in found), f"{where}: no series has {label}: {found}"
    legends = [tuple(each["labels"].get(label) for label in target.labels) for each in found]
    if target.panel["type"] != "table":
        assert len(set(legends)) == len(legends), f"{where}: series that the legend does not tell apart: {found}"
    unit = target.panel["fieldConfig"]["defaults"]["unit"]
    if unit == "percentunit":
        assert all(number < 1.001 for each in found for number in each["numbers"]), f"{where}: {found}"
    assert all(number >= 0 for each in found for number in each["numbers"]), f"{where}: {found}"
