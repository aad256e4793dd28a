"""Charts as SVG: bars, the hit ratio and latency over time, and flows from ingress to listener to broker."""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsar_ingress_pipeline.report.formats import clean, clip, clock, common_tail, compact, duration, percent, shown
from pulsar_ingress_pipeline.report.records import Bins, Flow, Hits, Latency, Name, Others

Scale = Callable[[float], float]
"""Maps a value to its position."""

NOBODY = ("no ingress", "no listener", "no broker")
NO_INGRESS = NOBODY[0]
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
    """Each name once: the largest first, then the other names together, then no name."""
    sums: Counter[Name] = Counter()
    for name, amount in amounts:
        sums[name] += amount
    kinds = {Others: 1, type(None): 2}
    return sorted(sums, key=lambda name: (kinds.get(type(name), 0), -sums[name], str(name)))


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


_HEADS = ("ingress", "listener", "broker")
_COLOURS = 6
_LABEL_ROOM = 34.0
"""Height of a label of two lines."""
_HEAD_ROOM = 24.0

Stage = Sequence[Name]
"""The names of the boxes of one column, from the top."""
Place = tuple[int, Name]
"""A box by its column and name."""


@dataclass(frozen=True, slots=True)
class Band:
    """Hits, or misses, that flow from a box to one of the next column."""

    column: int
    source: Name
    target: Name
    is_hit: bool


@dataclass(frozen=True, slots=True)
class Box:
    top: float
    height: float
    amount: float


def lay_out(
    stages: Sequence[Stage], bands: Mapping[Band, int], height: float, room: float
) -> tuple[dict[Place, Box], dict[Band, tuple[float, float, float]]]:
    """Boxes whose height is proportional to their lookups, with `room` for the label of even the smallest.

    Each band has the positions of its upper edge at both ends, and its height. The bands of a box are in the order of
    the boxes that they lead to, hits first, so that few of them cross.
    """
    amounts: Counter[Place] = Counter()
    for band, amount in bands.items():
        amounts[band.column + 1, band.target] += amount
        if band.column == 0:  # what enters a box of a later column also leaves it
            amounts[0, band.source] += amount
    measure = min(
        _measure([amounts[column, name] for name in stage], height, room) for column, stage in enumerate(stages)
    )
    boxes: dict[Place, Box] = {}
    for column, stage in enumerate(stages):
        slots = [_slot(amounts[column, name], measure, room) for name in stage]
        spare = (height - sum(slots)) / (len(slots) + 1)
        top = spare
        for name, slot in zip(stage, slots, strict=True):
            tall = amounts[column, name] * measure
            boxes[column, name] = Box(top + (slot - tall) / 2, tall, amounts[column, name])
            top += slot + spare
    leaving = {place: box.top for place, box in boxes.items()}
    entering = dict(leaving)
    from_tops: dict[Band, float] = {}
    for band in sorted(bands, key=lambda band: (stages[band.column + 1].index(band.target), not band.is_hit)):
        from_tops[band] = leaving[band.column, band.source]
        leaving[band.column, band.source] += bands[band] * measure
    placed: dict[Band, tuple[float, float, float]] = {}
    for band in sorted(bands, key=lambda band: (stages[band.column].index(band.source), not band.is_hit)):
        placed[band] = from_tops[band], entering[band.column + 1, band.target], bands[band] * measure
        entering[band.column + 1, band.target] += bands[band] * measure
    return boxes, placed


def _slot(amount: float, measure: float, room: float) -> float:
    return max(amount * measure + room / 3, room)


def _measure(amounts: list[int], height: float, room: float) -> float:
    """The largest height of a single lookup with which all boxes fit."""
    low, high = 0.0, height / max(sum(amounts), 1e-9)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(_slot(amount, middle, room) for amount in amounts) <= height:
            low = middle
        else:
            high = middle
    return low


