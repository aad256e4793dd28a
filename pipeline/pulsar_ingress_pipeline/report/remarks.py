"""The parts of the page that judge: objectives, loops, leaks, drift, generations, unusual hours."""

from pulsar_ingress_pipeline.report.figures import (
    bar,
    counts,
    listing,
    names,
    nothing,
    section,
    sentence,
    table,
    times,
)
from pulsar_ingress_pipeline.report.hits import NOBODY
from pulsar_ingress_pipeline.report.marks import Child, Markup, clip, join, tag
from pulsar_ingress_pipeline.report.names import shown
from pulsar_ingress_pipeline.report.records import Anomaly, Loop, Numbers, Report, Stray
from pulsar_ingress_pipeline.report.scales import clock, compact, duration, percent
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

_SHOWN = 12
"""Rows of a list; how many more there are is said."""
_WORDS = {"lookups": "lookups", "miss_ratio": "miss ratio", "p95_ms": "p95"}


def objectives(report: Report) -> Markup:
    title = "What is left of the error budget"
    if not report.objectives:
        return section("objectives", title, nothing(report, "slo_days", "lookups"))
    worst = min(report.objectives, key=lambda row: row.budget_left)
    left = (
        f"{shown(worst.ingress, NOBODY)} has spent {percent(1 - worst.budget_left, 1)} of it."
        if worst.budget_left < 1
        else "None was slower."
    )
    rows: list[list[Child]] = [
        [
            shown(row.ingress, NOBODY),
            f"{row.lookups:,}",
            f"{row.lookups - row.good:,}",
            percent(row.good, row.lookups),
            join(_budget(row.budget_left), bar(min(max(row.budget_left, 0), 1), _colour(row.budget_left))),
        ]
        for row in report.objectives
    ]
    return section(
        "objectives",
        title,
        sentence(
            f"{percent(OBJECTIVE, 1)} of the lookups of {DAYS} days are to be answered within {_limit()}. "
            "The alerts go by the same. ",
            left,
        ),
        table(
            f"Lookups of {DAYS} days by ingress",
            [*names("ingress"), *counts("lookups", f"slower than {_limit()}", "within", "budget left")],
            rows,
            style="cards",
        ),
    )


def loops(report: Report) -> list[Child]:
    """For the section on redirects."""
    if not report.loops.rows:
        return []
    rows: list[list[Child]] = [
        [
            _topic(loop),
            shown(loop.listener),
            _way(loop),
            f"{loop.loops:,}",
            join(clock(loop.first), tag("br"), clock(loop.last)),
        ]
        for loop in report.loops.rows[:_SHOWN]
    ]
    return [
        tag("h3", "Redirects in a circle", id="loops"),
        sentence(
            f"{report.loops.total:,} redirects led back to where the client, or the sidecar that followed, had been: "
            "these brokers hold one another for the owner."
        ),
        table(
            "Redirects in a circle",
            [*names("topic", "listener", "circle"), *counts("times"), *times("first and last")],
            rows,
            report.loops.count - len(rows),
            style="cards",
        ),
    ]


def leaks(report: Report) -> list[Child]:
    """For the section on redirects."""
    if not report.leaks.rows:
        return []
    most = report.leaks.rows[0].leaks
    rows: list[list[Child]] = [
        [
            shown(leak.address, "not known"),
            shown(leak.found_in),
            shown(leak.listener),
            shown(leak.ingress, NOBODY),
            shown(leak.user_agent),
            join(f"{leak.leaks:,}", bar(leak.leaks / most)),
            join(clock(leak.first), tag("br"), clock(leak.last)),
        ]
        for leak in report.leaks.rows[:_SHOWN]
    ]
    return [
        tag("h3", "Leaks", id="leaks"),
        sentence(f"{report.leaks.total:,} answers carried an address that is not on the client’s listener."),
        table(
            "Leaks by address and client",
            [
                *names("address", "stood in", "listener", "ingress", "user agent"),
                *counts("leaks"),
                *times("first and last"),
            ],
            rows,
            report.leaks.count - len(rows),
            style="cards",
        ),
    ]


