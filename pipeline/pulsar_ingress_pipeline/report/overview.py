"""The top of the page: the numbers, what asks for a hand, and what changed since the report before."""

from collections.abc import Sequence

from pulsar_ingress_pipeline.report.figures import Column, listing, section, sentence, table
from pulsar_ingress_pipeline.report.marks import Child, Markup, clip, join, tag
from pulsar_ingress_pipeline.report.names import shown
from pulsar_ingress_pipeline.report.records import Latency, Numbers, Report
from pulsar_ingress_pipeline.report.scales import clock, compact, duration, percent
from pulsar_ingress_pipeline.report.since import comparable

_NAMED = 5


def tiles(report: Report, then: Numbers | None) -> Markup:
    now = report.numbers
    if now is None:
        return tag("p", "The tables hold no lookups.")
    then = None if comparable(then, now) else then
    moved = report.owners
    entries: list[tuple[str, Child, str]] = [
        ("lookups", compact(now.lookups), _more(now.lookups, None if then is None else then.lookups)),
        ("hit ratio", _ratio(now.hits, now.lookups), _before(then)),
        (
            "misses",
            compact(now.lookups - now.hits),
            _more(now.lookups - now.hits, None if then is None else then.lookups - then.hits),
        ),
        ("unmapped redirects", compact(now.unmapped), _more(now.unmapped, None if then is None else then.unmapped)),
        ("topics moved", compact(moved.count), f"of {compact(report.topics)}"),
        ("listeners named", compact(report.namers.total), "lookups, by clients"),
    ]
    return tag(
        "ul",
        *(
            tag("li", tag("span", what), tag("b", value), tag("span", more or "\u00a0"))
            for what, value, more in entries
        ),
        class_="tiles",
    )


def to_do(report: Report) -> Markup:
    """The few things that a reader would act on, most of it first."""
    items: list[Child] = []
    hosts = [miss for miss in report.misses.rows if miss.reason == "no-rule"]
    if hosts:
        count = sum(miss.misses for miss in hosts)
        items.append(
            join(
                _names([shown(miss.host, "no host") for miss in hosts]),
                " ",
                tag("a", "belong to no ingress", href="#misses"),
                f": {count:,} lookups.",
            )
        )
    named = [miss for miss in report.misses.rows if miss.reason in ("not-allowed", "unknown-listener", "client-named")]
    if named:
        items.append(
            join(
                f"{sum(miss.misses for miss in named):,} lookups named a listener that they ",
                tag("a", "do not get", href="#misses"),
                ".",
            )
        )
    if report.unmapped.count:
        count = report.unmapped.total
        items.append(
            join(
                "The address book lacks ",
                _names([shown(row.address, "what is no URL") for row in report.unmapped.rows]),
                ": ",
                tag("a", f"{count:,} redirects", href="#unmapped"),
                ".",
            )
        )
    if report.leaks.total:
        items.append(
            join(
                f"{report.leaks.total:,} answers ",
                tag("a", "carried an address", href="#leaks"),
                " that is not on the client's listener.",
            )
        )
    if report.loops.total:
        items.append(join(f"{report.loops.total:,} redirects led ", tag("a", "in a circle", href="#loops"), "."))
    spent = [row for row in report.objectives if row.budget_left <= 0]
    if spent:
        items.append(
            join(
                "The error budget of ",
                _names([shown(row.ingress, "no ingress") for row in spent]),
                " is ",
                tag("a", "spent", href="#objectives"),
                ".",
            )
        )
    lost = [stray for stray in report.strays.rows if stray.state == "no-longer-configured"]
    if lost:
        items.append(
            join(
                _names([shown(stray.host) for stray in lost]),
                " had an ingress before, and ",
                tag("a", "none any more", href="#drift"),
                ".",
            )
        )
    worse = [row for row in report.generations.rows if row.change < 0]
    if worse:
        what = "A new config made" if len(worse) == 1 else f"{len(worse):,} new configs made"
        items.append(join(f"{what} ", tag("a", "the hit ratio worse", href="#generations"), "."))
    if report.quarantine.total:
        items.append(
            join(f"{report.quarantine.total:,} lines could not be read: ", tag("a", "quarantine", href="#data"), ".")
        )
    if not items:
        return tag("div", tag("strong", "Nothing asks for a hand."), class_="todo calm")
    return tag("div", tag("strong", "What asks for a hand"), listing(*items), class_="todo")


def changes(report: Report, then: Numbers | None) -> Markup:
    why = comparable(then, report.numbers)
    if why is not None or then is None or report.numbers is None:
        return section("since", "Since the last report", sentence(why))
    now = report.numbers
    columns = [Column(""), Column("until then", "n"), Column("since", "n")]
    lookups, hits = now.lookups - then.lookups, now.hits - then.hits
    rows: list[list[Child]] = [
        ["lookups", f"{then.lookups:,}", f"{lookups:,}"],
        ["hit ratio", percent(then.hits, then.lookups), percent(hits, lookups)],
        ["misses", f"{then.lookups - then.hits:,}", f"{lookups - hits:,}"],
        ["unmapped redirects", f"{then.unmapped:,}", f"{now.unmapped - then.unmapped:,}"],
        ["changes of owners", f"{then.changes:,}", f"{now.changes - then.changes:,}"],
        ["lines in quarantine", f"{then.quarantined:,}", f"{now.quarantined - then.quarantined:,}"],
    ]
    if report.bins is not None:
        parts = [
            [cell for cell in report.latency if (report.bins.time(cell.place) > then.until) is late]
            for late in (False, True)
        ]
        rows.append(["p95 of a usual lookup", *(_usual(part) for part in parts)])
    return section(
        "since",
        "Since the last report",
        sentence(f"It was made {clock(then.made)} UTC, of events up to {clock(then.until)}."),
        table("Then and since", columns, rows, style="plain"),
        *_news(report, then),
    )


def _news(report: Report, then: Numbers) -> list[Markup]:
    new = [shown(miss.host, "no host") for miss in report.misses.rows if miss.first > then.until]
    quiet = [shown(miss.host, "no host") for miss in report.misses.rows if miss.last <= then.until]
    lacking = [shown(row.address, "what is no URL") for row in report.unmapped.rows if row.first > then.until]
    told = (("New misses: ", new), ("Misses that have ended: ", quiet), ("New in no address book: ", lacking))
    return [sentence(tag("strong", what), _names(list(dict.fromkeys(names))), ".") for what, names in told if names]


def _names(names: Sequence[str]) -> Markup:
    listed = [tag("code", clip(name, 80), class_="name") for name in dict.fromkeys(names)]
    parts = [join(", " if place else "", name) for place, name in enumerate(listed[:_NAMED])]
    return join(*parts, f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else "")


def _usual(cells: Sequence[Latency]) -> str:
    """The p95 of the span that the middle request is in."""
    left = sum(cell.requests for cell in cells) / 2
    for cell in sorted(cells, key=lambda cell: cell.p95):
        left -= cell.requests
        if left <= 0:
            return duration(cell.p95)
    return "–"


def _ratio(hits: int, lookups: int) -> Markup:
    share = hits / lookups if lookups else 1.0
    return tag("span", percent(hits, lookups), class_="good" if share >= 0.99 else "warn" if share >= 0.95 else "bad")


def _more(now: int, then: int | None) -> str:
    return "" if then is None else f"+{compact(now - then)} since last time"


def _before(then: Numbers | None) -> str:
    return "" if then is None else f"{percent(then.hits, then.lookups)} last time"
