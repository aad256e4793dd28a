"""Hit ratio and latency over the last half hour, sampled from what is counted anyway: requests pay nothing for it."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from pulsar_ingress_proxy.console.models import Counts, Figure, moment
from pulsar_ingress_proxy.observability.metrics import Histogram, Metrics
from pulsar_ingress_proxy.observability.recent import Recent

SECONDS = 5
SAMPLES = 30 * 60 // SECONDS


class Figures:
    """Samples of the counters, one every few seconds."""

    def __init__(self, metrics: Metrics, recent: Recent) -> None:
        self._metrics = metrics
        self._recent = recent
        self._last = self._read()
        self.samples: deque[Figure] = deque(maxlen=SAMPLES)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            self.take()

    def take(self) -> None:
        """Add a sample of what was counted since the last one."""
        (last, last_durations, since), self._last = self._last, self._read()
        counts, all_durations, now = self._last
        durations = [new - old for new, old in zip(all_durations, last_durations, strict=True)]
        self.samples.append(
            Figure(
                time=moment(now),
                seconds=round(now - since, 3),
                p50_ms=quantile(0.5, durations, self._metrics.duration.of.buckets),
                p99_ms=quantile(0.99, durations, self._metrics.duration.of.buckets),
                **{name: count - getattr(last, name) for name, count in counts},
            )
        )

    def _read(self) -> tuple[Counts, list[float], float]:
        return totals(self._metrics, self._recent), _durations(self._metrics.duration), time.time()


def totals(metrics: Metrics, recent: Recent) -> Counts:
    """The counts since the start."""
    requests = metrics.requests.values
    failures = recent.made(["failure"])
    answered = sum(value for labels, value in requests.items() if labels[-1].startswith("5"))
    return Counts(
        hits=recent.made(["hit"]),
        misses=recent.made(["miss"]),
        redirects=recent.made(["redirect"]),
        leaks=recent.made(["leak"]),
        failures=failures,
        unread=round(answered) - failures,
        requests=round(sum(requests.values())),
    )


def quantile(of: float, counts: Sequence[float], bounds: Sequence[float]) -> float | None:
    """A quantile in milliseconds, computed as Prometheus' histogram_quantile does; None without observations."""
    wanted, below, start = of * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, end in zip(counts, bounds, strict=False):
        if below + count >= wanted:
            return round(1000 * (start + (end - start) * (wanted - below) / count), 3)
        below, start = below + count, end
    return round(1000 * bounds[-1], 3)


def _durations(histogram: Histogram) -> list[float]:
    """The number of lookups in each bucket, for both protocols together."""
    counts = [0.0] * (len(histogram.of.buckets) + 1)
    for (kind, *_), observed in histogram.values.items():
        if kind == "lookup":
            counts = [sum(pair) for pair in zip(counts, observed[:-1], strict=True)]
    return counts
