"""Four rules hold whatever fails around the sidecar, by what clients and brokers alone have seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import violations
from fault import Fault, prepare
from fault_page import PAGE, page
from fault_runs import Result, run
from faults import FAULTS
from stage import staged

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Result]]:
    """By name; all of them make the page."""
    found: dict[str, Result] = {}
    yield found
    if found.keys() == {fault.name for fault in FAULTS}:
        PAGE.write_text(page(found))


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, id=one.name, marks=() if one.is_quick else pytest.mark.full) for one in FAULTS],
)
async def test_no_listener_address_or_byte_goes_astray_and_all_is_recorded(
    fault: Fault, results: dict[str, Result], tmp_path: Path
) -> None:
    results[fault.name] = await run(fault, tmp_path)


SWAPPED = [
    {"name": "external", "hosts": ["pulsar.example.com"], "listener": "partner"},
    {"name": "partner", "hosts": ["pulsar.example.org"], "listener": "external"},
]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ingresses": SWAPPED}, "1: tagged with"),
        ({"redirects": {"lookup": "pass"}, "leaks": "observe"}, "2: the answer names a broker of the inside"),
        ({"advertisedListeners": []}, "3: it reached another broker than it named"),
        ({"lookupListenerName": "external"}, "1: a lookup that is to be refused has left"),
    ],
    ids=["listeners are swapped", "addresses pass", "no broker is known", "nothing is a miss"],
)
async def test_a_sidecar_that_is_configured_to_break_a_rule_is_found_out(
    settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    async with staged(tmp_path, prepare(lambda stage: stage.settings.update(settings))) as stage:
        async with stage.load.running():
            await stage.load.more(200)
        found = violations(stage.load.operations, stage.received(), await stage.recorded())
    assert any(line.startswith(says) for line in found), found[:5]
