"""How long lookups took: percentiles over time, and the worst by ingress."""

from collections import defaultdict
from collections.abc import Sequence

from pulsar_ingress_pipeline.report.figures import Drawing
from pulsar_ingress_pipeline.report.hits import NOBODY, scale_marks
from pulsar_ingress_pipeline.report.marks import tag
from pulsar_ingress_pipeline.report.names import order, shown
from pulsar_ingress_pipeline.report.records import Bins, Latency, Name
from pulsar_ingress_pipeline.report.scales import Logarithmic, duration, series, step_of
from pulsar_ingress_pipeline.report.timeline import Timeline

_LINES = 150.0
_SHADES = 7


def latency_chart(
    columns: Bins, overall: Sequence[Latency], by_ingress: Sequence[Latency], width: float, since: float | None
) -> Drawing:
    """Lines for all lookups, and below them a row of cells for each ingress."""
    time = Timeline.within(columns, width)
    low = min((cell.p50 for cell in overall), default=1.0)
    marks = series(low, max((cell.p99 for cell in overall), default=1.0))
    scale = Logarithmic(marks[0], marks[-1], 10 + _LINES, 10)
    rows = _rows(by_ingress)
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
        lines += [f"{shown(part.ingress, NOBODY)}: worst p95 {duration(part.worst)}" for part in parts]
        return "\n".join(lines)

    body = [
        time.axis(10, bottom),
        *scale_marks(time, scale, marks if len(marks) < 8 else marks[::3], duration),
        *(
            time.line({cell.place: getattr(cell, name) for cell in overall}, scale, f"l{place}")
            for place, name in enumerate(("p50", "p95", "p99"))
        ),
        tag("text", "all lookups" if time.is_wide else "", x=0, y=22, class_="strong"),
        tag("text", "worst p95 by ingress", x=0 if time.is_wide else time.left, y=top - 10, class_="strong"),
        time.cells(
            rows, ((cell.place, cell.ingress, f"h{step_of(cell.worst, bounds)}") for cell in by_ingress), top, NOBODY
        ),
        *([] if since is None else [time.since(since, 10, bottom)]),
        time.columns_to_read(10, bottom, read),
    ]
    return Drawing(tag("g", *body), width, bottom + 22)


def shades(cells: Sequence[Latency]) -> list[float]:
    """Milliseconds at which a cell is a shade darker: 1, 2, 5, 10 … as many as there are shades, the upper ones."""
    values = [cell.worst for cell in cells]
    if not values:
        return []
    return series(min(values), max(values))[1:-1][1 - _SHADES :]


def _rows(cells: Sequence[Latency]) -> list[Name]:
    sums: dict[Name, int] = defaultdict(int)
    for cell in cells:
        sums[cell.ingress] += cell.requests
    return sorted(sums, key=lambda name: order(name, sums[name]))
