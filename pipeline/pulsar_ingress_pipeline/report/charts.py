"""Charts as SVG: bars, and the hit ratio and latency over time."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsar_ingress_pipeline.report.formats import clean, clip, clock, compact, duration, order, percent, shown
from pulsar_ingress_pipeline.report.records import Bins, Hits, Latency, Name

Scale = Callable[[float], float]
"""Maps a value to its position."""

NO_INGRESS = "no ingress"
WIDE, NARROW = 1040.0, 350.0
BOUNDS = (1e-9, 1, 2, 5, 10, 25)
"""Percentages of misses from which a cell of the heat map is a shade darker."""
_TOP = 10.0
_RATIO, _VOLUME, _LINES, _BETWEEN = 150.0, 80.0, 150.0, 22.0
_ROW, _GAP, _LABEL = 20.0, 3.0, 16.0
_DOT = 2.5
_SHADES = 7


@dataclass(frozen=True, slots=True)
class Drawing:
    """The content of an SVG and its size."""

    body: Markup
    width: float
    height: float


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element of SVG. Anything that is not `Markup` is escaped as text; None is left out."""
    head = Markup("").join(
        Markup(' {}="{}"').format(key.removesuffix("_"), clean(value) if isinstance(value, str) else number(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(clean(child) for child in children if child is not None)
    return Markup("<{0}{1}>{2}</{0}>").format(name, head, inner)


def number(value: float) -> str:
    """A coordinate with one decimal place at most."""
    return f"{round(value, 1) + 0.0:.7g}"


def path(*parts: str | float) -> str:
    """A path of commands and numbers: `"M", 1, 2.5, "V", 8` gives M1 2.5V8."""
    words = " ".join(part if isinstance(part, str) else number(part) for part in parts)
    return re.sub(" ?([A-Za-z]) ?", r"\1", words)


def box(x: float, y: float, width: float, height: float) -> str:
    return path("M", x, y, "h", width, "v", height, "h", -width, "z")


def linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start if high == low else start + (value - low) / (high - low) * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    line = linear(math.log(low), math.log(high), start, end)
    return lambda value: line(math.log(max(value, low)))


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
    """1, 2, 5, 10, 20 … from the last value below `low` to the first that reaches `high`."""
    exponent = math.floor(math.log10(max(low, 1e-3)))
    values = [factor * 10.0**power for power in range(exponent - 1, exponent + 12) for factor in (1, 2, 5)]
    start = max((place for place, value in enumerate(values) if value <= low), default=0)
    end = next((place for place, value in enumerate(values) if value >= high), len(values) - 1)
    return values[start : max(end, start + 1) + 1]


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[tuple[float, str], ...]
    """Amounts and the class of their colour, from the left."""
    note: str = ""
    """A text after the number."""

    @property
    def amount(self) -> float:
        return sum(amount for amount, _ in self.parts)


def bar_chart(bars: Sequence[Bar], width: float, names: float = 0.34) -> Drawing:
    """`names` is the share of the width for names on a wide page; on a narrow page they are above the bars."""
    is_wide = width > 450
    left = width * names if is_wide else 0.0
    pitch, thick = (26.0, 16.0) if is_wide else (38.0, 14.0)
    room = 16 + 7.0 * max((len(_label(bar)) for bar in bars), default=0)
    most = max((bar.amount for bar in bars), default=1.0) or 1.0
    marks = []
    for place, bar in enumerate(bars):
        top = place * pitch + (4.0 if is_wide else 18.0)
        label = clip(bar.name, int(left / 7.2) if is_wide else 46)
        x, y, anchor = (left - 8, top + 12.5, "end") if is_wide else (0.0, top - 4, None)
        marks.append(element("text", element("title", clip(bar.name)), label, x=x, y=y, class_=anchor))
        at = left
        for amount, style in bar.parts:
            wide = (width - left - room) * amount / most
            if amount > 0:
                marks.append(element("rect", x=at, y=top, width=max(wide, 1), height=thick, class_=style))
            at += wide
        marks.append(element("text", _label(bar), x=at + 6, y=top + thick / 2 + 4.5, class_="soft"))
    return Drawing(element("g", *marks), width, len(bars) * pitch + 4)


def _label(bar: Bar) -> str:
    return f"{compact(bar.amount)} · {bar.note}" if bar.note else compact(bar.amount)


class Timeline:
    """Columns of time. A wide page has space for names on the left."""

    def __init__(self, columns: Bins, width: float) -> None:
        self.columns, self.width, self.is_wide = columns, width, width > 600
        self.left, self.right = (150.0, width - 14) if self.is_wide else (44.0, width - 2)

    def x(self, place: float) -> float:
        return self.left + place / self.columns.count * (self.right - self.left)

    def axis(self, bottom: float) -> Markup:
        """Times below `bottom`, with a vertical line at each."""
        marks = []
        for place, label in self.columns.ticks(9 if self.is_wide else 4):
            x = self.x(place)
            marks.append(element("path", d=path("M", x, _TOP, "V", bottom), class_="grid"))
            anchor = "end" if x > self.right - 20 else "mid"
            marks.append(element("text", label, x=x, y=bottom + 16, class_=f"soft {anchor}"))
        return element("g", *marks)

    def scale(self, scale: Scale, values: Sequence[float], words: Callable[[float], str]) -> list[Markup]:
        """Values on the left, with a horizontal line at each."""
        marks = []
        for value in values:
            y = scale(value)
            marks.append(element("path", d=path("M", self.left, y, "H", self.right), class_="grid"))
            marks.append(element("text", words(value), x=self.left - 6, y=y + 4, class_="soft end"))
        return marks

    def line(self, values: Mapping[int, float], y: Scale, style: str) -> Markup:
        """A line through the middles of columns, with gaps for missing values; a value between two gaps is a dot."""
        line, dots = "", []
        for place in sorted(values):
            x, y_ = self.x(place + 0.5), y(values[place])
            if place - 1 not in values and place + 1 not in values:
                dots.append(element("circle", cx=x, cy=y_, r=_DOT, class_=f"dot {style}"))
            else:
                line += path("L" if place - 1 in values else "M", x, y_)
        return element("g", element("path", d=line, class_=f"line {style}") if line else None, *dots)

    def stack(self, values: Sequence[Mapping[int, float]], y: Scale, styles: Sequence[str]) -> Markup:
        """Stacked bars, the first at the bottom."""
        width = self.x(1) - self.x(0)
        feet: dict[int, float] = defaultdict(float)
        paths = []
        for layer, style in zip(values, styles, strict=True):
            bars = ""
            for place, value in sorted(layer.items()):
                if value > 0:
                    foot, head = y(feet[place]), y(feet[place] + value)
                    tall = max(foot - head, 0.8)
                    bars += box(self.x(place), foot - tall, max(width - 1, width * 0.8), tall)
                    feet[place] += value
            paths.append(element("path", d=bars, class_=style))
        return element("g", *paths)

    def over_rows(
        self,
        marks: Iterable[Markup],
        title: str,
        top: float,
        rows: Sequence[Name],
        cells: Iterable[tuple[int, Name, str]],
        said: Mapping[int, Sequence[str]],
        since: float | None,
    ) -> Drawing:
        """Marks with a row of cells for each ingress below, a tooltip for each column, and a line at `since`."""
        above = 0.0 if self.is_wide else _LABEL  # a narrow page has names between the rows
        bottom = top + len(rows) * (_ROW + _GAP + above)
        body = [
            self.axis(bottom),
            *marks,
            element("text", title, x=0 if self.is_wide else self.left, y=top - 10, class_="strong"),
            self._cells({name: top + above + place * (_ROW + _GAP + above) for place, name in enumerate(rows)}, cells),
        ]
        if since is not None:
            ended = element("title", "the report before this one")
            body.append(element("path", ended, d=path("M", self.x(since), _TOP, "V", bottom), class_="since"))
        if self.is_wide:  # narrow pages are read on phones, which have no tooltips
            width, columns = self.x(1) - self.x(0), []
            for place, lines in sorted(said.items()):
                words = element("title", "\n".join([clock(self.columns.time(place)), *lines]))
                columns.append(element("rect", words, x=self.x(place), y=_TOP, width=width, height=bottom - _TOP))
            body.append(element("g", *columns, class_="columns"))
        return Drawing(element("g", *body), self.width, bottom + 22)

    def _cells(self, rows: Mapping[Name, float], cells: Iterable[tuple[int, Name, str]]) -> Markup:
        """Cells, with one path for each colour. `rows` has the position of each row."""
        width = self.x(1) - self.x(0)
        paths: dict[str, str] = defaultdict(str)
        for place, name, style in cells:
            paths[style] += box(self.x(place), rows[name], max(width - 0.6, width * 0.85), _ROW)
        marks = [element("path", d=boxes, class_=style) for style, boxes in sorted(paths.items())]
        tracks = []
        for name, y in rows.items():
            tracks.append(element("rect", x=self.left, y=y, width=self.right - self.left, height=_ROW, class_="track"))
            words = shown(name, NO_INGRESS)
            if self.is_wide:
                title, x = element("title", words), self.left - 8
                marks.append(element("text", title, clip(words, 20), x=x, y=y + 14.5, class_="end"))
            else:
                marks.append(element("text", clip(words, 44), x=self.left, y=y - 4))
        return element("g", *tracks, *marks)


def hits_chart(columns: Bins, hits: Sequence[Hits], width: float, since: float | None) -> Drawing:
    """Three charts with the same columns: the ratio as a line, lookups as bars, and a row of cells for each ingress."""
    time = Timeline(columns, width)
    sums = totals(hits)
    ratios = {place: 100 * found / (found + missed) for place, (found, missed) in sums.items() if found + missed}
    floor = ratio_floor(min(ratios.values(), default=0.0))
    ratio = linear(floor, 100, _TOP + _RATIO, _TOP)
    base = _TOP + _RATIO + _BETWEEN + _VOLUME
    most = max((found + missed for found, missed in sums.values()), default=1)
    volume = linear(0, most, base, base - _VOLUME)
    rows = ingresses(hits)
    cells = [(cell.place, cell.ingress, _shade(cell, sums[cell.place])) for cell in hits if cell.hits + cell.misses]
    said = {
        place: [f"{found + missed:,} lookups, {percent(found, found + missed)} hits"]
        for place, (found, missed) in sums.items()
    }
    for cell in sorted(hits, key=lambda cell: rows.index(cell.ingress)):
        if cell.misses:
            said[cell.place].append(f"{shown(cell.ingress, NO_INGRESS)}: {cell.misses:,} misses")
    marks = [
        *time.scale(ratio, ticks(floor, 100, 4), lambda value: f"{value:g} %"),
        *time.scale(volume, ticks(0, most, 2), compact),
        time.stack([{place: of[part] for place, of in sums.items()} for part in (0, 1)], volume, ("hit", "miss")),
        time.line(ratios, ratio, "l0"),
        element("text", "hit ratio" if time.is_wide else "", x=0, y=22, class_="strong"),
        element("text", "lookups" if time.is_wide else "", x=0, y=base - _VOLUME + 12, class_="strong"),
    ]
    return time.over_rows(marks, "misses by ingress", base + 30, rows, cells, said, since)


def totals(hits: Sequence[Hits]) -> dict[int, tuple[int, int]]:
    """Hits and misses of each column."""
    sums: dict[int, tuple[int, int]] = {}
    for cell in hits:
        found, missed = sums.get(cell.place, (0, 0))
        sums[cell.place] = found + cell.hits, missed + cell.misses
    return sums


def busiest(amounts: Iterable[tuple[Name, int]]) -> list[Name]:
    """Each name once, the largest first."""
    sums: dict[Name, int] = defaultdict(int)
    for name, amount in amounts:
        sums[name] += amount
    return sorted(sums, key=lambda name: order(name, sums[name]))


def ingresses(hits: Sequence[Hits]) -> list[Name]:
    """The rows of the heat map."""
    return busiest((cell.ingress, cell.hits + cell.misses) for cell in hits)


def ratio_floor(least: float) -> float:
    """The start of the axis: as high as possible, so that a drop by one percent is visible."""
    room = max(100 - least, 1.0)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step >= room / 2)
    return max(0.0, 100 - step * math.ceil(room / step))


def _shade(cell: Hits, whole: tuple[int, int]) -> str:
    """By the share of misses among the lookups of the ingress; of all lookups if there is no ingress."""
    lookups = sum(whole) if cell.ingress is None else cell.hits + cell.misses
    return f"m{bisect_right(BOUNDS, 100 * cell.misses / lookups)}"


def latency_chart(
    columns: Bins, overall: Sequence[Latency], by_ingress: Sequence[Latency], width: float, since: float | None
) -> Drawing:
    """Lines for all lookups, with a row of cells for each ingress below."""
    time = Timeline(columns, width)
    low = min((cell.p50 for cell in overall), default=1.0)
    values = series(low, max((cell.p99 for cell in overall), default=1.0))
    scale = logarithmic(values[0], values[-1], _TOP + _LINES, _TOP)
    rows = busiest((cell.ingress, cell.requests) for cell in by_ingress)
    bounds = shades(by_ingress)
    cells = ((cell.place, cell.ingress, f"h{bisect_right(bounds, cell.worst)}") for cell in by_ingress)
    said = {
        cell.place: [f"p50 {duration(cell.p50)}, p95 {duration(cell.p95)}, p99 {duration(cell.p99)}"]
        for cell in overall
    }
    for cell in sorted(by_ingress, key=lambda cell: rows.index(cell.ingress)):
        if cell.place in said:
            said[cell.place].append(f"{shown(cell.ingress, NO_INGRESS)}: worst p95 {duration(cell.worst)}")
    marks = [
        *time.scale(scale, values if len(values) < 8 else values[::3], duration),
        time.line({cell.place: cell.p50 for cell in overall}, scale, "l0"),
        time.line({cell.place: cell.p95 for cell in overall}, scale, "l1"),
        time.line({cell.place: cell.p99 for cell in overall}, scale, "l2"),
        element("text", "all lookups" if time.is_wide else "", x=0, y=22, class_="strong"),
    ]
    return time.over_rows(marks, "worst p95 by ingress", _TOP + _LINES + 36, rows, cells, said, since)


def shades(cells: Sequence[Latency]) -> list[float]:
    """Milliseconds from which a cell is a shade darker: the upper ones of 1, 2, 5, 10 …"""
    values = [cell.worst for cell in cells]
    return series(min(values), max(values))[1:-1][1 - _SHADES :] if values else []
