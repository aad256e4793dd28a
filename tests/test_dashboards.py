"""Dashboards, rules and runbooks: written from the catalogue of metrics, and of one piece with it and each other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_docs import metric_names, parts

from dashboards.__main__ import HERE, files
from dashboards.alerts import ALERTS
from dashboards.recordings import RECORDINGS
from dashboards.rules import RUNBOOKS, published, rules
from pulsar_ingress_proxy.observability.catalogue import PREFIX, PROCESS, Gateway, Metric, Pipeline, Sidecar

ROOT = Path(__file__).parent.parent
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(HERE.glob("*.json"))}
EVERY_ALERT = [alert for alerts in ALERTS.values() for alert in alerts]
PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))

SCOPE = {"cluster": ".*", "namespace": ".*", "job": ".+", "instance": ".+"}
"""The variables of every query, and what matches all; a plain Prometheus has no cluster and no namespace."""

every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


def exprs(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


def metrics_in(expr: str) -> set[str]:
    """The series that a query reads: its words with an underscore, and `up`, that are neither labels nor functions."""
    bare = re.sub(r"{[^}]*}|\[[^]]*\]|offset \S+|\"[^\"]*\"|\b(?:by|on|group_left) \([^)]*\)", "", expr)
    return set(re.findall(r"\b(?:up|[a-z]+[a-z:]*_[\w:]+)\b(?!\()", bare))


@pytest.mark.parametrize("name", files())
def test_committed_dashboards_and_rules_are_up_to_date(name: str) -> None:
    assert (HERE / name).read_text() == files()[name](), "run `make docs`"


def test_every_committed_dashboard_and_rules_file_is_generated() -> None:
    assert {path.name for pattern in ("*.json", "*.yaml") for path in HERE.glob(pattern)} == set(files())


def test_every_metric_in_a_query_exists() -> None:
    recorded = {recording.record for recordings in RECORDINGS.values() for recording in recordings}
    known = set(metric_names()) | recorded | {"up", *(metric.name for metric in Gateway.every())}
    asked = [expr for board in BOARDS.values() for expr in exprs(board)]
    asked += [recording.expr for recordings in RECORDINGS.values() for recording in recordings]
    asked += [alert.expr for alert in EVERY_ALERT]
    for expr in asked:
        found = metrics_in(expr)
        assert found, expr
        assert found <= known, f"{found - known} in {expr}"


def test_no_metric_name_is_written_by_hand_in_the_dashboard_code() -> None:
    """One written out by hand may be misspelled."""
    for path in HERE.glob("*.py"):
        text = re.sub(r"^from pulsar_ingress_proxy.*$", "", path.read_text(), flags=re.MULTILINE)
        assert not re.search(rf"{PREFIX}|{PROCESS}\w", text), path.name


@pytest.mark.parametrize("metric", [*Sidecar.every(), *Pipeline.every()], ids=lambda metric: metric.name)
def test_every_metric_is_on_a_panel_or_in_a_rule_or_marked_unwatched(metric: Metric) -> None:
    """A metric that nobody looks at is questioned."""
    shown = " ".join([*(expr for board in BOARDS.values() for expr in exprs(board)), (HERE / "rules.yaml").read_text()])
    is_watched = any(re.search(rf"\b{series.name}\b", shown) for series in (metric, *parts(metric)))
    assert is_watched != bool(metric.unwatched)


def test_metric_names_are_unique_and_follow_prometheus_conventions() -> None:
    names = [metric.name for metric in (*Sidecar.every(), *Pipeline.every())]
    assert len(set(names)) == len(names)
    for metric in (*Sidecar.every(), *Pipeline.every()):
        assert metric.name.startswith(PREFIX)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help.endswith(".")


def test_every_label_in_a_panel_query_or_legend_exists() -> None:
    labels = {"le", "job", "instance", "namespace", "cluster", "pod", "alertname"}
    for metric in (*Sidecar.every(), *Pipeline.every()):
        labels |= set(metric.labels)
    for board in BOARDS.values():
        for panel in panels(board):
            for target in panel["targets"]:
                used = re.findall(r"\b(?:by|on) \(([^)]*)\)", target["expr"]) + re.findall(
                    r"(\w+)(?:=~|!~|!=|=)\"", target["expr"]
                )
                used += re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
                assert {label for names in used for label in names.split(", ")} <= labels, target


class TestBoards:
    """What dashboard-linter asks for, held here too, since it is not at hand everywhere; and some of our own."""

    @every_board
    def test_board_has_datasource_cluster_namespace_job_and_instance_variables(self, board: dict[str, Any]) -> None:
        variables = {each["name"]: each for each in board["templating"]["list"]}
        assert list(variables) == ["datasource", *SCOPE]
        assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
        assert variables["datasource"]["label"] == "Data source"
        for name, every in SCOPE.items():
            each = variables[name]
            assert (each["type"], each["label"], each["datasource"]["uid"]) == ("query", name.title(), "${datasource}")
            assert (each["multi"], each["allValue"], each["refresh"]) == (True, every, 2)
        assert board["editable"] is False

    @every_board
    def test_panels_have_unique_title_description_unit_and_queries(self, board: dict[str, Any]) -> None:
        titles = set()
        for panel in panels(board):
            assert panel["title"], panel
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"], panel["title"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
            titles.add((panel["type"], panel["title"]))
        assert len(titles) == len(list(panels(board)))

    @every_board
    def test_pages_and_panels_that_descriptions_mention_exist(self, board: dict[str, Any]) -> None:
        titles = {panel["title"] for panel in panels(board)}
        for panel in panels(board):
            for page in re.findall(r"[\w/-]+\.(?:md|yaml)", panel["description"]):
                assert (ROOT / page).exists(), page
            for title in re.findall(r"\*([^*]+)\*", panel["description"]):
                assert title in titles, title

    @every_board
    def test_panel_queries_select_the_chosen_cluster_namespace_job_and_instance(self, board: dict[str, Any]) -> None:
        chosen = ", ".join(f'{name}=~"${name}"' for name in SCOPE)
        for expr in exprs(board):
            selectors = re.findall(r"{([^}]*)}", expr)
            assert selectors
            assert all(selector.startswith(chosen) for selector in selectors), expr
            assert len(selectors) == len(re.findall(rf"\b(?:{PREFIX}|process_)\w+", expr)), expr
            assert set(re.findall(r"rate\([^[]*\[([^]]*)\]", expr)) <= {"$__rate_interval"}, expr

    @every_board
    def test_panels_fill_the_grid_without_holes(self, board: dict[str, Any]) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells
        height = max(y for _, y in taken) + 1
        assert taken == {(x, y) for x in range(24) for y in range(height)}
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])

    def test_every_board_links_to_other_existing_boards(self) -> None:
        uids = {board["uid"] for board in BOARDS.values()}
        for board in BOARDS.values():
            assert set(re.findall(r"/d/([\w-]+)", json.dumps(board))) <= uids
            linked = {link["url"].removeprefix("/d/").partition("?")[0] for link in board["links"]}
            assert board["uid"] not in linked
            assert linked


class TestAlerts:
    def test_every_alert_has_severity_summary_description_runbook_and_dashboard(self) -> None:
        for group in yaml.safe_load(rules())["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    assert rule["labels"].keys() == {"severity"}
                    assert rule["labels"]["severity"] in ("critical", "warning", "info")
                    assert rule["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
                    assert not rule["annotations"]["summary"].endswith("."), rule
                    assert rule["annotations"]["description"].endswith("."), rule
                    assert rule["annotations"]["runbook_url"].startswith(RUNBOOKS)
                    path, _, chosen = rule["annotations"]["dashboard_url"].partition("?")
                    assert path.removeprefix("/d/") in {board["uid"] for board in BOARDS.values()}
                    assert re.findall(r"var-(\w+)", chosen) == list(SCOPE)

    def test_every_alert_has_its_page_and_every_page_its_alert(self) -> None:
        assert {path.stem for path in PAGES} == {alert.page for alert in EVERY_ALERT}
        for path in PAGES:
            named = set(re.findall(r"\bPulsarIngress\w+", path.read_text()))
            assert named == {alert.name for alert in EVERY_ALERT if alert.page == path.stem}, path.name

    def test_every_alert_is_listed_in_the_operations_page(self) -> None:
        text = (ROOT / "docs/operations.md").read_text()
        rows = re.findall(
            r"^\| `(PulsarIngress\w+)` \| (\w+) \| \[[\w-]+\]\(runbooks/([\w-]+)\.md\) \|$", text, re.MULTILINE
        )
        assert rows == [(alert.name, alert.severity, alert.page) for alert in EVERY_ALERT]

    def test_base_url_of_the_runbooks_can_be_changed(self) -> None:
        moved = rules("https://runbooks.example.com/")
        assert RUNBOOKS not in moved
        assert published("home: https://code.example.com/proxy/\n") == (
            "https://code.example.com/proxy/blob/HEAD/docs/runbooks/"
        )
        assert published("name: proxy\n") == "docs/runbooks/"
        assert moved == rules().replace(f"runbook_url: {RUNBOOKS}", "runbook_url: https://runbooks.example.com/")

    def test_base_url_of_the_dashboards_can_be_set(self) -> None:
        moved = rules(grafana="https://grafana.example.com/")
        assert moved.count("dashboard_url: https://grafana.example.com/d/") == len(EVERY_ALERT)

    @pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
    def test_runbook_has_commands_to_check_and_to_fix_the_problem(self, path: Path) -> None:
        text = path.read_text()
        assert "\n## Check\n" in text
        assert re.search(r"^ *(?:pulsar-ingress-proxy|kubectl|docker|duckdb) ", text, re.MULTILINE)
        if path.stem == "sidecar-down":  # where there is nobody to ask
            return
        assert "\n## Fix\n" in text
        if path.stem in {alert.page for alert in ALERTS["pipeline"]}:
            assert re.search(r"^pulsar-ingress-pipeline (?:run|stream) ", text, re.MULTILINE)
        else:
            assert re.search(r"\b(?:explain|doctor|check) --config", text)
