"""Alerts from their cause to whoever is told: a real sidecar, Prometheus with our rules, Alertmanager, a webhook."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from alertmanager_server import alerting
from watched_sidecar import LOOKUP, OWNED, watched

from dashboards.rules import rules

GRAFANA = "https://grafana.example.com/"
PAGES = "https://runbooks.example.com/"
FASTER = 60

pytestmark = pytest.mark.timeout(300)


def hastened(text: str) -> str:
    """The rules as they are generated, but for one thing: what has to last so many minutes lasts as many seconds.

    Expressions, their windows and thresholds stay as they are.
    """

    def sooner(lasting: re.Match[str]) -> str:
        seconds = int(lasting[2]) * {"m": 60, "h": 3600}[lasting[3]]
        return f"{lasting[1]}{seconds // FASTER}s"

    changed, count = re.subn(r"^( +for: )(\d+)([mh])$", sooner, text, flags=re.MULTILINE)
    assert count > 10
    return changed


async def test_only_unknown_listener_and_leak_alerts_reach_the_webhook(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(hastened(rules(PAGES, GRAFANA)))
    async with (
        alerting(tmp_path) as (address, told),
        watched(tmp_path, file, alertmanager=address, discovers=False) as scene,
    ):
        for _ in range(200):
            assert await scene.ask(OWNED) == 200
        assert await scene.ask(LOOKUP, X_Pulsar_ListenerName="nobody") == 400
        await scene.leak()
        refused = await told.of("PulsarIngressUnknownListener")
        assert refused["status"] == "firing"
        assert refused["labels"] == {
            "alertname": "PulsarIngressUnknownListener",
            "severity": "warning",
            "job": "sidecars",
            "instance": scene.instance,
            "ingress": "public",
            "reason": "unknown-listener",
        }
        assert refused["annotations"] == {
            "summary": "Lookups ask for a listener that brokers do not have",
            "description": f"{scene.instance} refused lookups through public with unknown-listener: 1 in ten minutes.",
            "runbook_url": f"{PAGES}unknown-listener.md",
            "dashboard_url": f"{GRAFANA}d/pulsar-ingress-overview?from=now-3h&to=now&var-job=sidecars"
            f"&var-instance={quote(scene.instance)}",
        }
        leak = await told.of("PulsarIngressLeak")
        assert leak["labels"].items() >= {"severity": "critical", "listener": "external", "where": "body"}.items()
        assert leak["annotations"]["summary"] == "Answers for listener external contained addresses that are not on it"
        assert leak["annotations"]["runbook_url"] == f"{PAGES}leak.md"
        assert told.names == {"PulsarIngressUnknownListener", "PulsarIngressLeak"}
