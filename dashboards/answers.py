"""What Prometheus answers to the queries of a dashboard's panels, asked as Grafana would ask with all chosen."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

Samples = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel: how it is called, its labels, and its samples that are numbers."""

    name: str
    labels: Mapping[str, str]
    samples: Samples
    query: str = "A"
    """Which of the panel's queries it answers."""

    @property
    def last(self) -> float:
        return self.samples[-1][1]


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is shown, in seconds since the epoch; from one sample to the next; and over how long rates are."""

    start: float
    end: float
    step: float
    interval: float


class Prometheus:
    """The HTTP API of one."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def answers(self, panel: Mapping[str, Any], window: Window) -> list[Series]:
        return [series for target in panel.get("targets", ()) for series in self._ask(target, window)]

    def _ask(self, target: Mapping[str, Any], window: Window) -> list[Series]:
        asked = {"query": substituted(target["expr"], window)}
        if target.get("instant"):
            found = self._get("query", asked | {"time": f"{window.end}"})
            rows = [(each["metric"], [each["value"]]) for each in found]
        else:
            span = {"start": f"{window.start}", "end": f"{window.end}", "step": f"{window.step}"}
            rows = [(each["metric"], each["values"]) for each in self._get("query_range", asked | span)]
        return [
            Series(called(target.get("legendFormat", ""), labels), labels, samples, target["refId"])
            for labels, values in rows
            if (samples := tuple((float(at), float(value)) for at, value in values if math.isfinite(float(value))))
        ]

    def _get(self, what: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        with urlopen(f"{self._url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as answer:  # noqa: S310
            found = json.load(answer)
        return list(found["data"]["result"])


def substituted(expr: str, window: Window) -> str:
    """Grafana's variables, filled in."""
    expr = expr.replace("$__rate_interval", f"{window.interval:.0f}s")
    expr = expr.replace("$__range", f"{window.end - window.start:.0f}s")
    return re.sub(r"\$(job|instance)\b", ".+", expr)


def called(legend: str, labels: Mapping[str, str]) -> str:
    """`{{ingress}} → {{listener}}` with what it stands for."""
    return re.sub(r"{{\s*(\w+)\s*}}", lambda label: labels.get(label[1], ""), legend)