def drift(report: Report, then: Numbers | None) -> Markup:
    title = "Hosts asked for, and hosts configured"
    parts: list[Child] = []
    if report.strays.rows:
        rows: list[list[Child]] = [
            [
                join(shown(stray.host), " ", _new(stray, then)),
                _state(stray),
                f"{stray.requests:,}",
                f"{stray.lookups:,}",
                clock(stray.first),
                clock(stray.last),
            ]
            for stray in report.strays.rows[:_SHOWN]
        ]
        parts += [
            sentence(f"{report.strays.count:,} hosts are asked for and no ingress has them, by their newest request."),
            table(
                "Hosts that no ingress has",
                [*names("host", "state"), *counts("requests", "lookups"), *times("first", "last")],
                rows,
                report.strays.count - len(rows),
                style="cards",
            ),
        ]
    else:
        parts.append(nothing(report, "drift", "host is asked for that no ingress has"))
    return section("drift", title, *parts, *_unseen(report))


def generations(report: Report) -> Markup:
    title = "What new configs changed"
    if not report.generations.rows:
        return section("generations", title, nothing(report, "generations", "generation changed the hit ratio"))
    rows: list[list[Child]] = [
        [
            shown(row.sidecar),
            f"{row.generation:,}",
            clock(row.first),
            f"{row.lookups:,}",
            percent(row.hits, row.lookups),
            tag("span", f"{100 * row.change:+.2f} points", class_="good" if row.change > 0 else "bad"),
        ]
        for row in report.generations.rows[:_SHOWN]
    ]
    return section(
        "generations",
        title,
        sentence(
            "The hit ratio of a sidecar under a config, against the one before. What concerned most lookups is first."
        ),
        table(
            "Hit ratio by generation",
            [*names("sidecar"), *counts("generation"), *times("from"), *counts("lookups", "hit ratio", "change")],
            rows,
            report.generations.count - len(rows),
            style="cards",
        ),
    )


def anomalies(report: Report) -> Markup:
    title = "Hours unlike those of earlier days"
    if not report.anomalies.rows:
        return section(
            "anomalies", title, nothing(report, "anomalies", "hour was unlike the same hour of earlier days")
        )
    rows: list[list[Child]] = [
        [
            clock(row.start),
            shown(row.ingress, NOBODY),
            _WORDS.get(row.what, row.what),
            tag("b", _value(row, row.value)),
            _value(row, row.usual),
            f"{row.days:,}",
            f"{row.score:+.1f}",
        ]
        for row in report.anomalies.rows[:_SHOWN]
    ]
    columns = [
        *times("hour"), *names("ingress", "what"), *counts("was", "usual", "earlier days", "times its variation"),
    ]  # fmt: skip
    return section(
        "anomalies",
        title,
        sentence("Usual is the median of the same hour on earlier days. The furthest off is first."),
        table("Unusual hours", columns, rows, report.anomalies.count - len(rows), style="cards"),
    )


def _unseen(report: Report) -> list[Child]:
    head = tag("h3", "Configured, and never asked for")
    if report.unseen is None:
        told = sentence("Given a ", tag("code", "--config"), ", the report tells which of its hosts nobody asks for.")
        return [head, told]
    if not report.unseen:
        return [head, sentence("None: every host of the config was asked for.")]
    items = [
        join(tag("code", clip(host, 80), class_="name"), f" of {clip(ingress, 80)}")
        for ingress, host in report.unseen[:_SHOWN]
    ]
    more = len(report.unseen) - len(items)
    return [head, listing(*items, *([f"and {more:,} more"] if more else []))]


def _state(stray: Stray) -> str:
    if stray.state == "no-longer-configured":
        return f"was of {shown(stray.ingress)}"
    return "never had an ingress"


def _new(stray: Stray, then: Numbers | None) -> Markup | None:
    return tag("span", "new", class_="badge bad") if then is not None and stray.first > then.until else None


def _topic(loop: Loop) -> str:
    return shown(loop.topic).removeprefix("persistent://")


def _way(loop: Loop) -> Markup:
    if loop.followed_by == "sidecar":
        return join("the sidecar gave up at ", *(clip(broker, 60) for broker in loop.brokers))
    return join(" → ".join(clip(broker, 60) for broker in (*loop.brokers, loop.brokers[0])))


def _value(row: Anomaly, value: float) -> str:
    match row.what:
        case "miss_ratio":
            return percent(value, 1)
        case "p95_ms":
            return duration(value)
        case _:
            return compact(value)


def _limit() -> str:
    return duration(SECONDS * 1000)


def _budget(left: float) -> str:
    return percent(left, 1) if left >= 0 else f"none: spent {1 - left:.1f} times"


def _colour(left: float) -> str:
    return "s1" if left > 0.5 else "s2" if left > 0 else "miss"
