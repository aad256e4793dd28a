"""Formats the results of bench.performance as Markdown tables and plots, and puts them into the page."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import plots
from bench.figures import Rounds, Spread, markdown, rows
from bench.plots import Line, Panel

MIB, KIB = 2**20, 2**10
_LINES = {
    "nginx": ("theirs", "nginx"),
    "Envoy with Lua": ("third", "Envoy"),
    "pulsar-ingress-proxy": ("ours", "sidecar"),
}
"""Color and name of each proxy in the plots."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of one proxy, in bytes."""

    start_cpu: float
    """Seconds of CPU time until it accepted connections."""
    start: int
    after_clients: int
    after_topics: int
    idle: float
    """Per connection on which nothing was sent."""
    asked: float
    """Per connection on which one request was answered."""


@dataclass(frozen=True, slots=True)
class Reload:
    """The largest latency in each of some runs, in seconds."""

    without: Sequence[float]
    during: Sequence[float]


def replace_block(page: str, name: str, text: str) -> str:
    """The page with this text between <!-- name --> and <!-- /name -->; raises ValueError if it has no such block."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)"
    replaced, count = re.subn(pattern, lambda found: f"{found[1]}{text}\n{found[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} blocks named {name}")
    return replaced


def ratios(what: str, all_rounds: Mapping[str, Rounds], base: str) -> str:
    """One line per load: the base's CPU time, and the others' as ratios to it, with their spreads."""
    peers = list(dict.fromkeys(_short(peer) for rounds in all_rounds.values() for peer in rounds if peer != base))
    lines = []
    for name, rounds in all_rounds.items():
        by_peer = {_short(row.proxy): row for row in rows(rounds, base)}
        cells = [by_peer[peer].ratio.text(2) if peer in by_peer else "" for peer in peers]
        lines.append([name, f"{by_peer[base].cpu_us.median:.1f}", *cells])
    return markdown([what, f"{base}, µs", *peers], lines)


def costs(table: str) -> str:
    """The README's table: the first three loads of `ratios`, without the base's time and the spreads."""
    head, _, *loads = (line.strip("| ").split(" | ") for line in table.splitlines())
    shown = [[load, *(cell.partition(" ")[0] for cell in cells)] for load, _, *cells in loads[:3]]
    return markdown(["", *head[2:]], shown)


def _short(peer: str) -> str:
    """A peer's name without its setting."""
    return peer.partition(",")[0]


def curve(what: str, all_rounds: Mapping[str, Rounds], base: str) -> str:
    """CPU time per request on the left, the ratio to the base on the right."""
    found = [{row.proxy: row for row in rows(rounds, base)} for rounds in all_rounds.values()]
    points = {line: [by_peer[peer] for by_peer in found if peer in by_peer] for peer, line in _LINES.items()}
    ticks = list(all_rounds)
    cpu = [Line(*line, [row.cpu_us.median for row in those]) for line, those in points.items()]
    ratio = [Line(*line, [row.ratio.median for row in those]) for line, those in points.items()]
    panels = [Panel(f"CPU-µs a request, by {what}", ticks, cpu), Panel(f"times {base}, by {what}", ticks, ratio)]
    return plots.as_svg(panels)


def config_table(by_kind: Mapping[str, Rounds]) -> str:
    """Only ours: for each kind of entry, one proxy per number of entries; the first is the base."""
    lines = [
        [kind, row.proxy, f"{row.cpu_us.median:.0f}", row.ratio.text(2)]
        for kind, rounds in by_kind.items()
        for row in rows(rounds, next(iter(rounds)))
    ]
    return markdown(["configured", "number", "CPU-µs a request", "times that with 1"], lines)


def config_plot(by_kind: Mapping[str, Rounds]) -> str:
    panels = []
    for kind, rounds in by_kind.items():
        values = [row.ratio.median for row in rows(rounds, next(iter(rounds)))]
        title = f"CPU time of a request, times that with 1, by {kind}"
        panels.append(Panel(title, list(rounds), [Line("ours", "sidecar", values)]))
    return plots.as_svg(panels)


def memory_table(measured: Mapping[str, Memory]) -> str:
    head = (
        "", "CPU-s to start", "MiB then", "MiB after 10,000 clients", "MiB after a million topics",
        "KiB for each idle connection", "KiB for each that asked once",
    )  # fmt: skip
    lines = []
    for name, one in measured.items():
        in_mib = [f"{size / MIB:.1f}" for size in (one.start, one.after_clients, one.after_topics)]
        lines.append([name, f"{one.start_cpu:.2f}", *in_mib, f"{one.idle / KIB:.1f}", f"{one.asked / KIB:.1f}"])
    return markdown(head, lines)


def reload_table(measured: Mapping[str, Reload]) -> str:
    lines = [
        [name, *(Spread.of([latency * 1000 for latency in runs]).text(0) for runs in (one.without, one.during))]
        for name, one in measured.items()
    ]
    return markdown(["config", "largest latency without a reload, ms", "with one, ms"], lines)
