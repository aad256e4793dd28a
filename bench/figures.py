"""What was measured, and what it comes to: medians, spreads and ratios to a base in the same round."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One proxy under load once."""

    cpu_us: float
    """CPU time of the proxy for each lookup."""
    lookups_per_second: float

    def __str__(self) -> str:
        return f"{self.cpu_us:7.1f} µs {self.lookups_per_second:8.0f}/s"


Rounds = Mapping[str, Sequence[Sample]]
"""By proxy, a sample for each round, in the same order for all."""


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    proxy: str
    cpu_us: Spread
    ratio: Spread
    """CPU time by the base's in the same round: what the machine did to both falls out."""
    lookups_per_second: Spread


def rows(rounds: Rounds, base: str) -> list[Row]:
    return [
        Row(
            proxy,
            Spread.of([sample.cpu_us for sample in samples]),
            Spread.of([sample.cpu_us / other.cpu_us for sample, other in zip(samples, rounds[base], strict=True)]),
            Spread.of([sample.lookups_per_second for sample in samples]),
        )
        for proxy, samples in rounds.items()
    ]


def table(workload: str, rounds: Rounds, base: str) -> str:
    """Least CPU time first."""
    lines = [f"{workload:<22} {'CPU µs/lookup':>14} {'spread':>15} {f'ratio to {base}':>16} {'spread':>13}"]
    for row in sorted(rows(rounds, base), key=lambda row: row.ratio.median):
        cpu, ratio = row.cpu_us, row.ratio
        lines.append(
            f"{row.proxy:<22} {cpu.median:>14.1f} {f'{cpu.low:.1f} – {cpu.high:.1f}':>15} "
            f"{ratio.median:>16.2f} {f'{ratio.low:.2f} – {ratio.high:.2f}':>13}"
        )
    return "\n".join(lines)


def as_json(rounds: Rounds, base: str) -> dict[str, Any]:
    """Rows by proxy, with the samples they come from."""
    return {
        row.proxy: {
            "cpu_us": asdict(row.cpu_us),
            "ratio": asdict(row.ratio),
            "lookups_per_second": asdict(row.lookups_per_second),
            "samples": [asdict(sample) for sample in rounds[row.proxy]],
        }
        for row in rows(rounds, base)
    }
