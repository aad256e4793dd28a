"""The page on scale has what the command computes, from figures that other pages have or that a sidecar shows."""

import re
from dataclasses import asdict, replace

import pytest

from bench.scale import PAGE, Figures, Fleet, of_pages, of_table, tables
from bench.scale_measure import measure


def value(table: str, what: str) -> float:
    (found,) = re.findall(rf"^\| {re.escape(what)} \| ([\d,.]+) \|", table, re.MULTILINE)
    return float(found.replace(",", ""))


def test_page_has_the_tables_that_the_command_makes_of_its_figures() -> None:
    page = PAGE.read_text()
    for name, text in tables(Fleet(), of_table(page)).items():
        assert f"<!-- {name} -->\n{text}\n<!-- /{name} -->" in page


def test_figures_of_other_pages_are_those_that_stand_there_now() -> None:
    written = asdict(of_table(PAGE.read_text()))
    assert {name: written[name] for name in of_pages(PAGE.parent)} == of_pages(PAGE.parent)


def test_a_small_fleet_adds_up_by_hand() -> None:
    fleet = Fleet(
        gateways=2, clients=1000, topics=3, connects=4, peak_minutes=1, brokers=5, ingresses=4, changes=30,
        object_bytes=1000, objects=100, scrape_seconds=10, sample_bytes=2,
    )  # fmt: skip
    figures = Figures(
        lookup_us=100, latency_ms=2, series=250, series_per_ingress=10, scrape_bytes=50_000, watches=4, polls=9,
        ingest_us=10, tables_us=20, gzip=100, parquet=40,
    )  # fmt: skip
    made = tables(fleet, figures)
    assert value(made["brokers"], "lookups a day") == 12_000
    assert value(made["brokers"], "lookups a second, at the peak") == 50
    assert value(made["brokers"], "of these, at one broker") == 10
    assert value(made["brokers"], "share of a sidecar's core then, %") == 0.25
    assert value(made["api"], "watches") == 22
    assert value(made["api"], "events a second to all of them") == 1
    assert value(made["api"], "requests a second for CRDs that are not there") == 0.3
    assert value(made["prometheus"], "series of all") == 560
    assert value(made["prometheus"], "samples a second") == 56
    assert value(made["pipeline"], "event files a day") == 576
    assert value(made["pipeline"], "GB of gzip a day") == 0.0012


@pytest.mark.parametrize("name", ["gateways", "clients", "brokers", "ingresses", "changes", "scrape_seconds"])
def test_each_assumption_changes_the_result(name: str) -> None:
    page = PAGE.read_text()
    fleet = Fleet()
    more = replace(fleet, **{name: 2 * getattr(fleet, name)})
    before, after = tables(fleet, of_table(page)), tables(more, of_table(page))
    assert any(before[block] != after[block] for block in ("brokers", "api", "prometheus", "pipeline"))


async def test_a_real_sidecar_has_as_many_watches_as_the_page_says_and_series_only_for_names_of_the_config() -> None:
    found = await measure(1)
    assert found.watches == of_table(PAGE.read_text()).watches
    assert 0 < found.series_per_ingress < found.series / 10
