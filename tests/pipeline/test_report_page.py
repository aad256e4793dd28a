"""The page: everything escaped, nothing loaded, bounded whatever the data, and told in words where there is none."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from delta_tables import put_golden
from golden_files import CONFIG, GOLDEN, printed, words
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from report_rows import (
    Anomaly,
    Counted,
    Generation,
    Leak,
    Loop,
    Miss,
    Moved,
    Namer,
    Namespace,
    Objective,
    Owner,
    Redirects,
    Stray,
    Unmapped,
)

from pulsar_ingress_pipeline.report import Report, page
from pulsar_ingress_pipeline.report.advice import advise
from pulsar_ingress_pipeline.report.charts import element
from pulsar_ingress_pipeline.report.page import environment, incomparable, read
from pulsar_ingress_pipeline.report.records import Bins, Flow, Hits, Latency, Numbers, Others, Row, Top
from pulsar_ingress_proxy.config import load_mapping

METRICS = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
MADE = datetime(2026, 11, 17, 0, 0, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'>&<img src=x onerror=alert(1)>\u202egnp\x00"
NUMBERS = Numbers("/tables", MADE, START + timedelta(hours=2), 1000, 960, 7, 12, 3)


def named(name: str, times: int = 1) -> Report:
    """A report in which every name is this one."""
    names = [name + "!" * place for place in range(times)]
    late = START + timedelta(hours=2)
    return Report(
        tables=name,
        made=MADE,
        clusters=(name,),
        numbers=replace(NUMBERS, tables=name),
        bins=Bins(START, timedelta(minutes=15), 12),
        hits=tuple(Hits(place, ingress, 80, 3) for place in range(12) for ingress in (names[0], Others(3), None)),
        latency=tuple(Latency(place, None, 80, 1.5, 4.0, 9.0, 6.0) for place in range(12) if place != 5),
        latency_by_ingress=tuple(Latency(place, names[0], 80, 1.5, 4.0, 9.0, 6.0 * place) for place in range(12)),
        flows=tuple(Flow(name, name, name, place % 2 == 0, 10 + place) for place, name in enumerate(names[:12])),
        redirects=Top((Redirects(name, name, 2, 5), Redirects("lookup", "rewritten", 0, 50)), 2, 55),
        leaks=Top(tuple(Leak(n, n, n, n, n, 2, START, late) for n in names[:100]), times, 2 * times),
        loops=Top(tuple(Loop(n, n, "client", (n, n), 3, START, late) for n in names[:100]), times, 3 * times),
        objectives=Top(tuple(Objective(n, 1000, 980 + place, 1 - 0.1 * place) for place, n in enumerate(names[:20]))),
        strays=Top(tuple(Stray(n, "seen-not-configured", n, 9, 7, START, late) for n in names[:100]), times, 9 * times),
        unused=[(n, n) for n in names[:100]],
        generations=Top(tuple(Generation(n, 3, START, 100, 90, -0.1) for n in names[:100]), times, 10 * times),
        anomalies=Top(tuple(Anomaly(START, n, "lookups", 9.0, 900.0, 5, -8.0) for n in names[:100]), times, 8 * times),
        misses=Top(tuple(Miss(n, n, "not-allowed", n, 9, START, late, n) for n in names[:100]), times, 9 * times),
        unmapped=Top(tuple(Unmapped(n, n, 7, START, late) for n in names[:100]), times, 7 * times),
        owners=Top(tuple(Owner(n, 30, 12, 3) for n in names[:100]), times, 12 * times),
        topics=50,
        moved=Top(tuple(Moved(n, 2, 12) for n in names[:100])),
        namers=Top(tuple(Namer(n, n, n, 4) for n in names[:100]), times, 4 * times),
        namespaces=Top(tuple(Namespace(n, n, 90, 1, 5) for n in names[:100]), times, 91 * times),
        quarantine=Top((Counted(name, 3),), 1, 3),
    )  # fmt: skip


class Elements(HTMLParser):
    """Elements that were opened and closed, attributes, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts: list[str | None] = []
        self.ids: list[str | None] = []
        self.links: list[str | None] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        values = dict(attrs)
        if tag == "script":
            self.scripts.append(values.get("type"))
        if "id" in values:
            self.ids.append(values["id"])
        if "href" in values:
            self.links.append(values["href"])
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_client_supplied_names_are_escaped_in_the_page() -> None:
    html = page(named(EVIL), None)
    found = Elements(html)
    assert found.open == []
    assert found.scripts == ["application/json"]
    assert not found.names & {"img", "iframe", "object", "link", "base", "form", "foreignobject", "a/"}
    assert not any(name.startswith("on") or name in ("style", "src") for name in found.attributes)
    assert "<script>alert(1)</script>" in found.text
    assert "\u202e" not in html
    assert "\x00" not in html


