"""The soak compares what it should, and says so where something does not add up."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import soak_page
from bench.soak import soak
from bench.soak_checks import MIB, Sample, Totals, checks, table
from bench.soak_churn import Pace
from bench.soak_tally import Tally

TALLY = Tally(attempted=120, answered=90, others=10, sessions=20, cut=2, hung_up=3)


def sample(second: int, resident: int = 60, descriptors: int = 100, tasks: int = 30) -> Sample:
    return Sample(second, resident * MIB, descriptors, tasks, requests=second * 1000)


WARMING_UP = tuple(sample(second, 60 + 10 * second, 50 * second, 10 * second) for second in range(4))
EXPECTED = Totals(
    hits=70,
    misses=30,
    lookups=100,
    events=100,
    dropped=0,
    in_flight=0,
    connections=0,
    buffered=0,
    tracebacks=(),
    failed_reloads=(),
    differences=(),
    samples=(*WARMING_UP, *(sample(second, 90) for second in range(4, 12))),
    before=sample(0, descriptors=25, tasks=14),
    after=sample(12, descriptors=25, tasks=14),
    changes=((1.5, "config"), (4.0, "brokers"), (5.0, "config")),
    tally=TALLY,
)


def growing(what: str, step: int) -> tuple[Sample, ...]:
    return tuple(sample(second, **{what: 100 + step * second}) for second in range(12))


def failing(totals: Totals) -> set[str]:
    return {row.what for row in checks(totals) if not row.holds}


def test_totals_that_add_up_hold() -> None:
    assert failing(EXPECTED) == set()
    assert "DOES NOT HOLD" not in table(checks(EXPECTED))


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"lookups": 99}, {"lookups in requests_total"}),
        ({"events": 101}, {"lookup events in the log"}),
        ({"misses": 0, "hits": 100}, {"hits and misses"}),
        ({"hits": 10, "lookups": 40, "events": 40}, {"lookups by the clients' count"}),
        ({"hits": 170, "lookups": 200, "events": 200}, {"lookups by the clients' count"}),
        ({"dropped": 1}, {"events dropped"}),
        ({"in_flight": 1}, {"requests in flight at the end"}),
        ({"connections": 1}, {"client connections at the end"}),
        ({"buffered": 1}, {"bytes held for them at the end"}),
        ({"tracebacks": ("KeyError",)}, {"tracebacks in the sidecar's log"}),
        ({"failed_reloads": ("not reloaded",)}, {"failed reloads"}),
        ({"differences": ("broker-3: None",)}, {"differences to the cluster and the newest certificate at the end"}),
        ({"after": sample(12, descriptors=30, tasks=14)}, {"descriptors at the end"}),
        ({"after": sample(12, descriptors=25, tasks=16)}, {"tasks at the end"}),
        ({"tally": replace(TALLY, wrong=Counter({"GET answered 400": 1}))}, {"wrong answers"}),
        ({"tally": replace(TALLY, cut=4)}, {"connections cut off"}),
        ({"samples": growing("resident", 6)}, {"resident memory, last quarter"}),
        ({"samples": growing("descriptors", 6)}, {"open descriptors, last quarter"}),
        ({"samples": growing("tasks", 6)}, {"asyncio tasks, last quarter"}),
    ],
    ids=lambda change: ", ".join(change) if isinstance(change, dict) else "",
)
def test_a_count_that_is_off_fails_its_row(change: dict[str, Any], rows: set[str]) -> None:
    totals = replace(EXPECTED, **change)
    assert failing(totals) == rows
    assert table(checks(totals)).count("DOES NOT HOLD") == len(rows)


async def test_short_soak_of_a_real_sidecar_adds_up_and_one_lookup_too_many_would_show() -> None:
    pace = Pace(config=0.4, brokers=0.4, objects=0.1, watches=0.3, certificates=0.5, away=0.1)
    totals = await soak(3, 7, pace)
    counts = {row.what for row in checks(totals) if not row.what.endswith("last quarter")}
    assert failing(totals) & counts == set(), (table(checks(totals)), replace(totals, samples=()))
    assert {kind for _, kind in totals.changes} == {"config", "brokers", "API server", "certificates"}
    assert {"lookups in requests_total", "lookup events in the log"} <= failing(replace(totals, hits=totals.hits + 1))


def test_plot_has_a_line_for_each_quantity_and_a_mark_for_each_change() -> None:
    lines = ElementTree.fromstring(soak_page.plot(EXPECTED)).iter("{http://www.w3.org/2000/svg}polyline")
    assert [len(str(line.get("points")).split()) for line in lines] == [12, 12, 12, 11]
    marks = re.findall(r'class="theirs" d="([^"]+)"', soak_page.plot(EXPECTED))
    assert [mark.count("M") for mark in marks] == [2, 1]


def test_page_has_the_rows_of_the_command_and_they_all_hold() -> None:
    page = (soak_page.DOCS / "soak.md").read_text()
    (written,) = re.findall(r"<!-- checks -->\n(.*?)<!-- /checks -->", page, re.DOTALL)
    written_rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in written.splitlines()[2:]]
    assert [cells[0] for cells in written_rows] == [row.what for row in checks(EXPECTED)]
    assert {cells[-1].strip("| ") for cells in written_rows} == {"holds"}