def flow_chart(flows: Sequence[Flow], width: float) -> Drawing:
    """On a wide page labels are beside the boxes, on a narrow page over the bands."""
    stages = [busiest((flow.ends[column], flow.lookups) for flow in flows) for column in range(3)]
    height = max(280.0, max(len(stage) for stage in stages) * 44.0)
    bands = _bands(flows)
    boxes, placed = lay_out(stages, bands, height, _LABEL_ROOM)
    is_wide = width > 600
    margin, thick = (180.0, 14.0) if is_wide else (0.0, 8.0)
    places = (margin, (width - thick) / 2, width - margin - thick)
    colours = _colours(stages[1])
    tail = common_tail([name for name in stages[2] if isinstance(name, str)])
    total = sum(flow.lookups for flow in flows)
    body = [
        element("text", head, x=x + thick * column / 2, y=-10, class_=f"soft {anchor}".strip())
        for column, (head, x, anchor) in enumerate(zip(_HEADS, places, ("", "mid", "end"), strict=True))
    ]
    for band, (upper, lower, tall) in placed.items():
        left, right = places[band.column] + thick, places[band.column + 1]
        colour = colours[band.target if band.column == 0 else band.source] if band.is_hit else "miss"
        names = [shown(end, NOBODY[column]) for column, end in enumerate((band.source, band.target), band.column)]
        title = element("title", f"{' → '.join(names)}: {bands[band]:,} {'hits' if band.is_hit else 'misses'}")
        edges = _edges(left, right, upper, lower, max(tall, 0.8))
        body.append(element("path", title, d=edges, class_=f"band {colour}"))
    for column, stage in enumerate(stages):
        labels = []
        for name in stage:
            box, x, words = boxes[column, name], places[column], shown(name, NOBODY[column])
            colour = "miss" if name is None and column < 2 else colours[name] if column == 1 else "rest"
            share = f"{compact(box.amount)} · {percent(box.amount, total)}"
            title, tall = element("title", f"{words}: {share}"), max(box.height, 1.5)
            body.append(element("rect", title, x=x, y=box.top, width=thick, height=tall, rx=2, class_=colour))
            if column == 2 and isinstance(name, str):
                words = words.removesuffix(tail)
            numbers = share if is_wide else compact(box.amount)
            labels.append(_box_label(column, words, numbers, box.top + box.height / 2, x, thick, is_wide))
        body += labels
    return Drawing(element("g", *body, transform=f"translate(0 {_HEAD_ROOM:g})"), width, height + _HEAD_ROOM)


def _bands(flows: Sequence[Flow]) -> dict[Band, int]:
    sums: Counter[Band] = Counter()
    for flow in flows:
        sums[Band(0, flow.ingress, flow.listener, flow.is_hit)] += flow.lookups
        sums[Band(1, flow.listener, flow.broker, flow.is_hit)] += flow.lookups
    return sums


def _colours(listeners: Sequence[Name]) -> Mapping[Name, str]:
    return {
        name: "rest" if isinstance(name, Others) or place >= _COLOURS else "miss" if name is None else f"s{place}"
        for place, name in enumerate(listeners)
    }


def _edges(left: float, right: float, upper: float, lower: float, tall: float) -> str:
    middle = (left + right) / 2
    return path(
        "M", left, upper, "C", middle, upper, middle, lower, right, lower,
        "v", tall, "C", middle, lower + tall, middle, upper + tall, left, upper + tall, "z",
    )  # fmt: skip


def _box_label(column: int, words: str, numbers: str, y: float, place: float, thick: float, is_wide: bool) -> Markup:
    before, after = place - 8, place + thick + 8
    if is_wide:
        x, anchor, longest = ((before, "end", 24), (after, "", 30), (after, "", 24))[column]
    else:
        x, anchor, longest = ((after - 4, "", 13), (place + thick / 2, "mid", 13), (before + 4, "end", 14))[column]
    return element(
        "g",
        element("text", clip_middle(words, longest), x=x, y=y - 2, class_=f"halo strong {anchor}".strip()),
        element("text", numbers, x=x, y=y + 13, class_=f"halo soft {anchor}".strip()),
    )


def clip_middle(name: str, longest: int) -> str:
    """Shorten a name in the middle: names of brokers differ at their end."""
    kept = longest // 3
    return name if len(name) <= longest else f"{name[: longest - kept - 1]}…{name[-kept:]}"
