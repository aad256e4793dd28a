"""From numbers to places: scales, columns of time, and round ticks."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from pulsar_ingress_pipeline.report.formats import day
from pulsar_ingress_pipeline.report.records import Bins

Scale = Callable[[float], float]

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WINDOW = 5 * _MINUTE
STEPS = (
    WINDOW, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY, 3640 * _DAY, 36400 * _DAY, 364000 * _DAY,
)  # fmt: skip


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """A straight line from values to places."""
    return lambda value: start if high == low else start + (value - low) / (high - low) * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Equal factors take equal room."""
    line = linear(math.log(low), math.log(high), start, end)
    return lambda value: line(math.log(max(value, low)))


def bins(first: datetime, last: datetime, most: int) -> Bins:
    """Columns for windows that start from `first` to `last`, of a length that divides hours or days."""
    for step in STEPS:
        start = _down(first, step)
        count = (last - start) // step + 1
        if count <= most:
            return Bins(start, step, count)
    raise AssertionError("times end in the year 9999")


def time_ticks(columns: Bins, most: int) -> list[tuple[float, str]]:
    """Places, counted in columns, and their labels: clock times, and the day where one begins."""
    end = columns.time(columns.count)
    for step in STEPS:
        first = _down(columns.start + step - timedelta(microseconds=1), step)
        if (end - first) // step < most or step == STEPS[-1]:
            break
    found, time = [], first
    while time < end:
        is_day = step >= _DAY or time == _down(time, _DAY)
        found.append(((time - columns.start) / columns.step, day(time) if is_day else f"{time:%H:%M}"))
        time += step
    return found


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from `low` to `high`."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def series(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 … from the last below `low` to the first that reaches `high`."""
    exponent = math.floor(math.log10(max(low, 1e-3)))
    values = [factor * 10.0**power for power in range(exponent - 1, exponent + 12) for factor in (1, 2, 5)]
    start = max((place for place, value in enumerate(values) if value <= low), default=0)
    end = next((place for place, value in enumerate(values) if value >= high), len(values) - 1)
    return values[start : max(end, start + 1) + 1]


def step_of(value: float, bounds: Sequence[float]) -> int:
    """How many of the bounds a value reaches."""
    return sum(value >= bound for bound in bounds)


def _down(time: datetime, step: timedelta) -> datetime:
    return time - (time - _EPOCH) % step
