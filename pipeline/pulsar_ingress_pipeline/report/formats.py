"""Formats names, numbers and times for people."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from markupsafe import Markup

from pulsar_ingress_pipeline.report.records import Name, Others

# Characters that would break the file, or change the reading order of the text around them.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LONGEST = 120
_UNITS = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))


def clean(text: str) -> str:
    """Replace invisible characters, which clients may send, in text that is not markup."""
    return text if isinstance(text, Markup) else _INVISIBLE.sub("\ufffd", text)


def clip(text: str, longest: int = _LONGEST) -> str:
    """Shorten a name at its end."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shown(name: Name, nobody: str = "none") -> str:
    match name:
        case Others(count):
            return f"{count:,} more"
        case None:
            return nobody
        case "":
            return "(empty)"
        case _:
            return clip(name)


def topic(name: str | None) -> str:
    return shown(name).removeprefix("persistent://")


def common_tail(names: Sequence[str]) -> str:
    """The common end of names, such as `.pulsar.svc:8080` of `broker-0.pulsar.svc:8080` and `broker-1…`."""
    if len(names) < 2:
        return ""
    ends = zip(*(reversed(name.split(".")[1:]) for name in names), strict=False)
    shared = [labels[0] for labels in takewhile(lambda labels: len(set(labels)) == 1, ends)]
    return "".join(f".{label}" for label in reversed(shared))


def thousands(value: int) -> str:
    return f"{value:,}"


def compact(value: float) -> str:
    """1,234 is 1.2 k."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size * 0.9995:
            scaled = value / (size if unit != " k" else 1e3)
            return f"{scaled:.3g}{unit}" if scaled < 999.5 else f"{scaled:.0f}{unit}"
    return f"{value:,.0f}"


def percent(part: float, whole: float = 1) -> str:
    """A percentage that is 100 % or 0 % only if it is exact."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.01:
        return "< 0.01 %"
    if 99.99 < share < 100:
        return "> 99.99 %"
    return f"{share:.2f}".rstrip("0").rstrip(".") + " %"


def duration(milliseconds: float) -> str:
    if milliseconds >= 999.5:
        return f"{milliseconds / 1000:.3g} s"
    return f"{milliseconds:.3g} ms"


def length(span: timedelta) -> str:
    """The width of a column in words."""
    for unit, size in _UNITS:
        if span >= size:
            many = span // size
            return f"{many} {unit}s" if many > 1 else f"{'an' if unit == 'hour' else 'a'} {unit}"
    return "a moment"


def the(span: timedelta) -> str:
    """`the hour`, `the 6 hours`."""
    return "the " + length(span).removeprefix("an ").removeprefix("a ")


def clock(time: datetime) -> str:
    return f"{time.year:04d}-{time:%m-%d %H:%M}"
