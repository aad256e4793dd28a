"""Sentences, charts and numbers for the sections of the page that templates do not compute themselves."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pulsar_ingress_pipeline.report import charts
from pulsar_ingress_pipeline.report.charts import NARROW, NO_INGRESS, NOBODY, WIDE, Bar, Drawing, bar_chart, flow_chart
from pulsar_ingress_pipeline.report.formats import clock, common_tail, compact, duration, percent, shown, the, topic
from pulsar_ingress_pipeline.report.records import Flow, Latency, Numbers, Report, Row

SHOWN = 12
"""Rows of a list; it ends with the number of the others."""
_HALF = 500.0
"""Width of a chart next to another."""
_ACTIONS = {"rewritten": "s0", "followed": "s1", "kept": "s4", "passed": "s2", "refused": "miss"}

Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Chart:
    said: str
    """A sentence that sums it up, also for screen readers."""
    draw: Callable[[float], Drawing]
    """Draws it in a width."""
    rows: Rows = field(default_factory=list)
    """Its numbers, if they are not rows of the report."""
    widths: tuple[float, float] = (WIDE, NARROW)
    """For wide pages, and for narrow ones."""


def flows(report: Report) -> Chart:
    ways = sorted(report.flows, key=lambda flow: -flow.lookups)
    total = sum(flow.lookups for flow in ways)
    widest = " → ".join(_ends(ways[0])).removesuffix(brokers_tail(report) or "\n")
    said = f"{total:,} lookups. The widest way is {widest}, with {percent(ways[0].lookups, total)} of them."
    rows = [[*_ends(flow), "hit" if flow.is_hit else "miss", f"{flow.lookups:,}"] for flow in ways]
    return Chart(said, lambda width: flow_chart(report.flows, width), rows)


def brokers_tail(report: Report) -> str:
    return common_tail([name for name in {flow.broker for flow in report.flows} if isinstance(name, str)])


def hits(report: Report, since: float | None) -> Chart | None:
    columns = report.bins
    if columns is None or not report.hits:
        return None
    sums = charts.totals(report.hits)
    worst = max(sums, key=lambda place: (sums[place][1] / max(sum(sums[place]), 1), place))
    said = "Every lookup was a hit."
    if sums[worst][1]:
        said = (
            f"Misses were most in {the(columns.step)} from {clock(columns.time(worst))} UTC: "
            f"{sums[worst][1]:,} of {sum(sums[worst]):,} lookups."
        )
    rows = [
        [clock(columns.time(place)), f"{found:,}", f"{missed:,}", percent(found, found + missed)]
        for place, (found, missed) in sorted(sums.items())
    ]
    return Chart(said, lambda width: charts.hits_chart(columns, report.hits, width, since), rows)


def hits_by_ingress(report: Report) -> Rows:
    rows = []
    for name in charts.ingresses(report.hits):
        found = sum(cell.hits for cell in report.hits if cell.ingress == name)
        whole = found + sum(cell.misses for cell in report.hits if cell.ingress == name)
        rows.append([shown(name, NO_INGRESS), f"{whole:,}", f"{whole - found:,}", percent(found, whole)])
    return rows


def latency(report: Report, since: float | None) -> Chart | None:
    columns = report.bins
    if columns is None or not report.latency:
        return None
    slowest = max(report.latency_by_ingress, key=lambda cell: cell.worst)
    said = (
        f"The worst five minutes were through {shown(slowest.ingress, NO_INGRESS)} in {the(columns.step)} "
        f"from {clock(columns.time(slowest.place))}, with a p95 of {duration(slowest.worst)}."
    )
    rows = []
    for cell in report.latency:
        quantiles = (cell.p50, cell.p95, cell.p99, cell.worst)
        rows.append([clock(columns.time(cell.place)), f"{cell.requests:,}", *map(duration, quantiles)])
    cells = report.latency, report.latency_by_ingress
    return Chart(said, lambda width: charts.latency_chart(columns, *cells, width, since), rows)


def latency_keys(report: Report) -> list[tuple[str, str]]:
    """The shades of cells and their meaning."""
    bounds = [duration(bound) for bound in charts.shades(report.latency_by_ingress)]
    words = [f"under {bounds[0]}", *(f"from {bound}" for bound in bounds)] if bounds else ["all alike"]
    return [(f"h{place}", word) for place, word in enumerate(words)]


def redirects(report: Report) -> tuple[str, Chart, Chart]:
    """A sentence, and charts by action and by the number of redirects that the sidecar followed."""
    actions: dict[str, int] = defaultdict(int)
    followed: dict[int, int] = defaultdict(int)
    for row in report.redirects.rows:
        actions[shown(row["action"])] += row["requests"]
        followed[row["hops"]] += row["requests"]
    ordered = sorted(actions, key=lambda action: -actions[action])
    total = sum(followed.values())
    by_action = [
        Bar(name, ((actions[name], _ACTIONS.get(name, "rest")),), percent(actions[name], total)) for name in ordered
    ]
    by_hops = [
        Bar(hops(place), ((followed[place], "s1" if place else "s0"),), percent(followed[place], total))
        for place in range(max(followed) + 1)
    ]
    said = f"{total:,} requests met a redirect. Most were {ordered[0]}: {percent(actions[ordered[0]], total)}."
    return said, _half(by_action), _half(by_hops)


def hops(followed: int) -> str:
    return "none" if followed == 0 else "10 or more" if followed == 10 else f"{followed}"


def owners(report: Report) -> Chart:
    first = report.owners.rows[:SHOWN]
    bars = [Bar(topic(row["topic"]), ((row["changes"], "s3"),), f"{row['brokers']} brokers") for row in first]
    said = (
        f"{report.owners.count:,} of {report.topics:,} topics changed owners, {report.owners.total:,} times in all. "
        f"Most often {bars[0].name}: {first[0]['changes']:,} times."
    )
    return Chart(said, lambda width: bar_chart(bars, width))


def namespaces(report: Report) -> Chart:
    bars = []
    for row in report.namespaces.rows[:SHOWN]:
        note = f"{percent(row['misses'], row['hits'] + row['misses'])} missed" if row["misses"] else ""
        name = f"{shown(row['tenant'])}/{shown(row['namespace'])}"
        bars.append(Bar(name, ((row["hits"], "hit"), (row["misses"], "miss")), note))
    share = percent(bars[0].amount, report.namespaces.total)
    said = f"Of {report.namespaces.count:,} namespaces the busiest is {bars[0].name}, with {share} of the lookups."
    return Chart(said, lambda width: bar_chart(bars, width, 0.25))


def changes(report: Report, then: Numbers) -> Rows:
    """Numbers up to the previous report, and since then."""
    now = report.numbers
    assert now is not None
    lookups, found = now.lookups - then.lookups, now.hits - then.hits
    rows = [
        ["lookups", f"{then.lookups:,}", f"{lookups:,}"],
        ["hit ratio", percent(then.hits, then.lookups), percent(found, lookups)],
        ["misses", f"{then.lookups - then.hits:,}", f"{lookups - found:,}"],
        ["unmapped redirects", f"{then.unmapped:,}", f"{now.unmapped - then.unmapped:,}"],
        ["changes of owners", f"{then.changes:,}", f"{now.changes - then.changes:,}"],
        ["lines in quarantine", f"{then.quarantined:,}", f"{now.quarantined - then.quarantined:,}"],
    ]
    if (columns := report.bins) is not None:
        before = [cell for cell in report.latency if columns.time(cell.place) <= then.until]
        after = [cell for cell in report.latency if columns.time(cell.place) > then.until]
        rows.append(["p95 of a usual lookup", _usual(before), _usual(after)])
    return rows


def news(report: Report, then: Numbers) -> dict[str, list[str]]:
    """Hosts and addresses that are new since the previous report, or no longer seen."""
    misses = [(shown(row["host"], "no host"), row) for row in report.misses.rows]
    unmapped = [(shown(row["address"], "no URL"), row) for row in report.unmapped.rows]
    return {
        "New misses": [name for name, row in misses if row["first_seen"] > then.until],
        "Misses that have ended": [name for name, row in misses if row["last_seen"] <= then.until],
        "New in no address book": [name for name, row in unmapped if row["first_seen"] > then.until],
    }


def cells(rows: Sequence[Row], names: Sequence[str], counts: Sequence[str]) -> Rows:
    return [[*(shown(row[name]) for name in names), *(f"{row[name]:,}" for name in counts)] for row in rows]


def _half(bars: list[Bar]) -> Chart:
    said = ", ".join(f"{bar.name} {compact(bar.amount)}" for bar in bars)
    return Chart(said, lambda width: bar_chart(bars, width, 0.2), widths=(_HALF, NARROW))


def _ends(flow: Flow) -> list[str]:
    return [shown(name, nobody) for name, nobody in zip(flow.ends, NOBODY, strict=True)]


def _usual(cells: Sequence[Latency]) -> str:
    """The p95 of the column that has the median request."""
    left = sum(cell.requests for cell in cells) / 2
    for cell in sorted(cells, key=lambda cell: cell.p95):
        left -= cell.requests
        if left <= 0:
            return duration(cell.p95)
    return "–"
