"""The rules file: recordings and alerts as Prometheus reads them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dashboards.alerts import ALERTS, BOARDS
from dashboards.promql import TARGET
from dashboards.recordings import RECORDINGS

PAGES = "docs/runbooks/"
CHART = Path(__file__).parents[1] / "helm/pulsar-ingress-proxy/Chart.yaml"


def published(chart: str) -> str:
    """URL of the runbooks at `home` of a Chart.yaml, which is where the project is published; else their path."""
    home: str | None = yaml.safe_load(chart).get("home")
    return f"{home.rstrip('/')}/blob/HEAD/{PAGES}" if home else PAGES


RUNBOOKS = published(CHART.read_text(encoding="utf-8"))


def rules(runbooks: str = RUNBOOKS, grafana: str = "") -> str:
    """The rules, with links to runbooks and to dashboards at these URLs."""
    groups = [
        {
            "name": f"pulsar-ingress-{name}.rules",
            "rules": [{"record": recording.record, "expr": _Lines(recording.expr)} for recording in recordings],
        }
        for name, recordings in RECORDINGS.items()
    ]
    groups += [
        {
            "name": f"pulsar-ingress-{name}",
            "rules": [
                {
                    "alert": alert.name,
                    "expr": _Lines(alert.expr),
                    "for": alert.lasting,
                    "labels": {"severity": alert.severity},
                    "annotations": {
                        "summary": alert.summary,
                        "description": alert.description,
                        "runbook_url": f"{runbooks}{alert.page}.md",
                        "dashboard_url": f"{grafana.rstrip('/')}/d/{BOARDS[name]}?{CHOSEN}",
                    },
                }
                for alert in alerts
            ],
        }
        for name, alerts in ALERTS.items()
    ]
    return HEADER + yaml.dump({"groups": groups}, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


CHOSEN = "from=now-3h&to=now" + "".join(
    f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}" for label in TARGET
)
"""What the dashboard shows: the labels that an alert has."""

HEADER = "# Written by `python -m dashboards`; change dashboards/alerts.py or dashboards/recordings.py instead.\n"


@dataclass(frozen=True, slots=True)
class _Lines:
    """Text that is written as a literal block."""

    text: str


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _as_lines(dumper: yaml.SafeDumper, lines: _Lines) -> yaml.Node:
    is_long = "\n" in lines.text
    return dumper.represent_scalar("tag:yaml.org,2002:str", lines.text, style="|" if is_long else None)


_Dumper.add_representer(_Lines, _as_lines)
