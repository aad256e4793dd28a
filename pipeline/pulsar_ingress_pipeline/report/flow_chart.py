"""The chart of flows from ingress to listener to broker, with bands as wide as their number of lookups."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pulsar_ingress_pipeline.report.charts import Drawing, busiest, element, path
from pulsar_ingress_pipeline.report.formats import clip_middle, common_tail, compact, percent, shown
from pulsar_ingress_pipeline.report.records import Flow, Name, Others

NOBODY = ("no ingress", "no listener", "no broker")
_HEADS = ("ingress", "listener", "broker")
_COLOURS = 6
_ROOM = 34.0
"""Height of a label of two lines."""
_HEAD = 24.0

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
    boxes, placed = lay_out(stages, bands, height, _ROOM)
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
        title = element("title", f"{_named(band)}: {bands[band]:,} {'hits' if band.is_hit else 'misses'}")
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
            labels.append(_label(column, words, numbers, box.top + box.height / 2, x, thick, is_wide))
        body += labels
    return Drawing(element("g", *body, transform=f"translate(0 {_HEAD:g})"), width, height + _HEAD)


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


def _named(band: Band) -> str:
    return " → ".join(shown(end, NOBODY[column]) for column, end in enumerate((band.source, band.target), band.column))


def _edges(left: float, right: float, upper: float, lower: float, tall: float) -> str:
    middle = (left + right) / 2
    return path(
        "M", left, upper, "C", middle, upper, middle, lower, right, lower,
        "v", tall, "C", middle, lower + tall, middle, upper + tall, left, upper + tall, "z",
    )  # fmt: skip


def _label(column: int, words: str, numbers: str, y: float, place: float, thick: float, is_wide: bool) -> Markup:
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
