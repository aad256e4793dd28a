"""Where lookups go: from ingress to listener to broker, as bands as wide as their number."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsar_ingress_pipeline.report.charts import Drawing, busiest, element, number
from pulsar_ingress_pipeline.report.formats import clip_middle, common_tail, compact, percent, shown
from pulsar_ingress_pipeline.report.records import Flow, Name, Others

NOBODY = ("no ingress", "no listener", "no broker")
_HEADS = ("ingress", "listener", "broker")
_COLOURS = 6
_ROOM = 34.0
"""What two lines of a label take."""
_HEAD = 24.0

Stage = tuple[Name, ...]
"""The boxes of one column, from the top."""


@dataclass(frozen=True, slots=True)
class Band:
    """What flows from a box to one of the next column; `kind` tells bands between the same two apart."""

    column: int
    source: Name
    target: Name
    kind: str
    amount: float


@dataclass(frozen=True, slots=True)
class Box:
    top: float
    height: float
    amount: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A band with the places of its upper edge at both ends."""

    band: Band
    from_top: float
    to_top: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: tuple[Mapping[Name, Box], ...]
    """A column each."""
    bands: tuple[Drawn, ...]


def lay_out(
    stages: Sequence[Stage], bands: Sequence[Band], height: float, room: float, order: Callable[[Band], int]
) -> Layout:
    """Boxes as high as what flows through them, by one measure. A box has `room` for its label, however small it is.

    Bands of a box stand in the order of the boxes they lead to, so that they cross as little as they can;
    `order` puts kinds between the same two boxes in order.
    """
    amounts = [_amounts(column, stages, bands) for column in range(len(stages))]
    measure = min((_measure(list(column.values()), height, room) for column in amounts if column), default=0.0)
    boxes = tuple(_stack(stage, column, measure, height, room) for stage, column in zip(stages, amounts, strict=True))
    leaving: dict[tuple[int, Name], float] = {}
    entering: dict[tuple[int, Name], float] = {}
    for column, stack in enumerate(boxes):
        for name, box in stack.items():
            leaving[column, name] = entering[column, name] = box.top
    rank = [{name: place for place, name in enumerate(stage)} for stage in stages]

    def by_target(band: Band) -> tuple[int, int]:
        return rank[band.column + 1][band.target], order(band)

    def by_source(band: Band) -> tuple[int, int]:
        return rank[band.column][band.source], order(band)

    tops: dict[Band, float] = {}
    for band in sorted(bands, key=by_target):
        tops[band] = leaving[band.column, band.source]
        leaving[band.column, band.source] += band.amount * measure
    drawn = []
    for band in sorted(bands, key=by_source):
        place = (band.column + 1, band.target)
        drawn.append(Drawn(band, tops[band], entering[place], band.amount * measure))
        entering[place] += band.amount * measure
    return Layout(boxes, tuple(drawn))


def _amounts(column: int, stages: Sequence[Stage], bands: Sequence[Band]) -> dict[Name, float]:
    """What flows through each box: the larger of what enters and what leaves."""
    entering: dict[Name, float] = defaultdict(float)
    leaving: dict[Name, float] = defaultdict(float)
    for band in bands:
        if band.column == column:
            leaving[band.source] += band.amount
        elif band.column == column - 1:
            entering[band.target] += band.amount
    return {name: max(entering[name], leaving[name]) for name in stages[column]}


def _measure(amounts: list[float], height: float, room: float) -> float:
    """The most that a unit may take, so that all boxes and the room of small ones fit."""
    low, high = 0.0, height / max(sum(amounts), 1e-9)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(max(amount * middle + room / 3, room) for amount in amounts) <= height:
            low = middle
        else:
            high = middle
    return low


def _stack(stage: Stage, amounts: Mapping[Name, float], measure: float, height: float, room: float) -> dict[Name, Box]:
    slots = [max(amounts[name] * measure + room / 3, room) for name in stage]
    spare = (height - sum(slots)) / (len(slots) + 1)
    boxes: dict[Name, Box] = {}
    top = spare
    for name, slot in zip(stage, slots, strict=True):
        tall = amounts[name] * measure
        boxes[name] = Box(top + (slot - tall) / 2, tall, amounts[name])
        top += slot + spare
    return boxes


