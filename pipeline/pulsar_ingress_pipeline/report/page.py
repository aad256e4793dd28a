"""The whole page: one file that needs nothing else, runs nothing and asks for nothing."""

from base64 import b64encode
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from pulsar_ingress_pipeline.report import overview, rankings, remarks, sections, since
from pulsar_ingress_pipeline.report.figures import Column, section, sentence, table
from pulsar_ingress_pipeline.report.marks import Child, Markup, join, tag
from pulsar_ingress_pipeline.report.names import shown
from pulsar_ingress_pipeline.report.records import Numbers, Report
from pulsar_ingress_pipeline.report.scales import clock
from pulsar_ingress_proxy import __version__

_STYLE = (Path(__file__).parent / "style.css").read_text()
_CONTENTS = {
    "flows": "Flows",
    "hits": "Hits",
    "objectives": "Objective",
    "misses": "Misses",
    "drift": "Hosts",
    "redirects": "Redirects",
    "unmapped": "Address book",
    "latency": "Latency",
    "anomalies": "Unusual hours",
    "owners": "Owners",
    "namespaces": "Namespaces",
    "namers": "Clients",
    "generations": "Configs",
    "since": "What changed",
}


def page(report: Report, then: Numbers | None) -> str:
    """`then` is what the report before this one had counted."""
    known = None if since.comparable(then, report.numbers) else then
    mark = _mark(report, known)
    body = join(
        tag(
            "header",
            tag("h1", "Pulsar lookups: where they go and what they miss"),
            tag("p", *_said(report), class_="soft"),
            overview.tiles(report, then),
            overview.to_do(report) if report.numbers is not None else None,
            tag(
                "nav",
                *(tag("a", words, href=f"#{anchor}") for anchor, words in _CONTENTS.items()),
                aria_label="Contents",
            ),
        ),
        tag(
            "main",
            sections.flows(report),
            sections.hits(report, mark),
            remarks.objectives(report),
            rankings.misses(report, known),
            remarks.drift(report, known),
            sections.redirects(report),
            rankings.unmapped(report, known),
            sections.latency(report, mark),
            remarks.anomalies(report),
            rankings.owners(report),
            rankings.namespaces(report),
            rankings.namers(report),
            remarks.generations(report),
            overview.changes(report, then),
            _data(report),
        ),
        tag("footer", f"Made by pulsar-ingress-pipeline {__version__}, {clock(report.made)} UTC."),
        None if report.numbers is None else since.keep(report.numbers),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{_head()}{tag("body", body)}</html>\n'


def _head() -> Markup:
    # Nothing is loaded and nothing runs, whatever a name in the page may be.
    allowed = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", "Pulsar lookups"),
        Markup(f"<style>{_STYLE}</style>"),
    )


def _said(report: Report) -> list[Child]:
    words: list[Child] = []
    if report.bins is not None:
        words.append(f"{clock(report.bins.start)} to {clock(report.bins.time(report.bins.count))} UTC. ")
    if report.clusters:
        words.append(
            f"Cluster{'s' if len(report.clusters) > 1 else ''} {', '.join(shown(name) for name in report.clusters)}. "
        )
    return [*words, "From ", tag("code", shown(report.tables)), "."]


def _mark(report: Report, then: Numbers | None) -> float | None:
    """The column in which the report before this one ended, if it is shown."""
    if then is None or report.bins is None:
        return None
    place = (then.until + timedelta(minutes=5) - report.bins.start) / report.bins.step
    return place if 0 < place < report.bins.count else None


def _data(report: Report) -> Markup:
    parts: list[Child] = []
    if report.days is not None:
        parts.append(
            sentence(
                f"Charts over time, flows, redirects and unusual hours are of the last {report.days} days of events; "
                "misses, addresses, leaks, circles, hosts and configs are those seen in them, with their numbers of "
                "all time. Numbers on top, owners, namespaces and clients are of all time."
            )
        )
    if report.absent:
        parts.append(sentence("Tables that are not there: ", ", ".join(report.absent), "."))
    if report.quarantine.rows:
        rows: list[list[Child]] = [[shown(row.word), f"{row.count:,}"] for row in report.quarantine.rows]
        columns = [Column("reason", "name"), Column("lines", "n")]
        parts.append(
            sentence(
                "Lines that are no events. They count nowhere; the table ", tag("code", "quarantine"), " has them."
            )
        )
        parts.append(table("Quarantine", columns, rows, report.quarantine.count - len(rows)))
    return section(
        "data", "About the data", *(parts or [sentence("All tables are there, and every line was an event.")])
    )
