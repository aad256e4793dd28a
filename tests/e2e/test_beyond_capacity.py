"""A sidecar with a fifth of a core and more requests than that is good for: what must hold on any machine."""

import pytest

from bench.open_loop import percentile
from bench.overload import MODES, SHARE, Mode, Run, measure
from bench.peers import OURS

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    return measure([OURS], MODES, SHARE, seconds=4, seed=11)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_overload_is_refused_and_its_harm_bounded(runs: dict[tuple[str, str], Run], mode: Mode) -> None:
    run = runs[mode.name, OURS.name]
    before, _, double, fivefold, after = (stage.of(run.results) for stage in run.stages)
    accepted = [[one.latency for one in results if one.status == 200] for results in (double, fivefold)]
    assert any(one.status == 503 for one in fivefold)
    assert all(accepted)
    assert percentile(accepted[1], 99) < 5 * percentile(accepted[0], 99)
    assert all(took is not None for found in run.probes.values() for _, took in found)
    assert not any(one.status == 503 for one in before)
    end = run.stages[-1].ended - 1
    last = [one.status for one in after if one.due > end]
    assert last.count(200) >= 0.9 * len(last)
