"""The newest decisions, kept in memory for whoever looks at the console.

A record is put into a ring as it is, and put into words only when somebody asks. What is rare has rings of its own, or
a second of hits would wash away the miss that an operator is after.
"""

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pulsar_ingress_proxy.memory import RECENT
from pulsar_ingress_proxy.observability.access_record import AccessRecord

if TYPE_CHECKING:
    from pulsar_ingress_proxy.observability.batches import Batch

Sort = Literal["leak", "miss", "redirect"]
"""What is worth a ring of its own, the rarest first."""

SORTS: tuple[Sort, ...] = get_args(Sort)

ROOM = 500
"""Decisions in each ring, if they are not too large for that."""


class Kept(NamedTuple):
    """A decision, numbered in the order in which they ended."""

    number: int
    sorts: tuple[Sort, ...]
    record: "AccessRecord | Batch"


_Kept = tuple[int, tuple[Sort, ...], "AccessRecord | Batch"]


class Ring(deque[_Kept]):
    """The newest, of bounded number and bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._size = 0

    def add(self, kept: _Kept) -> None:
        self.append(kept)
        self._size += kept[2].memory
        while len(self) > self._room or (self._size > RECENT and len(self) > 1):
            self._size -= self.popleft()[2].memory


class Recent:
    """Rings of decisions. To add one is an append."""

    def __init__(self, room: int = ROOM) -> None:
        self._run = secrets.token_hex(4)
        self._newest = 0
        self._plain = Ring(room)
        self._rings = {sort: Ring(room) for sort in SORTS}
        self._room = room
        self._batches: deque[tuple[int, Batch]] = deque()
        """With the number of their first."""
        self._in_batches = 0
        self.before_read: Callable[[], None] = lambda: None
        """Adds what waits to be added."""

    @property
    def newest(self) -> int:
        """The number of the last that has ended."""
        self.before_read()
        return self._newest

    def add(self, record: AccessRecord, sorts: tuple[Sort, ...]) -> None:
        number = self._newest = self._newest + 1
        (self._rings[sorts[0]] if sorts else self._plain).add((number, sorts, record))

    def add_batch(self, batch: "Batch") -> None:
        first = self._newest + 1
        self._newest += len(batch)
        self._batches.append((first, batch))
        self._in_batches += len(batch)
        while self._in_batches - len(self._batches[0][1]) >= self._room:
            self._in_batches -= len(self._batches.popleft()[1])
        for place, outcome in enumerate(batch.outcomes):
            if outcome.sorts:
                self._rings[outcome.sorts[0]].add((first + place, outcome.sorts, batch.one(place)))

    def after(self, number: int, wanted: Iterable[Sort] = ()) -> list[Kept]:
        """Those that came after that number, the newest first; of these sorts alone, where some are named."""
        self.before_read()
        only = frozenset(wanted)
        plain = islice(_newest_first(reversed(self._plain), self._plain_of_batches()), self._room)
        rings = (plain, *map(reversed, self._rings.values()))
        newer = (takewhile(lambda kept: kept[0] > number, ring) for ring in rings)
        every = _newest_first(*newer)
        return [Kept(*kept) for kept in every if not only or not only.isdisjoint(kept[1])]

    def _plain_of_batches(self) -> Iterator["_Kept"]:
        for first, batch in reversed(self._batches):
            for place in reversed(range(len(batch))):
                if not batch.outcomes[place].sorts:
                    yield first + place, (), batch.one(place)

    def cursor(self, number: int) -> str:
        """A number as it is given out: it means nothing to another run of the sidecar."""
        return f"{self._run}-{number}"

    def number(self, cursor: str) -> int:
        """The number that a cursor stands for; 0, before all, where it is not of this run."""
        run, _, number = cursor.partition("-")
        is_ours = run == self._run and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if is_ours else 0


def _newest_first(*each: Iterable["_Kept"]) -> Iterator["_Kept"]:
    return merge(*each, key=lambda kept: -kept[0])


def sorts_of(record: AccessRecord) -> tuple[Sort, ...]:
    """What is remarkable about a decision."""
    found: list[Sort] = []
    if record.leak is not None:
        found.append("leak")
    if record.miss_reason is not None and record.target.kind == "lookup":
        found.append("miss")
    if record.redirects:
        found.append("redirect")
    return tuple(found)
