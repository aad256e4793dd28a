"""Measurements and their summary: medians, spreads and ratios to a base in the same round."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One proxy under load once."""

    cpu_us: float
    """CPU time of the proxy per request."""
    requests_per_second: float

    def __str__(self) -> str:
        return f"{self.cpu_us:7.1f} µs {self.requests_per_second:8.0f}/s"


Rounds = Mapping[str, Sequence[Sample]]
"""By proxy: one sample per round, in the same order for all."""


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


@dataclass(frozen=True, slots=True)
class Row:
    proxy: str
    cpu_us: Spread
    ratio: Spread
    """Ratio of CPU time to the base's in the same round, which cancels out effects of the machine."""
    requests_per_second: Spread


def rows(rounds: Rounds, base: str) -> list[Row]:
    return [
        Row(
            proxy,
            Spread.of([sample.cpu_us for sample in samples]),
            Spread.of([sample.cpu_us / other.cpu_us for sample, other in zip(samples, rounds[base], strict=True)]),
            Spread.of([sample.requests_per_second for sample in samples]),
        )
        for proxy, samples in rounds.items()
    ]


def table(all_rounds: Mapping[str, Rounds], base: str) -> str:
    """One line per load: the base's CPU time, then the others' ratios to it, the last one with its spread."""
    lines = []
    for name, rounds in all_rounds.items():
        first, *others = sorted(rows(rounds, base), key=lambda row: row.proxy != base)
        cells = [f"{row.proxy} {row.ratio.median:.2f}" for row in others]
        cells[-1] += f" ({others[-1].ratio.low:.2f} to {others[-1].ratio.high:.2f})"
        lines.append(f"{name:<32} {base} {first.cpu_us.median:5.1f} µs   " + "   ".join(cells))
    return "\n".join(lines)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def as_json(rounds: Rounds, base: str) -> dict[str, Any]:
    """Rows by proxy, with the samples they come from."""
    return {
        row.proxy: {
            "cpu_us": asdict(row.cpu_us),
            "ratio": asdict(row.ratio),
            "requests_per_second": asdict(row.requests_per_second),
            "samples": [asdict(sample) for sample in rounds[row.proxy]],
        }
        for row in rows(rounds, base)
    }