def flow_chart(flows: Sequence[Flow], width: float) -> Drawing:
    """On a wide page labels stand beside the boxes, on a narrow one over the bands."""
    stages = tuple(tuple(busiest((ends(flow)[column], flow.lookups) for flow in flows)) for column in range(3))
    height = max(280.0, max(len(stage) for stage in stages) * 44.0)
    layout = lay_out(stages, _bands(flows), height, _ROOM, lambda band: band.kind != "hit")
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
    body += [_band(drawn, places, thick, colours) for drawn in layout.bands]
    for column, stage in enumerate(stages):
        for name in stage:
            box = layout.boxes[column][name]
            colour = "miss" if name is None and column < 2 else colours[name] if column == 1 else "rest"
            share = f"{compact(box.amount)} · {percent(box.amount, total)}"
            title = element("title", f"{shown(name, NOBODY[column])}: {share}")
            tall = max(box.height, 1.5)
            body.append(
                element("rect", title, x=places[column], y=box.top, width=thick, height=tall, rx=2, class_=colour)
            )
        body += [
            _label(column, name, layout.boxes[column][name], places[column], thick, is_wide, total, tail)
            for name in stage
        ]
    return Drawing(element("g", *body, transform=f"translate(0 {_HEAD:g})"), width, height + _HEAD)


def ends(flow: Flow) -> tuple[Name, Name, Name]:
    return flow.ingress, flow.listener, flow.broker


def _bands(flows: Sequence[Flow]) -> list[Band]:
    sums: dict[tuple[int, Name, Name, str, Name], int] = defaultdict(int)
    for flow in flows:
        kind = "hit" if flow.is_hit else "miss"
        sums[0, flow.ingress, flow.listener, kind, None] += flow.lookups
        sums[1, flow.listener, flow.broker, kind, None] += flow.lookups
    return [Band(column, source, target, kind, amount) for (column, source, target, kind, _), amount in sums.items()]


def _colours(listeners: Sequence[Name]) -> Mapping[Name, str]:
    return {
        name: "rest" if isinstance(name, Others) or place >= _COLOURS else "miss" if name is None else f"s{place}"
        for place, name in enumerate(listeners)
    }


def _band(drawn: Drawn, places: Sequence[float], thick: float, colours: Mapping[Name, str]) -> Markup:
    band = drawn.band
    left, right = places[band.column] + thick, places[band.column + 1]
    middle, tall = (left + right) / 2, max(drawn.height, 0.8)
    upper, lower = drawn.from_top, drawn.to_top
    path = (
        f"M{number(left)} {number(upper)}C{number(middle)} {number(upper)} {number(middle)} {number(lower)} "
        f"{number(right)} {number(lower)}v{number(tall)}C{number(middle)} {number(lower + tall)} "
        f"{number(middle)} {number(upper + tall)} {number(left)} {number(upper + tall)}z"
    )
    listener = band.target if band.column == 0 else band.source
    colour = "miss" if band.kind == "miss" else colours[listener]
    names = [shown(end, NOBODY[column]) for column, end in enumerate((band.source, band.target), band.column)]
    title = f"{' → '.join(names)}: {band.amount:,.0f} {'hits' if band.kind == 'hit' else 'misses'}"
    return element("path", element("title", title), d=path, class_=f"band {colour}")


def _label(
    column: int, name: Name, box: Box, place: float, thick: float, is_wide: bool, total: int, tail: str
) -> Markup:
    words = shown(name, NOBODY[column])
    if column == 2 and isinstance(name, str) and tail:
        words = words.removesuffix(tail)
    before, after = place - 8, place + thick + 8
    if is_wide:
        x, anchor, longest = ((before, "end", 24), (after, "", 30), (after, "", 24))[column]
    else:
        x, anchor, longest = ((after - 4, "", 13), (place + thick / 2, "mid", 13), (before + 4, "end", 14))[column]
    y = box.top + box.height / 2
    numbers = compact(box.amount) if not is_wide else f"{compact(box.amount)} · {percent(box.amount, total)}"
    return element(
        "g",
        element("text", clip_middle(words, longest), x=x, y=y - 2, class_=f"halo strong {anchor}".strip()),
        element("text", numbers, x=x, y=y + 13, class_=f"halo soft {anchor}".strip()),
    )