TEMPLATE = environment().from_string('<p title="{{ words }}">{{ words }}</p>')


@given(st.text())
def test_any_text_is_escaped_in_content_and_attributes(words: str) -> None:
    found = Elements(TEMPLATE.render(words=words))
    assert found.names == {"p"}
    assert found.attributes == {"title"}
    assert Elements(element("b", words, Markup("<i></i>"), title=words)).names == {"b", "i"}


def test_page_loads_no_resources_and_links_only_within_itself() -> None:
    html = page(named("public"), NUMBERS)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert not re.search(r"https?://|url\(|@import", html)
    found = Elements(html)
    assert all(link is not None and link[0] == "#" and link[1:] in found.ids for link in found.links)
    assert len(found.ids) == len(set(found.ids))


@pytest.mark.parametrize(("name", "most"), [("x" * 256, 500_000), ("<&>" * 85, 1_500_000)])
def test_page_size_is_bounded_whatever_the_number_of_rows(name: str, most: int) -> None:
    assert len(page(named(name, times=5000), NUMBERS)) < most
    assert len(page(named("pulsar.example.com"), NUMBERS)) < 60_000


def test_rows_left_out_of_the_page_are_counted() -> None:
    assert "and 4,988 more" in page(named("a.example.com", times=5000), None)


def test_report_without_data_says_what_is_missing() -> None:
    tables = ("flows", "listener_windows", "latency_windows", "misses", "namespaces", "owner_changes")
    words = Elements(page(Report("/tables", MADE, absent=tables), None)).text
    assert "The tables contain no lookups." in words
    assert "The table listener_windows is not there." in words
    assert "No client names a listener itself." in words
    assert "There is no earlier report to compare with" in words
    assert "No requested host is without an ingress." in words
    assert "With --config, the report lists" in words
    assert read(page(Report("/tables", MADE), None)) is None


def test_charts_have_accessible_labels_and_tables_of_their_numbers() -> None:
    html = page(named("public"), None)
    charts = re.findall(r'<svg class="(?:wide|narrow)"[^>]*>', html)
    assert len(charts) == 14
    assert all('role="img"' in chart and 'aria-label="' in chart for chart in charts)
    assert len(re.findall("<summary>The numbers: ", html)) == 8


def test_page_describes_loops_budgets_drift_generations_and_anomalies() -> None:
    loop = Loop("external", "persistent://acme/orders/paid", "client", ("a:443", "b:443"), 3, START, MADE)
    report = replace(
        named("public"),
        loops=Top((loop, loop | {"followed_by": "sidecar", "brokers": ["c:443"]}), 2, 6),
        objectives=Top((Objective("public", 1000, 985, -0.5), Objective(None, 400, 400, 1.0))),
        strays=Top((Stray("lost.example.com", "no-longer-configured", "public", 9, 7, START, MADE),), 1, 9),
        unused=[("partners", "pulsar.partner.example")],
        generations=Top((Generation("gateway-0", 8, START, 200, 100, -0.25),), 1, 50),
        anomalies=Top((Anomaly(START, "public", "p95_ms", 90.0, 20.0, 7, 35.0),), 1, 35),
    )
    words = re.sub(r"\s+", " ", Elements(page(report, None).replace("<", " <")).text)
    for said in (
        "a:443 → b:443 → a:443",
        "the sidecar gave up at c:443",
        "public 1,000 15 98.5 % none: spent 1.5 times",
        "The error budget of public is spent .",
        "lost.example.com no longer has an ingress .",
        "lost.example.com was of public 9 7",
        "pulsar.partner.example of partners",
        "gateway-0 8 2026-11-16 09:00 200 50 % -25.00 points",
        "2026-11-16 09:00 public p95 90 ms 20 ms 7 +35.0",
    ):
        assert said in words, said


def test_numbers_embedded_in_a_report_can_be_read_back() -> None:
    now = replace(NUMBERS, tables=EVIL)
    assert read(page(replace(named("public"), numbers=now), None)) == now


