"""Every query of every panel, asked of a real Prometheus that scraped a real sidecar under load and a pipeline."""

import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import free_port, started
from prometheus_server import Prometheus
from watched_sidecar import Scene, watched

ROOT = Path(__file__).parents[3]
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards").glob("*.json"))}
RULES = ROOT / "dashboards/rules.yaml"
SPARK_STARTS = 240
"""Seconds that Spark may take to start and to make a first commit, on a machine that has much to do."""

pytestmark = pytest.mark.timeout(600)


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


def event(number: int) -> str:
    made = {
        "schema": 1, "time": "2026-11-16T09:00:00.000000Z", "id": f"{number:032x}", "cluster": "pulsar", "sidecar": "s",
        "generation": 1, "protocol": "http", "kind": "lookup", "ingress": "public", "rule": "ingress",
        "listener": "external", "hit": True, "status": 200, "hops": 0, "durationMs": 1.5, "requestBytes": 0,
        "responseBytes": 1,
    }  # fmt: skip
    return json.dumps(made)


@dataclass(slots=True)
class Stream:
    """A pipeline that runs as a service."""

    events: Path
    address: str

    def add(self, name: str, *lines: str) -> None:
        unfinished = self.events / f".{name}"
        unfinished.write_text("".join(f"{line}\n" for line in lines))
        unfinished.rename(self.events / f"{name}.jsonl")


@pytest.fixture
async def stream(tmp_path: Path) -> AsyncIterator[Stream]:
    events = tmp_path / "pipeline/events"
    events.mkdir(parents=True)
    service = Stream(events, f"127.0.0.1:{free_port()}")
    async with started(
        sys.executable, "-m", "pulsar_ingress_pipeline", "stream", "--events", events,
        "--tables", tmp_path / "pipeline/tables", "--master", "local[1]", "--pause", "0.5",
        "--metrics-address", service.address, says="",
    ):  # fmt: skip
        yield service


@pytest.fixture
async def scene(tmp_path: Path, stream: Stream) -> AsyncIterator[Scene]:
    async with watched(tmp_path, RULES, {"pipeline": {stream.address: stream.address}}) as scene:
        yield scene


async def test_every_panel_has_data_of_the_right_shape(scene: Scene, stream: Stream, tmp_path: Path) -> None:
    prometheus = scene.prometheus
    await prometheus.until("pulsar_ingress_pipeline_commit_duration_seconds_count", 1, SPARK_STARTS)  # of empty tables
    stream.add("1", *map(event, range(20)), event(7), "bad")
    await prometheus.until("sum(pulsar_ingress_discovery_restarts_total)", 1)  # so it has asked, and waits
    await scene.load()
    await first_ones_count(scene)
    scene.config.write_text(scene.config.read_text() + "drainSeconds: 1\n")
    await prometheus.until("pulsar_ingress_snapshot_generation", 2)
    await scene.load()
    await prometheus.until("sum(pulsar_ingress_events_dropped_total)", 1)
    await the_pipeline_says_what_it_did(prometheus)
    await variables_offer_what_is_scraped(scene, stream)
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


async def the_pipeline_says_what_it_did(prometheus: Prometheus) -> None:
    await prometheus.until("pulsar_ingress_pipeline_files_total", 1, SPARK_STARTS)
    done = {"lines": 22, "events": 20, "quarantined_lines": 1, "failures": 0, "commit_duration_seconds_count": 2}
    for name, number in done.items():
        counter = f"pulsar_ingress_pipeline_{name}{'' if name.endswith('count') else '_total'}"
        assert await prometheus.number(counter) == number, name
    await prometheus.until(
        "pulsar_ingress_pipeline_caught_up_timestamp_seconds > pulsar_ingress_pipeline_last_commit_timestamp_seconds", 1
    )
    assert await prometheus.number("pulsar_ingress_pipeline_waiting_files") == 0
    assert await prometheus.number("pulsar_ingress_pipeline_newest_event_timestamp_seconds") == 1794819600


async def variables_offer_what_is_scraped(scene: Scene, stream: Stream) -> None:
    for title, dashboard in DASHBOARDS.items():
        is_pipeline = title == "pipeline"
        offered = {
            "job": ["pipeline" if is_pipeline else "sidecars"],
            "cluster": [],
            "namespace": [],
            "instance": [stream.address if is_pipeline else scene.instance],
        }
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
    expr = expr.replace("$__rate_interval", "5m").replace("$__range", "5m")
    expr = re.sub(r"\$(cluster|namespace)\b", ".*", expr)
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
