"""Where the boxes and bands of a flow chart stand. No colours here, and no markup."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_ingress_pipeline.report.records import Name

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
