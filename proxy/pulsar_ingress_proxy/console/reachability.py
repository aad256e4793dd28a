"""Runs `doctor` on the address book for the console, and limits how often."""

import asyncio
import time
from collections.abc import Callable, Collection

from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.tools.doctor import Finding, examine

BETWEEN = 15.0
"""Seconds between the end of one round and the start of the next."""
LONGEST = 60.0
"""Maximum seconds for a round; addresses not tried by then are left out."""


class Reachability:
    """Runs one round at a time, and keeps each finding until the next round replaces it."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Callable[[], float] = time.time) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._findings: dict[tuple[str, str, str], Finding] = {}
        self._round: asyncio.Task[None] | None = None
        self.checked: float | None = None
        """When the last round ended."""

    @property
    def findings(self) -> Collection[Finding]:
        return self._findings.values()

    @property
    def is_running(self) -> bool:
        return self._round is not None and not self._round.done()

    def look(self) -> None:
        """Begin a round, unless one runs or has just ended."""
        if self.is_running or (self.checked is not None and 0 <= self._clock() - self.checked < BETWEEN):
            return
        self._round = asyncio.get_running_loop().create_task(self._look())

    async def close(self) -> None:
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    async def _look(self) -> None:
        found: dict[tuple[str, str, str], Finding] = {}

        def keep(finding: Finding) -> None:
            place = (finding.listener, finding.broker, finding.url)
            found[place] = self._findings[place] = finding

        try:
            async with asyncio.timeout(LONGEST):
                await examine(self._snapshot(), None, keep)
        except TimeoutError:
            pass  # keep what was found so far
        self._findings, self.checked = found, self._clock()
