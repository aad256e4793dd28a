"""The parts of the page that are lists: what misses most, what moves most, who asks by name."""

from pulsar_ingress_pipeline.report.bars import Bar, bar_chart
from pulsar_ingress_pipeline.report.cures import cure
from pulsar_ingress_pipeline.report.figures import (
    Column,
    bar,
    counts,
    figure,
    keys,
    names,
    nothing,
    numbers,
    section,
    sentence,
    table,
    times,
)  # fmt: skip
from pulsar_ingress_pipeline.report.marks import Child, Markup, clip, join, tag
from pulsar_ingress_pipeline.report.names import shown
from pulsar_ingress_pipeline.report.records import Miss, Numbers, Report, Unmapped
from pulsar_ingress_pipeline.report.scales import clock, percent

_SHOWN = 12
"""Rows of a list; how many more there are is said."""


def misses(report: Report, then: Numbers | None) -> Markup:
    title = "What misses, and its cure"
    if not report.misses.rows:
        return section("misses", title, nothing(report, "misses", "misses"))
    listener = _most_used(report)
    most = report.misses.rows[0].misses
    rows: list[list[Child]] = [
        [
            join(shown(miss.host, "no host"), " ", _badge(miss, then)),
            shown(miss.reason),
            shown(miss.ingress),
            join(f"{miss.misses:,}", bar(miss.misses / most)),
            join(clock(miss.first), tag("br"), clock(miss.last)),
            _cured(miss, listener),
        ]
        for miss in report.misses.rows[:_SHOWN]
    ]
    columns = [
        *names("host", "reason", "ingress"), *counts("misses"), *times("first and last"), Column("cure", "cure"),
    ]  # fmt: skip
    return section(
        "misses",
        title,
        sentence(
            f"{report.misses.total:,} misses, each with what would cure it. ",
            tag("code", "pulsar-ingress-pipeline suggest"),
            " writes what can be pasted.",
        ),
        table("Misses by host and reason", columns, rows, report.misses.count - len(rows), style="cards"),
    )


def unmapped(report: Report, then: Numbers | None) -> Markup:
    title = "Addresses that the address book lacks"
    if not report.unmapped.rows:
        return section("unmapped", title, nothing(report, "unmapped_addresses", "redirects to unmapped addresses"))
    most = report.unmapped.rows[0].redirects
    rows: list[list[Child]] = [
        [
            join(shown(row.address, "no http URL"), " ", _badge(row, then)),
            shown(row.listener),
            join(f"{row.redirects:,}", bar(row.redirects / most, "s2")),
            clock(row.first),
            clock(row.last),
        ]
        for row in report.unmapped.rows[:_SHOWN]
    ]
    columns = [*names("address", "listener"), *counts("redirects"), *times("first", "last")]
    return section(
        "unmapped",
        title,
        sentence(
            f"{report.unmapped.total:,} redirects led where the client’s listener has no address. Each wants one in ",
            tag("code", "advertisedListeners"),
            ", or in ",
            tag("code", "redirects.peers"),
            " if it is another cluster’s.",
        ),
        table("Unmapped addresses", columns, rows, report.unmapped.count - len(rows), style="cards"),
    )


def owners(report: Report) -> Markup:
    title = "Topics that move"
    if not report.owners.rows:
        return section("owners", title, nothing(report, "owner_changes", "topic changed its owner"))
    top = report.owners.rows[:_SHOWN]
    bars = [Bar(_topic(row.topic), ((row.changes, "s3"),), f"{row.brokers} brokers") for row in top]
    said = (
        f"{report.owners.count:,} of {report.topics:,} topics changed owners, {report.owners.total:,} times in all. "
        f"Most often {bars[0].name}: {top[0].changes:,} times."
    )
    rows: list[list[Child]] = [
        [shown(row.topic), f"{row.changes:,}", f"{row.brokers:,}", f"{row.lookups:,}"] for row in report.owners.rows
    ]
    return section(
        "owners",
        title,
        sentence(said),
        figure(title, said, lambda width: bar_chart(bars, width)),
        numbers(
            "Changes of owners by topic",
            [*names("topic"), *counts("changes", "brokers", "lookups")],
            rows,
            report.owners.count - len(rows),
        ),
        numbers(
            "Changes of owners by namespace",
            [*names("namespace"), *counts("changes", "topics that moved")],
            [[shown(row.namespace), f"{row.changes:,}", f"{row.topics:,}"] for row in report.moved],
        )
        if report.moved
        else None,
    )


def namespaces(report: Report) -> Markup:
    title = "Whose lookups they are"
    if not report.namespaces.rows:
        return section("namespaces", title, nothing(report, "namespaces", "lookups"))
    bars = [
        Bar(
            f"{shown(row.tenant)}/{shown(row.namespace)}",
            ((row.hits, "hit"), (row.misses, "miss")),
            f"{percent(row.misses, row.hits + row.misses)} missed" if row.misses else "",
        )
        for row in report.namespaces.rows[:_SHOWN]
    ]
    share = percent(bars[0].amount, report.namespaces.total)
    said = f"Of {report.namespaces.count:,} namespaces the busiest is {bars[0].name}, with {share} of the lookups."
    rows: list[list[Child]] = [
        [shown(row.tenant), shown(row.namespace), f"{row.hits:,}", f"{row.misses:,}", f"{row.redirects:,}"]
        for row in report.namespaces.rows
    ]
    return section(
        "namespaces",
        title,
        sentence(said),
        figure(title, said, lambda width: bar_chart(bars, width, 0.25), keys([("hit", "hits"), ("miss", "misses")])),
        numbers(
            "Lookups by namespace",
            [*names("tenant", "namespace"), *counts("hits", "misses", "redirects")],
            rows,
            report.namespaces.count - len(rows),
        ),
    )


def namers(report: Report) -> Markup:
    title = "Clients that name listeners themselves"
    if not report.namers.rows:
        return section("namers", title, nothing(report, "client_named", "client names a listener itself"))
    most = report.namers.rows[0].lookups
    rows: list[list[Child]] = [
        [
            shown(row.user_agent),
            shown(row.tenant),
            shown(row.listener),
            join(f"{row.lookups:,}", bar(row.lookups / most, "s5")),
        ]
        for row in report.namers.rows[:_SHOWN]
    ]
    return section(
        "namers",
        title,
        sentence(f"{report.namers.total:,} lookups. These would notice if names were no longer honoured."),
        table(
            "Clients that name listeners",
            [*names("user agent", "tenant", "names"), *counts("lookups")],
            rows,
            report.namers.count - len(rows),
            style="cards",
        ),
    )


def _cured(miss: Miss, listener: str | None) -> Markup:
    found = cure(miss, listener)
    return join(tag("p", clip(found.said, 400)), None if found.line is None else tag("pre", clip(found.line, 800)))


def _badge(row: Miss | Unmapped, then: Numbers | None) -> Markup | None:
    if then is not None and row.first > then.until:
        return tag("span", "new", class_="badge bad")
    return tag("span", "ended", class_="badge good") if then is not None and row.last <= then.until else None


def _most_used(report: Report) -> str | None:
    sums: dict[str, int] = {}
    for flow in report.flows:
        if flow.is_hit and isinstance(flow.listener, str):
            sums[flow.listener] = sums.get(flow.listener, 0) + flow.lookups
    return max(sums, key=lambda name: (sums[name], name), default=None)


def _topic(name: str | None) -> str:
    return shown(name).removeprefix("persistent://")
