"""Hit ratio and latency over the last half hour, from what the metrics count anyway: requests pay nothing for it."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_ingress_proxy.observability.metrics import Histogram, Labels, Metrics

SECONDS = 5
SAMPLES = 30 * 60 // SECONDS


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters at one moment."""

    hits: float
    misses: float
    redirects: float
    leaks: float
    requests: float
    failures: float
    durations: tuple[float, ...]
    """Lookups by how long they took, a number for each bucket."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was counted in a stretch of time, which ends at `time`."""

    time: float
    seconds: float
    hits: int
    misses: int
    redirects: int
    leaks: int
    requests: int
    failures: int
    p50_ms: float | None
    p99_ms: float | None
    """Of lookups; None where there were none."""


class Figures:
    """Samples of the counters, one every few seconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        self._last, self._last_time = totals(metrics), clock()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            self.take()

    def take(self) -> None:
        """What has been counted since the last time."""
        now, at = totals(self._metrics), self._clock()
        last = self._last
        durations = [new - old for new, old in zip(now.durations, last.durations, strict=True)]
        self.samples.append(
            Sample(
                time=at,
                seconds=at - self._last_time,
                hits=round(now.hits - last.hits),
                misses=round(now.misses - last.misses),
                redirects=round(now.redirects - last.redirects),
                leaks=round(now.leaks - last.leaks),
                requests=round(now.requests - last.requests),
                failures=round(now.failures - last.failures),
                p50_ms=quantile(0.5, durations, self._metrics.duration.of.buckets),
                p99_ms=quantile(0.99, durations, self._metrics.duration.of.buckets),
            )
        )
        self._last, self._last_time = now, at


def totals(metrics: Metrics) -> Totals:
    """The counters as they stand."""
    codes = metrics.requests.values
    return Totals(
        hits=_sum(metrics.hits.values),
        misses=_sum(metrics.misses.values),
        redirects=_sum(metrics.redirects.values),
        leaks=_sum(metrics.leaks.values),
        requests=_sum(codes),
        failures=sum(value for labels, value in codes.items() if labels[-1].startswith("5")),
        durations=_durations(metrics.duration),
    )


def quantile(of: float, counts: Sequence[float], bounds: Sequence[float]) -> float | None:
    """Milliseconds within which this part of them was done, as Prometheus' histogram_quantile has it."""
    wanted, below, start = of * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, end in zip(counts, bounds, strict=False):
        if below + count >= wanted:
            return 1000 * (start + (end - start) * (wanted - below) / count)
        below, start = below + count, end
    return 1000 * bounds[-1]


def _sum(values: Mapping[Labels, float]) -> float:
    return sum(values.values())


def _durations(histogram: Histogram) -> tuple[float, ...]:
    """Per bucket, lookups of every protocol."""
    counts = [0.0] * (len(histogram.of.buckets) + 1)
    for (kind, *_), observed in histogram.values.items():
        if kind == "lookup":
            counts = [sum(pair) for pair in zip(counts, observed[:-1], strict=True)]
    return tuple(counts)