@pytest.mark.parametrize(
    "block", ["", "null", "[]", "{}", '{"made": 3}', "{", '{"tables":"a","made":"2026","until":"x"}']
)
def test_no_numbers_are_read_from_a_file_that_is_not_a_report(block: str) -> None:
    assert read(f'<script type="application/json" id="numbers">{block}</script>') is None
    assert read(block) is None


def test_reports_of_other_or_rebuilt_tables_are_not_compared() -> None:
    assert incomparable(NUMBERS, NUMBERS) is None
    assert "no earlier report" in (incomparable(None, NUMBERS) or "")
    assert "other tables: /old" in (incomparable(replace(NUMBERS, tables="/old"), NUMBERS) or "")
    assert "made again" in (incomparable(replace(NUMBERS, lookups=5000), NUMBERS) or "")


def test_page_lists_changes_since_the_previous_report() -> None:
    late = START + timedelta(hours=1.5)
    then = replace(NUMBERS, until=START + timedelta(hours=1), lookups=600, hits=570, unmapped=7, changes=10)
    report = replace(
        named("a.example.com"),
        numbers=NUMBERS,
        misses=Top(
            (
                Miss(None, "new.example.com", "no-rule", "http", 9, late, late),
                Miss(None, "old.example.com", "no-rule", "http", 9, START, START + timedelta(minutes=5)),
            ), 2, 18,
        ),
    )  # fmt: skip
    words = re.sub(r"\s+", " ", Elements(page(report, then).replace("<", " <")).text)
    assert "New misses: new.example.com" in words
    assert "Misses that have ended: old.example.com" in words
    assert "lookups 600 400" in words
    assert "hit ratio 95 % 97.5 %" in words


def miss(reason: str, **changes: Any) -> Row:
    return Miss(None, "new.example.com", reason, "http", 1, START, START) | changes


@pytest.mark.parametrize("host", ["new.example.com", "new.example.com:8443", "10.0.0.1", "[::1]:8080"])
def test_suggested_config_for_an_unknown_host_is_valid(host: str) -> None:
    found = advise(miss("no-rule", host=host), "external")
    assert found.config is not None
    added = load_mapping({"brokers": {"webServiceUrl": ["http://b:8080"]}} | yaml.safe_load(found.config))
    assert added.ingresses[0].listener == "external"


@pytest.mark.parametrize("host", [None, "", EVIL, "a b", "no_underscores", "*.example.com"])
def test_no_config_is_suggested_for_an_invalid_host(host: str | None) -> None:
    assert advise(miss("no-rule", host=host), "external").config is None


def test_each_miss_reason_has_its_own_advice() -> None:
    told = re.search(r"`reason` of misses: (.*?)\.", METRICS, re.DOTALL)
    assert told is not None
    reasons = re.findall(r"`([a-z-]+)`", told[1])
    said = {advise(miss(reason, ingress="public", named="partner"), "external", {"partner"}).text for reason in reasons}
    assert len(said) == len(reasons)
    assert "Look at the events of this host." not in said
    named = miss("not-allowed", ingress="public", named="a: b")
    assert advise(named, None, {"a: b"}).config == "allowedListeners: ['a: b']"


def test_no_listener_is_suggested_that_no_broker_has() -> None:
    named = advise(miss("not-allowed", ingress="public", named="invented"), "external", {"external"})
    assert named.config is None
    assert "no broker is known to have" in named.text
    assert advise(miss("no-rule"), None).config is None


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    put_golden(folder)
    return folder


def test_report_of_the_golden_tables_has_the_golden_text(golden: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    code, said, _ = printed("report", "--tables", golden, "--out", out, "--config", CONFIG)
    assert (code, said) == (0, f"{out}: 591 lookups\n")
    assert words(out.read_text(), golden).splitlines() == (GOLDEN / "report.txt").read_text().splitlines()


def test_suggest_prints_the_golden_config(golden: Path) -> None:
    assert printed("suggest", "--tables", golden, "--config", CONFIG)[:2] == (0, (GOLDEN / "suggest.yaml").read_text())
    assert printed("suggest", "--tables", golden, "--support", "1000")[1].splitlines()[-1] == "{}"


def test_commands_that_read_tables_import_no_spark(golden: Path, tmp_path: Path) -> None:
    """In a process of its own, where Python cannot import it."""
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from pulsar_ingress_pipeline.cli import main"
    )
    for command in ("report", "--out", str(tmp_path / "report.html")), ("suggest",):
        arguments = [*command, "--tables", str(golden), "--config", str(CONFIG)]
        done = subprocess.run([sys.executable, "-c", f"{program}; sys.exit(main({arguments!r}))"], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
