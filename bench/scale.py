"""What a fleet of sidecars does to brokers, API server, Prometheus and the pipeline: arithmetic on measured figures.

    python -m bench.scale [--gateways N] [--clients N] … [--measure] [--write]

With --measure, what `bench.scale` measures itself is measured again, in about two minutes; else it is taken from the
page. Prints the tables; with --write it replaces them in docs/scale.md, between the comments that name them.
"""

import argparse
import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from bench.figures import markdown
from bench.performance_figures import replace_block
from bench.scale_measure import measure
from pulsar_ingress_proxy.config.model import Events
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
IDLE_SECONDS = 60
DAY = 86400


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is assumed; each has an option."""

    gateways: int = 1000
    clients: int = 10_000_000
    topics: int = 5
    """That a client looks up each time it connects."""
    connects: int = 10
    """Of a client, a day."""
    peak_minutes: int = 10
    """In which all clients connect again, after a network outage, say."""
    brokers: int = 30
    ingresses: int = 3
    """Of each gateway."""
    changes: int = 60
    """Of the watched objects, a minute; a rollout of brokers or gateways makes more."""
    object_bytes: int = 4000
    objects: int = 500
    """In the watched namespaces."""
    scrape_seconds: int = 30
    sample_bytes: int = 2
    """On Prometheus' disk."""


