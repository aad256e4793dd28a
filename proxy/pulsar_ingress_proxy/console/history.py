"""The generations of this run: when each came into force, why, and what changed with it."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pulsar_ingress_proxy.console.changes import changes
from pulsar_ingress_proxy.routing.snapshot import Snapshot

Cause = Literal["start", "reload", "discovery"]

GENERATIONS = 50
LINES = 40
"""Changes that are told of one generation."""


@dataclass(frozen=True, slots=True)
class Generation:
    number: int
    time: float
    cause: Cause
    changes: tuple[str, ...]
    untold: int
    """Changes beyond those."""


class History:
    """The last generations."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = clock()
        self._generations: deque[Generation] = deque(maxlen=GENERATIONS)
        self.reload_problem: str | None = None
        """Why the newest config is not in force."""

    @property
    def newest_first(self) -> Iterator[Generation]:
        return reversed(self._generations)

    def note(self, old: Snapshot | None, new: Snapshot, cause: Cause) -> None:
        """A snapshot has come into force; the first has nothing before it."""
        lines = changes(old, new) if old is not None else iter(())
        told = tuple(islice(lines, LINES))
        self._generations.append(Generation(new.generation, self._clock(), cause, told, sum(1 for _ in lines)))
