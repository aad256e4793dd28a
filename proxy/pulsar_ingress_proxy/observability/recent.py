"""The most recent decisions, kept in memory for the console.

Rare sorts have their own rings, or a second of hits would push out the miss that an operator looks for.
"""

import secrets
from collections import deque
from collections.abc import Iterable
from heapq import merge
from itertools import takewhile
from typing import Literal, NamedTuple, get_args

from pulsar_ingress_proxy.memory import RECENT
from pulsar_ingress_proxy.observability.access_record import AccessRecord

Sort = Literal["leak", "failure", "miss", "redirect", "hit"]
"""What a decision may be, several at a time. It is in the ring of the first, or of the hits if it is none of these."""

SORTS: tuple[Sort, ...] = get_args(Sort)

ROOM = 500
"""Maximum number of decisions in each ring; RECENT limits their bytes."""


class Kept(NamedTuple):
    """A decision, numbered in the order of completion."""

    number: int
    sorts: tuple[Sort, ...]
    line: str
    """Its event."""


class Ring(deque[Kept]):
    """A ring buffer, bounded in number and bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._size = 0

    def add(self, kept: Kept) -> None:
        self.append(kept)
        self._size += len(kept[2])
        while len(self) > self._room or (self._size > RECENT and len(self) > 1):
            self._size -= len(self.popleft()[2])


class Recent:
    """Rings of recent decisions."""

    def __init__(self, room: int = ROOM) -> None:
        self._run = secrets.token_hex(4)
        self.newest = 0
        """The number of the latest decision."""
        self._rings = {sort: Ring(room) for sort in SORTS}
        self._made: dict[tuple[Sort, ...], int] = {}

    def add(self, line: str, sorts: tuple[Sort, ...]) -> None:
        self.newest += 1
        self._made[sorts] = self._made.get(sorts, 0) + 1
        self._rings[sorts[0] if sorts else "hit"].add(Kept(self.newest, sorts, line))

    def made(self, wanted: Iterable[Sort] = ()) -> int:
        """The number of decisions since the start, kept or not; only of the wanted sorts, if any are given."""
        only = frozenset(wanted)
        return sum(count for sorts, count in self._made.items() if not only or not only.isdisjoint(sorts))

    def after(self, number: int, wanted: Iterable[Sort] = ()) -> list[Kept]:
        """The decisions after that number, the newest first; only of the wanted sorts, if any are given."""
        only = frozenset(wanted)
        newer = (takewhile(lambda kept: kept.number > number, reversed(ring)) for ring in self._rings.values())
        every = merge(*newer, key=lambda kept: -kept.number)
        return [kept for kept in every if not only or not only.isdisjoint(kept.sorts)]

    def kept(self, wanted: Iterable[Sort] = ()) -> int:
        """The number of decisions in memory, as `made` counts them."""
        only = frozenset(wanted)
        return sum(not only or not only.isdisjoint(one.sorts) for ring in self._rings.values() for one in ring)

    def cursor(self, number: int) -> str:
        """An opaque cursor for a number, valid for this run of the sidecar."""
        return f"{self._run}-{number}"

    def number(self, cursor: str) -> int:
        """The number of a cursor; 0, before all, if it is not of this run."""
        run, _, number = cursor.partition("-")
        is_ours = run == self._run and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if is_ours else 0


def sorts_of(record: AccessRecord) -> tuple[Sort, ...]:
    """In the order of SORTS."""
    found: list[Sort] = []
    is_decided = record.target.kind == "lookup" and record.selection is not None
    if record.leak is not None:
        found.append("leak")
    if 500 <= record.status <= 599:
        found.append("failure")
    if is_decided and record.miss_reason is not None:
        found.append("miss")
    if record.redirects:
        found.append("redirect")
    if is_decided and record.miss_reason is None:
        found.append("hit")
    return tuple(found)
