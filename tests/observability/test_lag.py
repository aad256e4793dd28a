"""Event loop lag: what the timer saw is what a halt took from everybody."""

import asyncio
import time
from collections.abc import Callable

import pytest

from pulsar_ingress_proxy.observability.catalogue import Sidecar
from pulsar_ingress_proxy.observability.metrics import LAG_PAUSE, Histogram, LoopLag, late


@pytest.mark.parametrize(
    ("seconds", "lags"),
    [
        (-0.001, [0.0]),
        (0.0, [0.0]),
        (0.02, [0.02]),
        (0.25, [0.25, 0.15, 0.05]),
    ],
)
def test_every_tick_that_was_due_counts_by_how_late_it_is(seconds: float, lags: list[float]) -> None:
    assert late(100.0, 100.0 + seconds) == pytest.approx(lags)


def test_halt_of_a_day_yields_a_bounded_number_of_lag_samples() -> None:
    assert len(late(0.0, 86_400.0)) < 1000


async def test_blocked_event_loop_is_measured_as_lag() -> None:
    seen, ticked = Ticks(), asyncio.Event()
    seen.when = ticked.set
    lag = LoopLag(seen)
    await ticked.wait()
    before = seen.total
    time.sleep(5 * LAG_PAUSE)  # noqa: ASYNC251 - what must not be done is what is looked for
    ticked.clear()
    await ticked.wait()
    lag.stop()
    assert sum(seen.values[()][:-1]) >= 4
    assert seen.total - before >= 4 * LAG_PAUSE


class Ticks(Histogram):
    """One that calls back for every value it gets."""

    def __init__(self) -> None:
        super().__init__(Sidecar.loop_lag)
        self.total = 0.0
        self.when: Callable[[], None] = lambda: None

    def observe(self, seconds: float, labels: tuple[str, ...] = ()) -> None:
        super().observe(seconds, labels)
        self.total += seconds
        self.when()
