"""The hit ratio over time: of all, in numbers, and by ingress."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from pulsar_ingress_pipeline.report.figures import Drawing
from pulsar_ingress_pipeline.report.marks import Markup, number, tag
from pulsar_ingress_pipeline.report.names import order, shown
from pulsar_ingress_pipeline.report.records import Bins, Hits, Name
from pulsar_ingress_pipeline.report.scales import Linear, compact, percent, step_of, ticks
from pulsar_ingress_pipeline.report.timeline import Timeline

NOBODY = "no ingress"
BOUNDS = (1e-9, 1, 2, 5, 10, 25)
"""Shares of misses, in percent, at which a cell of the heat map is a shade darker."""
_RATIO, _VOLUME, _BETWEEN = 150.0, 80.0, 22.0


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
    cells = [(cell.place, cell.ingress, _class(cell, sums[cell.place])) for cell in hits if cell.hits + cell.misses]
    by_place: dict[int, list[Hits]] = defaultdict(list)
    for cell in hits:
        by_place[cell.place].append(cell)
    body = [
        time.axis(10, bottom),
        *scale_marks(time, ratio, ticks(floor, 100, 4), lambda value: f"{value:g} %"),
        *scale_marks(time, volume, ticks(0, most, 2), compact),
        time.stack(
            (
                {place: found for place, (found, _) in sums.items()},
                {place: missed for place, (_, missed) in sums.items()},
            ),
            volume,
            ("hit", "miss"),
        ),
        time.line(ratios, ratio, "l0"),
        tag("text", "hit ratio" if time.is_wide else "", x=0, y=22, class_="strong"),
        tag("text", "lookups" if time.is_wide else "", x=0, y=base - _VOLUME + 12, class_="strong"),
        tag("text", "misses by ingress", x=0 if time.is_wide else time.left, y=top - 10, class_="strong"),
        time.cells(rows, cells, top, NOBODY),
        *([] if since is None else [time.since(since, 10, bottom)]),
        time.columns_to_read(10, bottom, lambda place: _read(sums.get(place), by_place[place], rows)),
    ]
    return Drawing(tag("g", *body), width, bottom + 22)


def totals(hits: Sequence[Hits]) -> dict[int, tuple[int, int]]:
    """Hits and misses of each column."""
    sums: dict[int, tuple[int, int]] = {}
    for cell in hits:
        found, missed = sums.get(cell.place, (0, 0))
        sums[cell.place] = found + cell.hits, missed + cell.misses
    return sums


def ingresses(hits: Sequence[Hits]) -> list[Name]:
    """The rows of the heat map, the busiest first."""
    sums: dict[Name, int] = defaultdict(int)
    for cell in hits:
        sums[cell.ingress] += cell.hits + cell.misses
    return sorted(sums, key=lambda name: order(name, sums[name]))


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
        marks.append(tag("path", d=f"M{number(time.left)} {number(y)}H{number(time.right)}", class_="grid"))
        marks.append(tag("text", words(value), x=time.left - 6, y=y + 4, class_="soft end"))
    return marks


def _class(cell: Hits, whole: tuple[int, int]) -> str:
    """By the misses' share of what came through the ingress; of all lookups where no ingress has them."""
    lookups = sum(whole) if cell.ingress is None else cell.hits + cell.misses
    return f"m{step_of(100 * cell.misses / lookups, BOUNDS)}"


def _read(sums: tuple[int, int] | None, cells: Sequence[Hits], rows: Sequence[Name]) -> str | None:
    if sums is None:
        return None
    found, missed = sums
    lines = [f"{found + missed:,} lookups, {percent(found, found + missed)} hits"]
    missing = sorted((cell for cell in cells if cell.misses), key=lambda cell: rows.index(cell.ingress))
    lines += [f"{shown(cell.ingress, NOBODY)}: {cell.misses:,} misses" for cell in missing]
    return "\n".join(lines)
