"""The parts of the page that are charts: a sentence that says the most of it, the chart, and its numbers."""

from collections import defaultdict

from pulsar_ingress_pipeline.report import hits as hit_charts
from pulsar_ingress_pipeline.report import remarks
from pulsar_ingress_pipeline.report.bars import Bar, bar_chart
from pulsar_ingress_pipeline.report.figures import (
    caption,
    counts,
    figure,
    keys,
    names,
    nothing,
    numbers,
    section,
    sentence,
    times,
)
from pulsar_ingress_pipeline.report.flows import NOBODY, ends, flow_chart
from pulsar_ingress_pipeline.report.latency import latency_chart, shades
from pulsar_ingress_pipeline.report.marks import Child, Markup, tag
from pulsar_ingress_pipeline.report.names import common_tail, shown
from pulsar_ingress_pipeline.report.records import Flow, Hits, Latency, Report
from pulsar_ingress_pipeline.report.scales import clock, compact, duration, length, percent, the
from pulsar_ingress_pipeline.tables.sources import ERROR

_ROWS = 200
"""Of a folded table."""
_HALF = (500.0, 350.0)
"""Widths of a chart that shares its row with another."""
_ACTIONS = {"rewritten": "s0", "followed": "s1", "kept": "s4", "passed": "s2", "refused": "miss"}
_SHARES = ("none", "under 1 %", "1 to 2 %", "2 to 5 %", "5 to 10 %", "10 to 25 %", "25 % and more")


def flows(report: Report) -> Markup:
    title = "Where lookups go"
    if not report.flows:
        return section("flows", title, nothing(report, "events", "lookups"))
    ways = sorted(report.flows, key=lambda flow: -flow.lookups)
    total = sum(flow.lookups for flow in ways)
    tail = common_tail([name for name in {flow.broker for flow in ways} if isinstance(name, str)])
    widest = " → ".join(_ends(ways[0])).removesuffix(tail or "\n")
    said = f"{total:,} lookups. The widest way is {widest}, with {percent(ways[0].lookups, total)} of them."
    rows: list[list[Child]] = [
        [*_ends(flow), "hit" if flow.is_hit else "miss", f"{flow.lookups:,}"] for flow in ways[:_ROWS]
    ]
    return section(
        "flows",
        title,
        sentence(said, " Red are misses; one that has a broker was passed on as it came."),
        figure(
            title,
            said,
            lambda width: flow_chart(report.flows, width),
            caption(f"Brokers’ names end in {tail}") if tail else None,
        ),
        numbers(
            "Lookups by ingress, listener and broker",
            [*names("ingress", "listener", "broker", ""), *counts("lookups")],
            rows,
            len(ways) - len(rows),
        ),
    )


def hits(report: Report, since: float | None) -> Markup:
    title = "Hits over time"
    columns = report.bins
    if columns is None or not report.hits:
        return section("hits", title, nothing(report, "listener_windows", "lookups"))
    sums = hit_charts.totals(report.hits)
    worst = max(sums, key=lambda place: (sums[place][1] / max(sum(sums[place]), 1), place))
    said = "Every lookup was a hit."
    if sums[worst][1]:
        said = (
            f"Misses were most in {the(columns.step)} from {clock(columns.time(worst))} UTC: "
            f"{sums[worst][1]:,} of {sum(sums[worst]):,} lookups."
        )
    rows: list[list[Child]] = [
        [clock(columns.time(place)), f"{found:,}", f"{missed:,}", percent(found, found + missed)]
        for place, (found, missed) in sorted(sums.items())
    ]
    return section(
        "hits",
        title,
        sentence(said),
        figure(
            title,
            said,
            lambda width: hit_charts.hits_chart(columns, report.hits, width, since),
            keys([("hit", "hits"), ("miss", "misses")]),
            keys([(f"m{place}", words) for place, words in enumerate(_SHARES)]),
            caption(
                f"A column is {length(columns.step)}, times are UTC. Cells are the misses’ share of what came through "
                "the ingress, or of all lookups where no ingress has them.",
                _dashes(since),
            ),
        ),
        numbers("Lookups over time", [*times("from"), *counts("hits", "misses", "hit ratio")], rows),
        numbers(
            "Misses by ingress",
            [*names("ingress"), *counts("lookups", "misses", "hit ratio")],
            _by_ingress(report.hits),
        ),
    )


