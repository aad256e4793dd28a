"""The rules by Prometheus's own tool: they are sound, and each alert fires when it should, and only then."""

import shutil
from pathlib import Path

import yaml
from processes import run
from prometheus_programs import programs

from dashboards.alerts import ALERTS
from dashboards.rules import PAGES, rules

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "dashboards/rules.yaml"
CASES = HERE / "rules_test.yaml"


async def test_promtool_lint_finds_no_fault_in_the_rules() -> None:
    code, out, err = await run(programs().promtool, "check", "rules", "--lint-fatal", RULES)
    assert code == 0, out + err


async def test_promtool_rule_tests_of_all_alerts_pass(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules(PAGES))
    shutil.copy(CASES, tmp_path)
    code, out, err = await run(programs().promtool, "test", "rules", tmp_path / CASES.name)
    assert code == 0, out + err


def test_every_alert_and_severity_has_a_firing_case_and_every_alert_a_quiet_one() -> None:
    fires: set[tuple[str, str]] = set()
    is_quiet: set[str] = set()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            alerts = check.get("exp_alerts", [])
            fires |= {(check["alertname"], alert["exp_labels"]["severity"]) for alert in alerts}
            if not alerts:
                is_quiet.add(check["alertname"])
    every = [alert for alerts in ALERTS.values() for alert in alerts]
    assert fires == {(alert.name, alert.severity) for alert in every}
    assert is_quiet == {alert.name for alert in every}
