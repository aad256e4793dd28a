"""The generations of this run: when each came into force, why, and what changed with it."""

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

from pulsar_ingress_proxy.console.changes import changes
from pulsar_ingress_proxy.console.models import Cause, Generation, moment
from pulsar_ingress_proxy.routing.snapshot import Snapshot

GENERATIONS = 50
LINES = 40
"""Maximum number of changes listed for one generation."""


class History:
    """The last generations."""

    def __init__(self) -> None:
        self.began = time.time()
        self._generations: deque[Generation] = deque(maxlen=GENERATIONS)
        self.reload_problem: str | None = None
        """Why the newest config is not in force."""

    @property
    def newest_first(self) -> Iterator[Generation]:
        return reversed(self._generations)

    def note(self, old: Snapshot | None, new: Snapshot, cause: Cause) -> None:
        """A snapshot has come into force; `old` is None for the first."""
        lines = changes(old, new) if old is not None else iter(())
        listed = list(islice(lines, LINES))
        self._generations.append(
            Generation(
                generation=new.generation,
                time=moment(time.time()),
                cause=cause,
                changes=listed,
                untold=sum(1 for _ in lines),
            )
        )