def latency(report: Report, since: float | None) -> Markup:
    title = "How long lookups take"
    columns = report.bins
    if columns is None or not report.latency:
        return section("latency", title, nothing(report, "latency_buckets", "lookups"))
    slowest = max(report.latency_by_ingress, key=lambda cell: cell.worst)
    said = (
        f"The worst five minutes were through {shown(slowest.ingress, hit_charts.NOBODY)} in {the(columns.step)} "
        f"from {clock(columns.time(slowest.place))}, with a p95 of {duration(slowest.worst)}."
    )
    bounds = [duration(bound) for bound in shades(report.latency_by_ingress)]
    words = [f"under {bounds[0]}", *(f"from {bound}" for bound in bounds)] if bounds else ["all alike"]
    rows: list[list[Child]] = [
        [clock(columns.time(cell.place)), f"{cell.requests:,}", *map(duration, _values(cell))]
        for cell in report.latency
    ]
    return section(
        "latency",
        title,
        sentence(said),
        figure(
            title,
            said,
            lambda width: latency_chart(columns, report.latency, report.latency_by_ingress, width, since),
            keys([("l0 dot", "p50"), ("l1 dot", "p95"), ("l2 dot", "p99")]),
            keys([(f"h{place}", word) for place, word in enumerate(words)]),
            caption(
                f"From a request’s head to the end of its answer. A column is {length(columns.step)}. "
                f"Lines: quantiles of all its lookups, within {percent(ERROR, 1)}. Cells: its worst five minutes.",
                _dashes(since),
            ),
        ),
        numbers("Latency over time", [*times("from"), *counts("lookups", "p50", "p95", "p99", "worst p95")], rows),
    )


def redirects(report: Report) -> Markup:
    title = "Redirects"
    if not report.redirects:
        return section("redirects", title, nothing(report, "redirect_hops", "redirects"), *remarks.leaks(report))
    actions: dict[str, int] = defaultdict(int)
    hops: dict[int, int] = defaultdict(int)
    for row in report.redirects:
        actions[shown(row.action)] += row.requests
        hops[row.hops] += row.requests
    ordered = sorted(actions, key=lambda action: -actions[action])
    total = sum(hops.values())
    said = f"{total:,} requests met a redirect. Most were {ordered[0]}: {percent(actions[ordered[0]], total)}."
    by_action = [
        Bar(name, ((actions[name], _ACTIONS.get(name, "rest")),), percent(actions[name], total)) for name in ordered
    ]
    by_hops = [
        Bar(_hops(count), ((hops[count], "s1" if count else "s0"),), percent(hops[count], total))
        for count in range(max(hops) + 1)
    ]
    rows: list[list[Child]] = [
        [shown(row.action), shown(row.kind), _hops(row.hops), f"{row.requests:,}"] for row in report.redirects
    ]
    return section(
        "redirects",
        title,
        sentence(said),
        tag(
            "div",
            _half("What became of them", by_action),
            _half("How many the sidecar followed", by_hops),
            class_="two",
        ),
        numbers("Redirects", [*names("action", "kind"), *counts("followed", "requests")], rows),
        *remarks.loops(report),
        *remarks.leaks(report),
    )


def _values(cell: Latency) -> tuple[float, ...]:
    return cell.p50, cell.p95, cell.p99, cell.worst


def _half(title: str, bars: list[Bar]) -> Markup:
    said = ", ".join(f"{bar.name} {compact(bar.amount)}" for bar in bars)
    return tag("div", tag("h3", title), figure(title, said, lambda width: bar_chart(bars, width, 0.2), widths=_HALF))


def _ends(flow: Flow) -> list[str]:
    return [shown(name, nobody) for name, nobody in zip(ends(flow), NOBODY, strict=True)]


def _hops(count: int) -> str:
    return "none" if count == 0 else "10 or more" if count == 10 else f"{count}"


def _by_ingress(cells: tuple[Hits, ...]) -> list[list[Child]]:
    rows: list[list[Child]] = []
    for name in hit_charts.ingresses(cells):
        found = sum(cell.hits for cell in cells if cell.ingress == name)
        whole = found + sum(cell.misses for cell in cells if cell.ingress == name)
        rows.append([shown(name, hit_charts.NOBODY), f"{whole:,}", f"{whole - found:,}", percent(found, whole)])
    return rows


def _dashes(since: float | None) -> str:
    return "" if since is None else " Dashes: the report before this one."
