"""Numbers and axes as people read them, by Grafana's names of units."""

import math
from collections.abc import Sequence

_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LARGE = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_AFTER = {"reqps": " req/s", "cps": " c/s"}


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """`0.0123` of `s` is `12.3 ms`."""
    if unit == "percentunit":
        return f"{_figures(value * 100, decimals)}%"
    if unit == "s":
        return _duration(value, decimals)
    if unit == "bytes":
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), decimals)
    return _scaled(value, 1000, ("", "K", "Mil", "Bil"), decimals) + _AFTER.get(unit, "")


def _duration(value: float, decimals: int | None) -> str:
    for size, name in _LARGE:
        if value >= size:
            return f"{_figures(value / size, decimals)} {name}"
    for size, name in _SMALL:
        if value >= size:
            return f"{_figures(value / size, decimals)} {name}"
    return "0 s"


def _scaled(value: float, base: int, names: Sequence[str], decimals: int | None) -> str:
    power = 0
    while abs(value) >= base and power < len(names) - 1:
        value, power = value / base, power + 1
    return f"{_figures(value, decimals)} {names[power]}".rstrip()


def _figures(value: float, decimals: int | None) -> str:
    """With so many decimals, else with three figures that matter."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(most: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to the first that is not less than the most."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough * (1 - 1e-9))
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
