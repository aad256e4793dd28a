"""Where lookups go: from ingress to listener to broker, as bands as wide as their number."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pulsar_ingress_pipeline.report.figures import Drawing
from pulsar_ingress_pipeline.report.layout import Band, Box, Drawn, lay_out
from pulsar_ingress_pipeline.report.marks import Markup, number, tag
from pulsar_ingress_pipeline.report.names import clip_middle, common_tail, order, shown
from pulsar_ingress_pipeline.report.records import Flow, Name, Others
from pulsar_ingress_pipeline.report.scales import compact, percent

NOBODY = ("no ingress", "no listener", "no broker")
_HEADS = ("ingress", "listener", "broker")
_COLOURS = 6
_ROOM = 34.0
"""What two lines of a label take."""
_HEAD = 24.0


def flow_chart(flows: Sequence[Flow], width: float) -> Drawing:
    """On a wide page labels stand beside the boxes, on a narrow one over the bands."""
    stages = tuple(_stage((ends(flow)[column], flow.lookups) for flow in flows) for column in range(3))
    height = max(280.0, max(len(stage) for stage in stages) * 44.0)
    layout = lay_out(stages, _bands(flows), height, _ROOM, lambda band: band.kind != "hit")
    is_wide = width > 600
    margin, thick = (180.0, 14.0) if is_wide else (0.0, 8.0)
    places = (margin, (width - thick) / 2, width - margin - thick)
    colours = _colours(stages[1])
    tail = common_tail([name for name in stages[2] if isinstance(name, str)])
    total = sum(flow.lookups for flow in flows)
    body = [
        tag("text", head, x=x + thick * column / 2, y=-10, class_=f"soft {anchor}".strip())
        for column, (head, x, anchor) in enumerate(zip(_HEADS, places, ("", "mid", "end"), strict=True))
    ]
    body += [_band(drawn, places, thick, colours) for drawn in layout.bands]
    for column, stage in enumerate(stages):
        for name in stage:
            box = layout.boxes[column][name]
            colour = "miss" if name is None and column < 2 else colours[name] if column == 1 else "rest"
            share = f"{compact(box.amount)} · {percent(box.amount, total)}"
            title = tag("title", f"{shown(name, NOBODY[column])}: {share}")
            tall = max(box.height, 1.5)
            body.append(tag("rect", title, x=places[column], y=box.top, width=thick, height=tall, rx=2, class_=colour))
        body += [
            _label(column, name, layout.boxes[column][name], places[column], thick, is_wide, total, tail)
            for name in stage
        ]
    return Drawing(tag("g", *body, transform=f"translate(0 {_HEAD:g})"), width, height + _HEAD)


def ends(flow: Flow) -> tuple[Name, Name, Name]:
    return flow.ingress, flow.listener, flow.broker


def _stage(amounts: Iterable[tuple[Name, int]]) -> tuple[Name, ...]:
    sums: dict[Name, int] = defaultdict(int)
    for name, amount in amounts:
        sums[name] += amount
    return tuple(sorted(sums, key=lambda name: order(name, sums[name])))


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
    return tag("path", tag("title", title), d=path, class_=f"band {colour}")


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
    return tag(
        "g",
        tag("text", clip_middle(words, longest), x=x, y=y - 2, class_=f"halo strong {anchor}".strip()),
        tag("text", numbers, x=x, y=y + 13, class_=f"halo soft {anchor}".strip()),
    )