ASSUMED = {
    "gateways": "gateways, each with a sidecar",
    "clients": "clients of all gateways",
    "topics": "topics that a client looks up when it connects",
    "connects": "times a day that a client connects",
    "peak_minutes": "minutes in which all clients connect again after an outage",
    "brokers": "brokers",
    "ingresses": "ingresses of a sidecar",
    "changes": "changes of watched objects a minute",
    "object_bytes": "bytes of a watched object",
    "objects": "watched objects",
    "scrape_seconds": "seconds between scrapes",
    "sample_bytes": "bytes of a sample on Prometheus' disk",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    lookup_us: float
    latency_ms: float
    series: float
    series_per_ingress: float
    scrape_bytes: float
    watches: float
    polls: float
    ingest_us: float
    tables_us: float
    gzip: float
    parquet: float


MEASURED = {
    "lookup_us": ("CPU-µs of a sidecar for a lookup", "make bench-performance"),
    "latency_ms": ("ms that a sidecar has a lookup in progress, p99 at 200 a second", "make bench-performance"),
    "series": ("series of a sidecar with one ingress", "python -m bench.scale --measure"),
    "series_per_ingress": ("more series for each further ingress", "python -m bench.scale --measure"),
    "scrape_bytes": ("bytes of a scrape, with 11 ingresses", "python -m bench.scale --measure"),
    "watches": ("watches of a sidecar, in a cluster without CRDs of gateways", "python -m bench.scale --measure"),
    "polls": ("requests a minute of a sidecar that looks for these CRDs", "python -m bench.scale --measure"),
    "ingest_us": ("CPU-µs of the pipeline to take an event", "make bench-pipeline"),
    "tables_us": ("CPU-µs of the pipeline for all tables of an event", "make bench-pipeline"),
    "gzip": ("bytes of gzip of an event", "make bench-pipeline"),
    "parquet": ("bytes of Parquet of an event", "make bench-pipeline"),
}
ADMIN_SECONDS = 22.5
"""On average, from one round of `brokers.discover: admin` to the next: 15 to 30."""
WATCH_SECONDS = 450
"""On average, that a watch lasts: 300 to 600."""
FILES_A_DAY = DAY / Events().rotate_seconds


def of_pages(docs: Path) -> dict[str, float]:
    """The figures that other pages have."""
    performance, pipeline = (docs / "performance.md").read_text(), (docs / "bench-pipeline.md").read_text()
    base, ours = _row(performance, "answers, 10,000 clients", 0, 3)
    (latency,) = _row(performance, "200/s | pulsar-ingress-proxy", 2)
    ingest, tables, gzip, parquet = _row(pipeline, "10,000,000", 0, 1, 8, 9)
    found = {"lookup_us": round(base * ours, 1), "latency_ms": latency, "ingest_us": ingest, "tables_us": tables}
    return {**found, "gzip": gzip, "parquet": parquet}


def _row(page: str, begins: str, *places: int) -> list[float]:
    (row,) = re.findall(rf"^\| {re.escape(begins)} \|(.*)\|$", page, re.MULTILINE)
    cells = row.split("|")
    return [float(cells[place].split()[0]) for place in places]


def of_table(page: str) -> Figures:
    """The figures in the page's own table."""
    found = {name: _row(page, what, 0)[0] for name, (what, _) in MEASURED.items()}
    return Figures(**found)


def tables(fleet: Fleet, figures: Figures) -> dict[str, str]:
    """By the names of the page's blocks."""
    lookups = fleet.clients * fleet.topics * fleet.connects
    peak = fleet.clients * fleet.topics / (fleet.peak_minutes * 60)
    watches = len(KINDS) * fleet.gateways
    series = fleet.gateways * (figures.series + (fleet.ingresses - 1) * figures.series_per_ingress)
    events = lookups
    ingest, derived = figures.ingest_us * events / 3.6e9, figures.tables_us * events / 3.6e9
    return {
        "assumed": markdown(
            ["assumption", "value", "option"],
            [[ASSUMED[one.name], f"{getattr(fleet, one.name):,}", f"`{_option(one.name)}`"] for one in fields(fleet)],
        ),
        "measured": markdown(
            ["figure", "value", "command"],
            [[what, f"{getattr(figures, name):g}", f"`{command}`"] for name, (what, command) in MEASURED.items()],
        ),
        "brokers": _table(
            [
                ("lookups a day", lookups, "clients × topics × connects"),
                ("lookups a second, on average", lookups / DAY, ""),
                ("lookups a second, at the peak", peak, "clients × topics / peak minutes"),
                ("of these, at one broker", peak / fleet.brokers, "/ brokers"),
                ("of these, through one sidecar", peak / fleet.gateways, "/ gateways"),
                ("share of a sidecar's core then, %", peak / fleet.gateways * figures.lookup_us / 1e4, "× CPU-µs"),
                (
                    "connections of one sidecar that are in use then",
                    max(1, peak / fleet.gateways * figures.latency_ms / 1000),
                    "× ms in progress, at least 1",
                ),
                (
                    "idle connections at one broker, at most",
                    fleet.gateways * max(1, peak / fleet.gateways * figures.latency_ms / 1000),
                    "× gateways: each sidecar may keep as many to each broker for 25 s",
                ),
                (
                    "admin requests a second with `brokers.discover: admin`, at one broker",
                    fleet.gateways * (1 + 1 / fleet.brokers) / ADMIN_SECONDS,
                    "each sidecar asks every broker every 15 to 30 s, and one of them which there are",
                ),
            ]
        ),
        "api": _table(
            [
                ("watches", watches, f"{len(KINDS)} kinds × gateways, in one namespace"),
                ("watches without the CRDs of gateways", figures.watches * fleet.gateways, "watches × gateways"),
                ("watches that begin again a second", watches / WATCH_SECONDS, "each lasts 300 to 600 s"),
                ("events a second to all of them", fleet.changes / 60 * fleet.gateways, "changes × gateways"),
                (
                    "MB a second of these",
                    fleet.changes / 60 * fleet.gateways * fleet.object_bytes / 1e6,
                    "× bytes of an object",
                ),
                (
                    "GB listed when all sidecars start",
                    fleet.objects * fleet.object_bytes * fleet.gateways / 1e9,
                    "objects × bytes × gateways",
                ),
                (
                    "requests a second for CRDs that are not there",
                    figures.polls / 60 * fleet.gateways,
                    "requests a minute × gateways",
                ),
            ]
        ),
        "prometheus": _table(
            [
                ("series of a sidecar", series / fleet.gateways, "series + (ingresses - 1) × more series"),
                ("series of all", series, "× gateways"),
                ("samples a second", series / fleet.scrape_seconds, "/ seconds between scrapes"),
                ("GB a day on disk", series / fleet.scrape_seconds * DAY * fleet.sample_bytes / 1e9, "× bytes"),
                (
                    "MB a second of scrapes, at most",
                    figures.scrape_bytes * fleet.gateways / fleet.scrape_seconds / 1e6,
                    "bytes of a scrape × gateways / seconds",
                ),
            ]
        ),
        "pipeline": _table(
            [
                ("events a day", events, "lookups a day; other requests come on top"),
                ("event files a day", fleet.gateways * FILES_A_DAY, "one of each sidecar every 5 minutes"),
                ("GB of gzip a day", events * figures.gzip / 1e9, "events × bytes"),
                ("GB of Parquet a day", events * figures.parquet / 1e9, "events × bytes"),
                ("CPU-hours a day, `run` once an hour", ingest + derived, "events × (take + tables)"),
                ("CPU-hours a day, `stream`", ingest + 6 * derived, "events × (take + 6 × tables)"),
                ("events of an hour", events / 24, ""),
            ]
        ),
    }


def _table(rows: Sequence[tuple[str, float, str]]) -> str:
    return markdown(["figure", "value", "computed"], [[what, _rounded(value), how] for what, value, how in rows])


def _rounded(value: float) -> str:
    """To three digits that count."""
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 100 else f"{short:g}"


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in fields(Fleet):
        default = getattr(Fleet(), one.name)
        parser.add_argument(
            _option(one.name), type=int, default=default, metavar="N", help=f"{ASSUMED[one.name]} (default {default:,})"
        )
    parser.add_argument("--measure", action="store_true", help="series, watches and requests of a sidecar again")
    parser.add_argument("--write", action="store_true", help="into docs/scale.md")
    options = parser.parse_args()
    fleet = Fleet(**{one.name: getattr(options, one.name) for one in fields(Fleet)})
    if options.write and fleet != Fleet():
        parser.error("the page has the default assumptions")
    page = PAGE.read_text()
    figures = replace(of_table(page), **of_pages(PAGE.parent))
    if options.measure:
        figures = replace(figures, **_measured())
    for name, text in tables(fleet, figures).items():
        print(f"{name}\n{text}\n")
        page = replace_block(page, name, text)
    if options.write:
        PAGE.write_text(page)


def _measured() -> Mapping[str, float]:
    found = asyncio.run(measure(IDLE_SECONDS))
    return {one.name: getattr(found, one.name) for one in fields(found)}


if __name__ == "__main__":
    main()
