"""A dashboard as a picture, in its own layout and by its own words on looks; light, to be read on paper too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from dashboards.answers import Series, Window
from dashboards.formats import shown, ticks

COLUMNS, WIDTH, UNIT, GAP, HEAD = 24, 1560, 28, 8, 64
PAD, LEGEND = 12, 17
INK, FAINT, GRID, PAPER, EDGE, PAGE = "#24292e", "#6b7280", "#e9ebee", "#ffffff", "#dfe3e8", "#f4f5f7"
FILLS = {
    "green": "#56a64b", "light-green": "#96d98d", "orange": "#ff9830", "red": "#e02f44", "blue": "#3274d9",
}  # fmt: skip
INKS = {"green": "#2a7a2e", "orange": "#c45a00", "red": "#c4162a", "blue": "#1f5fc4"}
"""Colours of text, which want to be darker."""
PALETTE = ("#3274d9", "#e0b400", "#8f3bb8", "#37a2a8", "#ff780a", "#a352cc", "#56a64b", "#c4162a", "#806eb7", "#b5651d")

Panel = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    w: float
    h: float


@dataclass(slots=True)
class Line:
    """One series of a plot, as it is drawn."""

    series: Series
    colour: str
    base: dict[float, float]
    """What it stands on, by time; empty where nothing is stacked."""


def picture(board: Mapping[str, Any], answers: Mapping[int, Sequence[Series]], window: Window) -> str:
    """The SVG of a dashboard, given what each panel's queries were answered with, by the panel's id."""
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = HEAD + bottom * UNIT + GAP
    when = f"{_clock(window.start, window)} to {_clock(window.end, window)} UTC"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Inter, Helvetica Neue, Arial, DejaVu Sans, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAGE}"/>',
        _text(GAP * 2, 40, board["title"], size=22, weight=600),
        _text(WIDTH - GAP * 2, 40, when, INK, "end", 14),
    ]
    for panel in board["panels"]:
        parts += _panel(panel, answers.get(panel["id"], ()), window)
    return "\n".join([*parts, "</svg>\n"])


def place(panel: Panel) -> Box:
    at, column = panel["gridPos"], (WIDTH - GAP) / COLUMNS
    x, y = GAP + at["x"] * column, HEAD + at["y"] * UNIT
    return Box(round(x, 1), y, round(at["w"] * column - GAP, 1), at["h"] * UNIT - GAP)


def _panel(panel: Panel, found: Sequence[Series], window: Window) -> Iterator[str]:
    box = place(panel)
    if panel["type"] == "row":
        yield _text(box.x + 4, box.y + 15, panel["title"], size=15, weight=600)
        return
    yield f'<g><rect x="{box.x}" y="{box.y}" width="{box.w}" height="{box.h}" rx="3" fill="{PAPER}" stroke="{EDGE}"/>'
    yield _text(box.x + PAD, box.y + 20, panel["title"], size=13, weight=600)
    inner = Box(box.x + PAD, box.y + 30, box.w - 2 * PAD, box.h - 38)
    if panel["type"] == "stat":
        yield _stat(panel, found, box)
    elif not found:
        yield _text(box.x + box.w / 2, box.y + box.h / 2 + 8, "No data", FAINT, "middle", 14)
    elif panel["type"] == "table":
        yield from _table(panel, found, inner)
    elif panel["type"] == "state-timeline":
        yield from _states(panel, found, inner, window)
    else:
        yield from _plot(panel, found, inner, window)
    yield "</g>"


# One number.


def _stat(panel: Panel, found: Sequence[Series], box: Box) -> str:
    look, colour = panel["fieldConfig"]["defaults"], INK
    if not found:
        words = look.get("noValue", "–")
    else:
        value = found[0].last
        words = found[0].name or shown(value, look["unit"], look.get("decimals"))
        mapped = _mapped(look.get("mappings", ()), value)
        if mapped is not None:
            words, colour = mapped
        elif panel["options"]["colorMode"] != "none":
            colour = _judged(look["thresholds"]["steps"], value)
    size = 30 if len(words) < 10 else 22
    return _text(box.x + box.w / 2, box.y + 72, words, INKS.get(colour, colour), "middle", size, 600)


def _judged(steps: Sequence[Mapping[str, Any]], value: float) -> str:
    return str([step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1])


def _mapped(mappings: Sequence[Mapping[str, Any]], value: float) -> tuple[str, str] | None:
    """The words and the colour that stand for a value."""
    for mapping in mappings:
        if (said := mapping["options"].get(f"{value:g}")) is not None:
            return said["text"], said["color"]
    return None


# Numbers over time.


def _plot(panel: Panel, found: Sequence[Series], box: Box, window: Window) -> Iterator[str]:
    look = panel["fieldConfig"]["defaults"]
    custom = look.get("custom", {})
    is_stacked, is_bars = "stacking" in custom, custom.get("drawStyle") == "bars"
    lines = _coloured(panel, found, is_stacked)
    rows = min(len(lines), 4)
    area = Box(box.x + 52, box.y + 4, box.w - 60, box.h - 24 - LEGEND * rows)
    top = max(line.base.get(at, 0) + value for line in lines for at, value in line.series.samples)
    marks = ticks(min(top, look["max"]) if "max" in look else top)
    scale = marks[-1]

    def x(at: float) -> float:
        return area.x + (at - window.start) / (window.end - window.start) * area.w

    def y(value: float) -> float:
        return area.y + area.h * (1 - value / scale)

    for mark in marks:
        yield _rule(area, y(mark), GRID)
        yield _text(area.x - 6, y(mark) + 4, shown(mark, look["unit"]), FAINT, "end", 11)
    for share in (0.12, 0.4, 0.68):
        at = window.start + (window.end - window.start) * share
        yield _text(x(at), area.y + area.h + 15, _clock(at, window), FAINT, "middle", 11)
    if custom.get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in look["thresholds"]["steps"]:
            if step["value"] is not None and step["value"] <= scale:
                yield _rule(area, y(step["value"]), FILLS[step["color"]], "5 4")
    for line in lines:
        if is_bars:
            yield from _bars(line, x, y, max(1.5, area.w * window.step / (window.end - window.start) - 0.5))
        else:
            yield from _area(line, x, y, custom.get("fillOpacity", 0) / 100, window.step)
    yield from _legend(lines, Box(box.x, area.y + area.h + 15, box.w, LEGEND * rows), look["unit"])


def _coloured(panel: Panel, found: Sequence[Series], is_stacked: bool) -> list[Line]:
    fixed = {
        each["matcher"]["options"]: prop["value"]["fixedColor"]
        for each in panel["fieldConfig"]["overrides"]
        for prop in each["properties"]
        if prop["id"] == "color"
    }
    free = iter(PALETTE * len(found))
    lines: list[Line] = []
    pile: dict[float, float] = {}
    for series in found:
        colour = FILLS[fixed[series.name]] if series.name in fixed else next(free)
        lines.append(Line(series, colour, dict(pile) if is_stacked else {}))
        if is_stacked:
            for at, value in series.samples:
                pile[at] = pile.get(at, 0) + value
    return lines


def _area(line: Line, x: Any, y: Any, opacity: float, step: float) -> Iterator[str]:
    """A line over what is below it, in as many pieces as there are gaps."""
    for piece in _pieces(line.series, step):
        over = [f"{x(at):.1f},{y(line.base.get(at, 0) + value):.1f}" for at, value in piece]
        under = [f"{x(at):.1f},{y(line.base.get(at, 0)):.1f}" for at, _ in reversed(piece)]
        yield f'<polygon points="{" ".join(over + under)}" fill="{line.colour}" fill-opacity="{opacity:g}"/>'
        yield f'<polyline points="{" ".join(over)}" fill="none" stroke="{line.colour}" stroke-width="1.5"/>'


def _pieces(series: Series, step: float) -> Iterator[list[tuple[float, float]]]:
    piece: list[tuple[float, float]] = []
    for sample in series.samples:
        if piece and sample[0] - piece[-1][0] > 1.5 * step:
            yield piece
            piece = []
        piece.append(sample)
    yield piece


def _bars(line: Line, x: Any, y: Any, width: float) -> Iterator[str]:
    for at, value in line.series.samples:
        if value > 0:
            low, high = y(line.base.get(at, 0)), y(line.base.get(at, 0) + value)
            yield (
                f'<rect x="{x(at) - width / 2:.1f}" y="{high:.1f}" width="{width:.1f}" height="{low - high:.1f}" '
                f'fill="{line.colour}" fill-opacity="0.85"/>'
            )


def _legend(lines: Sequence[Line], box: Box, unit: str) -> Iterator[str]:
    """Name, mean and most of each, as many as there is room for."""
    right = box.x + box.w
    yield _text(right - 76, box.y, "Mean", FAINT, "end", 11)
    yield _text(right, box.y, "Max", FAINT, "end", 11)
    ordered, room = sorted(lines, key=lambda line: -_mean(line.series)), int(box.h // LEGEND)
    for number, line in enumerate(ordered[:room]):
        at = box.y + LEGEND * (number + 1)
        if number == room - 1 and len(ordered) > room:
            yield _text(box.x + 18, at, f"and {len(ordered) - number} more", FAINT, size=12)
            return
        yield f'<rect x="{box.x}" y="{at - 5}" width="12" height="3" fill="{line.colour}"/>'
        yield _text(box.x + 18, at, line.series.name, size=12)
        yield _text(right - 76, at, shown(_mean(line.series), unit), anchor="end", size=12)
        yield _text(right, at, shown(max(value for _, value in line.series.samples), unit), anchor="end", size=12)


def _mean(series: Series) -> float:
    return sum(value for _, value in series.samples) / len(series.samples)


def _states(panel: Panel, found: Sequence[Series], box: Box, window: Window) -> Iterator[str]:
    """A band for each, in the colours of its states."""
    height = min(34.0, box.h / len(found))
    area = Box(box.x + 110, box.y, box.w - 110, box.h)
    for number, series in enumerate(found):
        top = box.y + number * height
        yield _text(area.x - 8, top + height / 2 + 4, series.name, anchor="end", size=12)
        width = area.w * window.step / (window.end - window.start)
        for at, value in series.samples:
            mapped = _mapped(panel["fieldConfig"]["defaults"].get("mappings", ()), value)
            left = area.x + (at - window.start) / (window.end - window.start) * area.w - width
            yield (
                f'<rect x="{max(left, area.x):.1f}" y="{top + 3:.1f}" width="{width + 0.5:.1f}" '
                f'height="{height - 6:.1f}" fill="{FILLS[mapped[1]] if mapped else FAINT}"/>'
            )


# A table.


def _table(panel: Panel, found: Sequence[Series], box: Box) -> Iterator[str]:
    """A line for each set of labels, with what each query says of it."""
    arranged = panel["transformations"][1]["options"]
    names: Mapping[str, str] = arranged["renameByName"]
    fields = sorted(names, key=lambda field: arranged["indexByName"][field])
    words = {
        each["matcher"]["options"]: prop["value"]
        for each in panel["fieldConfig"]["overrides"]
        for prop in each["properties"]
        if prop["id"] == "mappings"
    }
    width = box.w / len(fields)
    for number, field in enumerate(fields):
        yield _text(box.x + number * width, box.y + 14, names[field], INKS["blue"], size=12, weight=600)
    for row, line in enumerate(_merged(found)):
        at = box.y + 40 + row * 24
        yield _rule(Box(box.x, 0, box.w, 0), at - 17, GRID)
        for number, field in enumerate(fields):
            value = line.get(field, "")
            mapped = _mapped(words.get(names[field], ()), value) if isinstance(value, float) else None
            said = mapped[0] if mapped else shown(value, "short") if isinstance(value, float) else value
            yield _text(box.x + number * width, at, said, INKS.get(mapped[1], INK) if mapped else INK, size=12)


def _merged(found: Sequence[Series]) -> list[dict[str, str | float]]:
    lines: dict[tuple[str | None, str | None], dict[str, str | float]] = {}
    for series in found:
        line = lines.setdefault((series.labels.get("job"), series.labels.get("instance")), {})
        line.update(series.labels)
        line[f"Value #{series.query}"] = series.last
    return [lines[key] for key in sorted(lines, key=str)]


def _rule(box: Box, y: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{box.x:.1f}" x2="{box.x + box.w:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"{dashed}/>'


def _text(
    x: float, y: float, words: str, colour: str = INK, anchor: str = "start", size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _clock(at: float, window: Window) -> str:
    """With seconds where minutes would be too few to tell times apart."""
    words = "%H:%M:%S" if window.end - window.start < 300 else "%H:%M"
    return datetime.fromtimestamp(at, UTC).strftime(words)
