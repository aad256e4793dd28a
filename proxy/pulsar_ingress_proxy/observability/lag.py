"""How late the event loop is: a timer is due ten times a second, and what it waits, requests wait too."""

import asyncio

from pulsar_ingress_proxy.observability.metrics import Histogram

PAUSE = 0.1
"""Seconds. A tick costs some microseconds: not a ten-thousandth of a core."""
_MOST = 600
"""Ticks that one halt can make up for."""


class Lag:
    """Watches the running loop until it is told to stop."""

    def __init__(self, seen: Histogram) -> None:
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + PAUSE
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        """Count this tick, and those that were due while the loop stood still, as requests would have been."""
        now = self._loop.time()
        lags = late(self._due, now)
        for lag in lags:
            self._seen.observe(lag)
        self._due = max(self._due + len(lags) * PAUSE, now)
        self._timer = self._loop.call_at(self._due, self._tick)


def late(due: float, now: float) -> list[float]:
    """How late each tick is that was due by now, the first one first; a loop's clock may be a moment early."""
    missed = min(int(max(now - due, 0) / PAUSE), _MOST)
    return [max(now - due - n * PAUSE, 0.0) for n in range(missed + 1)]
