"""The newest decisions, kept in memory for whoever looks at the console.

A record is put into a ring as it is, and put into words only when somebody asks. What is rare has rings of its own, or
a second of hits would wash away the miss that an operator is after.
"""

import secrets
from collections import deque
from collections.abc import Iterable
from heapq import merge
from itertools import takewhile
from typing import Literal, NamedTuple, get_args

from proxy.observe.records import Brief, Record

Sort = Literal["leak", "miss", "redirect"]
"""What is worth a ring of its own, the rarest first."""

SORTS: tuple[Sort, ...] = get_args(Sort)

ROOM = 500
"""Decisions in each ring: some 3 MB in all."""


class Kept(NamedTuple):
    """A decision, numbered in the order in which they ended."""

    number: int
    sorts: tuple[Sort, ...]
    record: Record | Brief


class Recent:
    """Rings of decisions. To add one is an append."""

    def __init__(self, room: int = ROOM) -> None:
        self._run = secrets.token_hex(4)
        self.newest = 0
        """The number of the last that was added."""
        self._plain: deque[tuple[int, tuple[Sort, ...], Record | Brief]] = deque(maxlen=room)
        self._rings = {sort: self._plain.copy() for sort in SORTS}

    def add(self, record: Record | Brief, sorts: tuple[Sort, ...]) -> None:
        number = self.newest = self.newest + 1
        (self._rings[sorts[0]] if sorts else self._plain).append((number, sorts, record))

    def after(self, number: int, wanted: Iterable[Sort] = ()) -> list[Kept]:
        """Those that came after that number, the newest first; of these sorts alone, where some are named."""
        only = frozenset(wanted)
        rings = (self._plain, *self._rings.values())
        newer = (takewhile(lambda kept: kept[0] > number, reversed(ring)) for ring in rings)
        every = merge(*newer, key=lambda kept: -kept[0])
        return [Kept(*kept) for kept in every if not only or not only.isdisjoint(kept[1])]

    def cursor(self, number: int) -> str:
        """A number as it is given out: it means nothing to another run of the sidecar."""
        return f"{self._run}-{number}"

    def number(self, cursor: str) -> int:
        """The number that a cursor stands for; 0, before all, where it is not of this run."""
        run, _, number = cursor.partition("-")
        is_ours = run == self._run and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if is_ours else 0


def sorts_of(record: Record) -> tuple[Sort, ...]:
    """What is remarkable about a decision."""
    found: list[Sort] = []
    if record.leak is not None:
        found.append("leak")
    if record.miss_reason is not None and record.target.kind == "lookup":
        found.append("miss")
    if record.redirects:
        found.append("redirect")
    return tuple(found)
