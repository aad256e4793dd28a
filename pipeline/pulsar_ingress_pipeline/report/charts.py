"""Charts as SVG: bars, and over time the hit ratio and latency. What they say in words is left to templates."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsar_ingress_pipeline.report.formats import clean, clip, clock, compact, duration, order, percent, shown
from pulsar_ingress_pipeline.report.records import Bins, Hits, Latency, Name
from pulsar_ingress_pipeline.report.scales import Linear, Logarithmic, series, step_of, ticks, time_ticks

NO_INGRESS = "no ingress"
WIDE, NARROW = 1040.0, 350.0
BOUNDS = (1e-9, 1, 2, 5, 10, 25)
"""Shares of misses, in percent, at which a cell of the heat map is a shade darker."""
_RATIO, _VOLUME, _LINES, _BETWEEN = 150.0, 80.0, 150.0, 22.0
_ROW, _GAP, _LABEL = 20.0, 3.0, 16.0
_DOT = 2.5
_SHADES = 7


@dataclass(frozen=True, slots=True)
class Drawing:
    """What stands in an SVG of this size."""

    body: Markup
    width: float
    height: float


def drawings(draw: Callable[[float], Drawing], widths: tuple[float, float] = (WIDE, NARROW)) -> tuple[Drawing, Drawing]:
    """A chart for wide pages, and for narrow ones."""
    return draw(widths[0]), draw(widths[1])


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element of SVG. What is not `Markup` is text, and is escaped; None is left out."""
    head = Markup("").join(
        Markup(' {}="{}"').format(key.removesuffix("_"), clean(value) if isinstance(value, str) else number(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(clean(child) for child in children if child is not None)
    return Markup("<{0}{1}>{2}</{0}>").format(name, head, inner)


def number(value: float) -> str:
    """A coordinate, as short as it is exact enough."""
    return f"{round(value, 1) + 0.0:.7g}"


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[tuple[float, str], ...]
    """Amounts and the class of their colour, from the left."""
    note: str = ""
    """What stands behind the number."""

    @property
    def amount(self) -> float:
        return sum(amount for amount, _ in self.parts)


def bar_chart(bars: Sequence[Bar], width: float, names: float = 0.34) -> Drawing:
    """`names` is the share of a wide page that names take; on a narrow one they stand above their bars."""
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


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of time between `left` and `right`."""

    columns: Bins
    left: float
    right: float

    @classmethod
    def within(cls, columns: Bins, width: float) -> "Timeline":
        """Room for names on the left, if there is any to spare."""
        return cls(columns, 150.0 if width > 600 else 44.0, width - (14.0 if width > 600 else 2.0))

    @property
    def is_wide(self) -> bool:
        return self.right > 600

    def x(self, place: float) -> float:
        return Linear(0, self.columns.count, self.left, self.right)(place)

    def axis(self, top: float, bottom: float) -> Markup:
        """Times below `bottom`, and a line up to `top` at each."""
        marks = []
        for place, label in time_ticks(self.columns, 9 if self.is_wide else 4):
            x = self.x(place)
            marks.append(element("path", d=f"M{number(x)} {number(top)}V{number(bottom)}", class_="grid"))
            anchor = "end" if x > self.right - 20 else "mid"
            marks.append(element("text", label, x=x, y=bottom + 16, class_=f"soft {anchor}"))
        return element("g", *marks)

    def since(self, place: float, top: float, bottom: float) -> Markup:
        """Where the report before this one ended."""
        x = number(self.x(place))
        title = element("title", "the report before this one")
        return element("path", title, d=f"M{x} {number(top)}V{number(bottom)}", class_="since")

    def columns_to_read(self, top: float, bottom: float, words: Callable[[int], str | None]) -> Markup:
        """What a pointer shows; those who read a narrow page have none."""
        if not self.is_wide:
            return Markup()
        width = self.x(1) - self.x(0)
        marks = []
        for place in self.columns:
            said = words(place)
            if said is not None:
                title = element("title", f"{clock(self.columns.time(place))}\n{said}")
                marks.append(element("rect", title, x=self.x(place), y=top, width=width, height=bottom - top))
        return element("g", *marks, class_="columns")

    def line(self, values: Mapping[int, float], y: Callable[[float], float], style: str) -> Markup:
        """A line through the middles of columns, with a gap where there is nothing; a dot where both sides have one."""
        path, dots = "", []
        for place in sorted(values):
            x, y_ = self.x(place + 0.5), y(values[place])
            if place - 1 not in values and place + 1 not in values:
                dots.append(element("circle", cx=x, cy=y_, r=_DOT, class_=f"dot {style}"))
            else:
                path += f"{'L' if place - 1 in values else 'M'}{number(x)} {number(y_)}"
        return element("g", element("path", d=path, class_=f"line {style}") if path else None, *dots)

    def stack(
        self, values: Sequence[Mapping[int, float]], y: Callable[[float], float], styles: Sequence[str]
    ) -> Markup:
        """Bars on one another, the first at the bottom."""
        width = self.x(1) - self.x(0)
        slim = max(width - 1, width * 0.8)
        feet: dict[int, float] = defaultdict(float)
        paths = []
        for layer, style in zip(values, styles, strict=True):
            path = ""
            for place, value in sorted(layer.items()):
                if value > 0:
                    foot, head = y(feet[place]), y(feet[place] + value)
                    tall = max(foot - head, 0.8)
                    path += (
                        f"M{number(self.x(place))} {number(foot - tall)}h{number(slim)}v{number(tall)}h-{number(slim)}z"
                    )
                    feet[place] += value
            paths.append(element("path", d=path, class_=style))
        return element("g", *paths)

    def cells(self, rows: Sequence[Name], classes: Iterable[tuple[int, Name, str]], top: float, nobody: str) -> Markup:
        """A row a name, a cell a column, in the colour of its class: one path for all of a colour."""
        width = self.x(1) - self.x(0)
        slim = max(width - 0.6, width * 0.85)
        above = 0.0 if self.is_wide else _LABEL  # a narrow page has no room for names but between the rows
        at = {name: top + above + place * (_ROW + _GAP + above) for place, name in enumerate(rows)}
        paths: dict[str, list[str]] = defaultdict(list)
        for place, name, style in classes:
            paths[style].append(
                f"M{number(self.x(place))} {number(at[name])}h{number(slim)}v{number(_ROW)}h-{number(slim)}z"
            )
        return element(
            "g",
            *(
                element("rect", x=self.left, y=y, width=self.right - self.left, height=_ROW, class_="track")
                for y in at.values()
            ),
            *(element("path", d="".join(parts), class_=style) for style, parts in sorted(paths.items())),
            *(self._row_label(shown(name, nobody), y) for name, y in at.items()),
        )

    def _row_label(self, name: str, y: float) -> Markup:
        if self.is_wide:
            return element("text", element("title", name), clip(name, 20), x=self.left - 8, y=y + 14.5, class_="end")
        return element("text", clip(name, 44), x=self.left, y=y - 4)

    def rows_height(self, rows: Sequence[Name]) -> float:
        return len(rows) * (_ROW + _GAP + (0.0 if self.is_wide else _LABEL))


def hits_chart(columns: Bins, hits: Sequence[Hits], width: float, since: float | None) -> Drawing:
    """Three in one, on the same columns: the ratio as a line, lookups as bars, a row of cells for each ingress."""
    time = Timeline.within(columns, width)
    sums = totals(hits)
    ratios = {place: 100 * found / (found + missed) for place, (found, missed) in sums.items() if found + missed}
    floor = ratio_floor(min(ratios.values(), default=0.0))
    ratio = Linear(floor, 100, 10 + _RATIO, 10)
    base = 10 + _RATIO + _BETWEEN + _VOLUME
    most = max((found + missed for found, missed in sums.values()), default=1)
    volume = Linear(0, most, base, base - _VOLUME)
    rows = ingresses(hits)
    top = base + 30
    bottom = top + time.rows_height(rows)
    cells = [(cell.place, cell.ingress, _shade(cell, sums[cell.place])) for cell in hits if cell.hits + cell.misses]
    by_place: dict[int, list[Hits]] = defaultdict(list)
    for cell in hits:
        by_place[cell.place].append(cell)
    body = [
        time.axis(10, bottom),
        *scale_marks(time, ratio, ticks(floor, 100, 4), lambda value: f"{value:g} %"),
        *scale_marks(time, volume, ticks(0, most, 2), compact),
        time.stack([{place: of[part] for place, of in sums.items()} for part in (0, 1)], volume, ("hit", "miss")),
        time.line(ratios, ratio, "l0"),
        element("text", "hit ratio" if time.is_wide else "", x=0, y=22, class_="strong"),
        element("text", "lookups" if time.is_wide else "", x=0, y=base - _VOLUME + 12, class_="strong"),
        element("text", "misses by ingress", x=0 if time.is_wide else time.left, y=top - 10, class_="strong"),
        time.cells(rows, cells, top, NO_INGRESS),
        *([] if since is None else [time.since(since, 10, bottom)]),
        time.columns_to_read(10, bottom, lambda place: _hits_text(sums.get(place), by_place[place], rows)),
    ]
    return Drawing(element("g", *body), width, bottom + 22)


def totals(hits: Sequence[Hits]) -> dict[int, tuple[int, int]]:
    """Hits and misses of each column."""
    sums: dict[int, tuple[int, int]] = {}
    for cell in hits:
        found, missed = sums.get(cell.place, (0, 0))
        sums[cell.place] = found + cell.hits, missed + cell.misses
    return sums


def busiest(amounts: Iterable[tuple[Name, int]]) -> list[Name]:
    """Each name once, the one with most first."""
    sums: dict[Name, int] = defaultdict(int)
    for name, amount in amounts:
        sums[name] += amount
    return sorted(sums, key=lambda name: order(name, sums[name]))


def ingresses(hits: Sequence[Hits]) -> list[Name]:
    """The rows of the heat map."""
    return busiest((cell.ingress, cell.hits + cell.misses) for cell in hits)


def ratio_floor(least: float) -> float:
    """Where the axis begins: low enough for all, and no lower, so that a fall by a percent is seen."""
    room = max(100 - least, 1.0)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step >= room / 2)
    return max(0.0, 100 - step * math.ceil(room / step))


def scale_marks(
    time: Timeline, scale: Callable[[float], float], values: Sequence[float], words: Callable[[float], str]
) -> list[Markup]:
    marks = []
    for value in values:
        y = scale(value)
        marks.append(element("path", d=f"M{number(time.left)} {number(y)}H{number(time.right)}", class_="grid"))
        marks.append(element("text", words(value), x=time.left - 6, y=y + 4, class_="soft end"))
    return marks


def _shade(cell: Hits, whole: tuple[int, int]) -> str:
    """By the misses' share of what came through the ingress; of all lookups where no ingress has them."""
    lookups = sum(whole) if cell.ingress is None else cell.hits + cell.misses
    return f"m{step_of(100 * cell.misses / lookups, BOUNDS)}"


def _hits_text(sums: tuple[int, int] | None, cells: Sequence[Hits], rows: Sequence[Name]) -> str | None:
    if sums is None:
        return None
    found, missed = sums
    lines = [f"{found + missed:,} lookups, {percent(found, found + missed)} hits"]
    missing = sorted((cell for cell in cells if cell.misses), key=lambda cell: rows.index(cell.ingress))
    lines += [f"{shown(cell.ingress, NO_INGRESS)}: {cell.misses:,} misses" for cell in missing]
    return "\n".join(lines)


def latency_chart(
    columns: Bins, overall: Sequence[Latency], by_ingress: Sequence[Latency], width: float, since: float | None
) -> Drawing:
    """Lines for all lookups, and below them a row of cells for each ingress."""
    time = Timeline.within(columns, width)
    low = min((cell.p50 for cell in overall), default=1.0)
    marks = series(low, max((cell.p99 for cell in overall), default=1.0))
    scale = Logarithmic(marks[0], marks[-1], 10 + _LINES, 10)
    rows = busiest((cell.ingress, cell.requests) for cell in by_ingress)
    bounds = shades(by_ingress)
    top = 10 + _LINES + 36
    bottom = top + time.rows_height(rows)
    by_place: dict[int, list[Latency]] = defaultdict(list)
    for cell in by_ingress:
        by_place[cell.place].append(cell)
    whole = {cell.place: cell for cell in overall}

    def read(place: int) -> str | None:
        cell = whole.get(place)
        if cell is None:
            return None
        lines = [f"p50 {duration(cell.p50)}, p95 {duration(cell.p95)}, p99 {duration(cell.p99)}"]
        parts = sorted(by_place[place], key=lambda part: rows.index(part.ingress))
        lines += [f"{shown(part.ingress, NO_INGRESS)}: worst p95 {duration(part.worst)}" for part in parts]
        return "\n".join(lines)

    cells = ((cell.place, cell.ingress, f"h{step_of(cell.worst, bounds)}") for cell in by_ingress)
    body = [
        time.axis(10, bottom),
        *scale_marks(time, scale, marks if len(marks) < 8 else marks[::3], duration),
        *(
            time.line({cell.place: getattr(cell, name) for cell in overall}, scale, f"l{place}")
            for place, name in enumerate(("p50", "p95", "p99"))
        ),
        element("text", "all lookups" if time.is_wide else "", x=0, y=22, class_="strong"),
        element("text", "worst p95 by ingress", x=0 if time.is_wide else time.left, y=top - 10, class_="strong"),
        time.cells(rows, cells, top, NO_INGRESS),
        *([] if since is None else [time.since(since, 10, bottom)]),
        time.columns_to_read(10, bottom, read),
    ]
    return Drawing(element("g", *body), width, bottom + 22)


def shades(cells: Sequence[Latency]) -> list[float]:
    """Milliseconds at which a cell is a shade darker: 1, 2, 5, 10 … as many as there are shades, the upper ones."""
    values = [cell.worst for cell in cells]
    if not values:
        return []
    return series(min(values), max(values))[1:-1][1 - _SHADES :]
