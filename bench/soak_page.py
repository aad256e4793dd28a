"""The result of a soak as the tables and the plot of docs/soak.md."""

import os
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from bench import plots
from bench.figures import markdown
from bench.performance_figures import replace_block
from bench.plots import Series
from bench.soak_checks import MIB, Sample, Totals, checks

DOCS = Path(__file__).parents[1] / "docs"
POINTS = 120
"""Points of a plot at most: each is the median of the samples of its time."""


def summary(totals: Totals, minutes: float, seed: int, busy: float) -> str:
    """One paragraph: what was run, where, and what happened meanwhile."""
    tally, kinds = totals.tally, Counter(kind for _, kind in totals.changes)
    happened = ", ".join(f"{number:,} of {kind}" for kind, number in sorted(kinds.items()))
    return (
        f"{minutes:g} minutes with seed {seed}, on {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}; the load average before the run was {busy:.1f}. {tally.sessions:,} connections, "
        f"{tally.answered:,} lookups and {tally.others:,} other requests answered. Changes: {happened or 'none'}."
    )


def rows(totals: Totals) -> str:
    """The checks as a table in Markdown."""
    lines = [[row.what, row.found, row.wanted, "holds" if row.holds else "**does not hold**"] for row in checks(totals)]
    return markdown(["what", "found", "wanted", ""], lines)


def plot(totals: Totals) -> str:
    """Memory, descriptors, tasks and requests over the minutes of the run, and when something changed."""
    samples = totals.samples
    rates = [(later.requests - one.requests) / (later.seconds - one.seconds) for one, later in pairwise(samples)]
    minutes = [sample.seconds / 60 for sample in samples]

    def series(title: str, value: Callable[[Sample], float]) -> Series:
        return Series(title, *_thinned(minutes, [value(sample) for sample in samples]))

    shown = [
        series("resident memory, MiB", lambda sample: sample.resident / MIB),
        series("open descriptors", lambda sample: sample.descriptors),
        series("asyncio tasks", lambda sample: sample.tasks),
        Series("requests a second", *_thinned(minutes[1:], rates)),
    ]
    changes: dict[str, list[float]] = {}
    for seconds, kind in totals.changes:
        changes.setdefault(kind, []).append(seconds / 60)
    return plots.over_time(shown, changes, max(minutes))


def _thinned(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Medians of as many samples each, so that there are no more than POINTS of them."""
    step = -(-len(values) // POINTS) or 1
    places = range(0, len(values), step)
    return (
        [statistics.median(times[place : place + step]) for place in places],
        [statistics.median(values[place : place + step]) for place in places],
    )


def write(totals: Totals, minutes: float, seed: int, busy: float) -> None:
    page = (DOCS / "soak.md").read_text()
    page = replace_block(page, "run", summary(totals, minutes, seed, busy))
    (DOCS / "soak.md").write_text(replace_block(page, "checks", rows(totals)))
    (DOCS / "soak.svg").write_text(plot(totals))
