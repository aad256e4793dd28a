"""The soak compares what it should, and says so where something does not add up."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bench.soak import Totals, checks, soak, table
from bench.soak_ends import Tally

MIB = 1 << 20
TALLY = Tally(attempted=120, answered=90, others=10, sessions=20, cut=2, hung_up=3)
EXPECTED = Totals(
    hits=70,
    misses=30,
    lookups=100,
    events=100,
    dropped=0,
    in_flight=0,
    connections=0,
    buffered=0,
    tracebacks=0,
    resident=(60 * MIB,) * 4 + (90 * MIB,) * 8,
    tally=TALLY,
)


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
        ({"tracebacks": 1}, {"tracebacks in the sidecar's log"}),
        ({"tally": replace(TALLY, wrong=Counter({"GET answered 400": 1}))}, {"wrong answers"}),
        ({"tally": replace(TALLY, cut=4)}, {"connections cut off"}),
        ({"resident": tuple(n * 6 * MIB for n in range(10, 22))}, {"resident memory at the end"}),
    ],
    ids=lambda change: ", ".join(change) if isinstance(change, dict) else "",
)
def test_a_count_that_is_off_fails_its_row(change: dict[str, Any], rows: set[str]) -> None:
    totals = replace(EXPECTED, **change)
    assert failing(totals) == rows
    assert table(checks(totals)).count("DOES NOT HOLD") == len(rows)


async def test_short_soak_of_a_real_sidecar_adds_up_and_one_lookup_too_many_would_show() -> None:
    totals = await soak(1.5, seed=7)
    counts = {row.what for row in checks(totals)} - {"resident memory at the end"}
    assert failing(totals) & counts == set(), table(checks(totals))
    assert {"lookups in requests_total", "lookup events in the log"} <= failing(replace(totals, hits=totals.hits + 1))
