"""From tables to the page: what is counted, what is bounded, and what is not there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from delta_tables import COUNT, NUMBER, SEEN, TEXTS, TIME, counts, put, texts
from report_rows import (
    Anomaly,
    Counted,
    Generation,
    Leak,
    Loop,
    Miss,
    Moved,
    Namespace,
    Objective,
    Owner,
    Redirects,
    Stray,
    Unmapped,
)

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.report import Report, page, write
from pulsar_ingress_pipeline.report.page import read
from pulsar_ingress_pipeline.report.queries import quantiles
from pulsar_ingress_pipeline.report.records import Flow, Hits, Numbers, Others, Row
from pulsar_ingress_proxy.config import load_mapping

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
LATER = START + timedelta(days=1)
FLOW = {"window_start": TIME, **texts("cluster", "kind", "ingress", "listener", "broker"), **counts("requests", "hits")}


def flow(time: datetime, requests: int = 1, hits: int = 1, **changes: Any) -> tuple[Any, ...]:
    usual = {"cluster": "pulsar", "kind": "lookup", "ingress": "public", "listener": "external", "broker": "b-0"}
    return time, *(usual | changes).values(), requests, hits


MADE = START + timedelta(days=7)
"""When reports are made: after all that is in them."""
CONFIG = {
    "brokers": {"webServiceUrl": ["http://broker:8080"]},
    "ingresses": [
        {"name": "partners", "hosts": ["pulsar.partner.example"], "listener": "partner"},
        {
            "name": "public",
            "hosts": ["Pulsar.example.com", "*.wild.example.com", "*.calm.example.com"],
            "listener": "external",
        },
    ],
}


def put_judged(root: Path) -> None:
    """Tables that judge what others count."""
    hops = {"window_start": TIME} | texts("kind", "action") | counts("hops", "requests")
    put(root / "redirect_hops", hops, [(START, "lookup", "followed", 30, 1), (START, "lookup", "followed", 12, 2)])
    keys = texts("ingress", "listener", "found_in", "address", "user_agent")
    put(root / "leaks", keys | counts("leaks") | SEEN, [("public", "external", "body", None, "x", 1, START, START)])
    loop = texts("listener", "topic", "followed_by") | {"brokers": TEXTS, "loops": COUNT}
    put(root / "redirect_loops", loop | SEEN, [("external", "t", "client", ["a:443", "b:443"], 4, START, LATER)])
    days = {"date": pa.date32()} | texts("ingress") | counts("period_lookups", "period_good") | {"budget_left": NUMBER}
    old = START.date() - timedelta(days=40)
    put(
        root / "slo_days",
        days,
        [
            (START.date(), "public", 100, 100, 1.0),
            (LATER.date(), "public", 200, 199, 0.5),
            (START.date(), None, 9, 8, -10.1),
            (old, "gone", 999, 999, 1.0),
        ],
    )
    drift = texts("host", "state", "ingress") | counts("requests", "lookups")
    put(root / "drift", drift | SEEN, [("x.example.com", "seen-not-configured", None, 7, 6, START, LATER)])
    put(root / "hosts", texts("host"), [("pulsar.example.com",), ("a.wild.example.com",), ("x.example.com",), (None,)])
    of = texts("sidecar") | counts("generation", "lookups", "hits") | {"hit_ratio_change": NUMBER}
    rows = [
        ("s", 2, 100, 50, -0.5, LATER, LATER), ("s", 3, 1000, 600, 0.1, START, LATER),
        ("s", 4, 9, 0, -0.6, START, START),
        ("s", 1, 900, 900, None, START, START), ("s", 5, 900, 540, 0.0, START, START),
    ]  # fmt: skip
    put(root / "generations", of | SEEN, rows)
    odd = {"window_start": TIME} | texts("ingress", "what") | {"value": NUMBER, "usual": NUMBER, "days": COUNT}
    rows_ = [(START, "public", "lookups", 0.0, 500.0, 3, -10.0), (LATER, None, "p95_ms", 90.0, 9.0, 4, 40.0)]
    put(root / "anomalies", odd | {"score": NUMBER}, rows_)


def put_missed(root: Path) -> None:
    put(
        root / "misses",
        texts("ingress", "host", "reason", "protocol") | counts("misses") | SEEN,
        [
            ("public", "pulsar.example.com", "not-allowed", "http", 3, START, START),
            (None, "<script>", "no-rule", "http", 4, LATER, LATER),
        ],
    )
    named = [("internal", 2), ("strange", 1)]
    put(
        root / "named_misses",
        texts("ingress", "host", "reason", "listener") | counts("misses") | SEEN,
        [("public", "pulsar.example.com", "not-allowed", name, count, START, START) for name, count in named],
    )
    put(
        root / "unmapped_addresses",
        texts("listener", "address") | counts("redirects") | SEEN,
        [("external", f"10.0.0.{place}:8080", 1 + place, START, START) for place in range(120)],
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    lookups = [flow(START, broker=f"b-{place}") for place in range(1, 20)]
    lookups += [flow(START, 2, 2), flow(START, hits=0, listener=None, broker=None)]
    put(
        root / "flows",
        FLOW,
        [*lookups, flow(LATER), flow(LATER, kind="admin"), flow(LATER, cluster=None, kind="other")],
    )
    hits = {"window_start": TIME} | texts("ingress", "listener") | counts("hits", "misses")
    ingresses = [(START, f"ingress-{place}", "external", 1, 0) for place in range(9)]
    put(
        root / "listener_windows",
        hits,
        [
            (START, "public", "external", 20, 0), (START, "public", None, 0, 1), (LATER, "public", "external", 1, 0),
            (LATER, None, None, 0, 4), *ingresses,
        ],
    )  # fmt: skip
    windows = {"window_start": TIME} | texts("ingress", "kind") | {"p95_ms": NUMBER}
    rows = [
        (START, "public", "lookup", 2.0), (START + timedelta(minutes=5), "public", "lookup", 9.0),
        (LATER, "public", "admin", 7.0), (LATER, None, "lookup", 5.0),
    ]  # fmt: skip
    put(root / "latency_windows", windows, rows)
    buckets = {"window_start": TIME} | texts("ingress", "kind") | {"bucket": NUMBER, "requests": COUNT}
    timed = [
        (START, "public", "lookup", 100.0, 90), (START + timedelta(minutes=5), "public", "lookup", 900.0, 10),
        (LATER, "public", "admin", 7000.0, 5), (LATER, None, "lookup", 500.0, 5), (LATER, None, "lookup", None, 1),
    ]  # fmt: skip
    put(root / "latency_buckets", buckets, timed)
    put_judged(root)
    put_missed(root)
    changes = texts("topic") | counts("lookups", "changes", "brokers")
    put(root / "owner_changes", changes, [("persistent://a/b/c", 9, 3, 2), ("persistent://a/b/still", 9, 0, 1)])
    days = [(day, "a", "b", 10, 9, 1, 2) for day in (START.date(), LATER.date())]
    sums = texts("tenant", "namespace") | counts("lookups", "hits", "misses", "redirects")
    put(root / "namespaces", {"date": pa.date32()} | sums, days)
    put(root / "quarantine", texts("file", "line_text", "reason"), [("f", "{", "bad")])
    return root


def test_a_report_counts_what_the_tables_hold(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "report.html"
    made = write(str(tables), str(out), made=MADE, config=load_mapping(CONFIG))
    assert made.absent == ("client_named",)
    assert made.clusters == ("pulsar",)
    assert made.bins is not None
    assert (made.bins.start, made.bins.step, made.bins.count) == (START, timedelta(minutes=30), 49)
    assert set(made.hits) == {
        Hits(0, "public", 20, 1), Hits(48, "public", 1, 0), Hits(48, None, 0, 4), Hits(0, Others(2), 2, 0),
        *(Hits(0, f"ingress-{place}", 1, 0) for place in range(7)),
    }  # fmt: skip
    assert [(cell.place, cell.requests, cell.worst) for cell in made.latency] == [(0, 100, 9.0), (48, 5, 5.0)]
    quantiles = [value for cell in made.latency for value in (cell.p50, cell.p95, cell.p99)]
    assert quantiles == pytest.approx([99.0, 891.0, 891.0, 495.0, 495.0, 495.0])
    assert [cell.ingress for cell in made.latency_by_ingress] == ["public", None]
    assert sum(flow.lookups for flow in made.flows) == 23
    assert Flow("public", "external", "b-0", True, 3) in made.flows
    assert Flow("public", "external", Others(8), True, 8) in made.flows
    assert Flow("public", None, None, False, 1) in made.flows
    rows: dict[str, tuple[Row, ...]] = {
        "redirects": (Redirects("lookup", "followed", 10, 3),),
        "leaks": (Leak("public", "external", "body", None, "x", 1, START, START),),
        "loops": (Loop("external", "t", "client", ["a:443", "b:443"], 4, START, LATER),),
        "objectives": (Objective("public", 200, 199, 0.5), Objective(None, 9, 8, -10.1)),
        "strays": (Stray("x.example.com", "seen-not-configured", None, 7, 6, START, LATER),),
        "generations": (Generation("s", 3, START, 1000, 600, 0.1), Generation("s", 2, LATER, 100, 50, -0.5)),
        "anomalies": (
            Anomaly(LATER, None, "p95_ms", 90.0, 9.0, 4, 40.0),
            Anomaly(START, "public", "lookups", 0.0, 500.0, 3, -10.0),
        ),
        "moved": (Moved("a/b", 1, 3),),
        "misses": (
            Miss(None, "<script>", "no-rule", "http", 4, LATER, LATER),
            Miss("public", "pulsar.example.com", "not-allowed", "http", 3, START, START, "internal"),
        ),
        "owners": (Owner("persistent://a/b/c", 9, 3, 2),),
        "namespaces": (Namespace("a", "b", 18, 2, 4),),
        "quarantine": (Counted("bad", 1),),
    }
    for name, expected in rows.items():
        found = getattr(made, name).rows
        assert len(found) == len(expected)
        assert [one | other for one, other in zip(found, expected, strict=True)] == list(found), name
    assert made.unused == [("partners", "pulsar.partner.example"), ("public", "*.calm.example.com")]
    assert made.unmapped.rows[0] == Unmapped("external", "10.0.0.119:8080", 120, START, START)
    assert (len(made.unmapped.rows), made.unmapped.count, made.unmapped.total) == (100, 120, 7260)
    assert made.topics == 2
    assert made.numbers is not None
    assert (made.numbers.lookups, made.numbers.hits, made.numbers.unmapped) == (35, 30, 7260)
    html = out.read_text()
    assert "&lt;script&gt;" in html
    assert read(html) == made.numbers
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_days_option_limits_the_report_to_the_newest_events(tables: Path, tmp_path: Path) -> None:
    older = Report(str(tables), START, numbers=Numbers(str(tables), START, START, 30, 29, 7000, 1, 0))
    (tmp_path / "older.html").write_text(page(older, None))
    out, before = (tmp_path / "report.html").as_uri(), str(tmp_path / "older.html")
    made = write(str(tables), out, before, days=1, made=MADE)
    assert sum(flow.lookups for flow in made.flows) == 1
    assert {miss["host"] for miss in made.misses.rows} == {"<script>"}
    assert [top.count for top in (made.redirects, made.leaks, made.loops, made.anomalies)] == [0, 0, 1, 1]
    assert [row["generation"] for row in made.generations.rows] == [3, 2]
    assert made.unused is None
    assert made.bins is not None
    assert made.bins.start == START
    assert made.numbers is not None
    assert made.numbers.lookups == 35
    html = (tmp_path / "report.html").read_text()
    assert "It was made 2026-11-16 09:00 UTC" in html
    assert "+260 since last time" in html
    assert read(html) == made.numbers


def test_windows_in_the_future_are_counted_but_not_plotted(tables: Path, tmp_path: Path) -> None:
    """They count, and are in no plot."""
    made = write(str(tables), str(tmp_path / "report.html"), days=1, made=START + timedelta(hours=2))
    assert made.bins is not None
    assert (made.bins.start, made.bins.time(made.bins.count)) == (START, START + timedelta(hours=2, minutes=5))
    assert sum(cell.requests for cell in made.latency) == 100
    assert made.numbers is not None
    assert made.numbers.lookups == 35


def test_report_is_written_for_empty_and_missing_tables(tmp_path: Path) -> None:
    put(tmp_path / "tables/misses", texts("ingress", "host", "reason", "protocol") | counts("misses") | SEEN, [])
    made = write(str(tmp_path / "tables"), str(tmp_path / "report.html"))
    assert made.numbers is None
    assert "misses" not in made.absent
    assert "listener_windows" in made.absent
    assert "The tables contain no lookups." in (tmp_path / "report.html").read_text()


def test_missing_tables_bad_since_file_and_unwritable_output_raise_faults(tables: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineFault, match="there are no tables; make them with `run`"):
        write(str(tmp_path / "nowhere"), str(tmp_path / "report.html"))
    with pytest.raises(PipelineFault, match="is not a report with numbers"):
        write(str(tables), str(tmp_path / "report.html"), since=str(tmp_path / "older.html"))
    with pytest.raises(PipelineFault, match="Is a directory"):
        write(str(tables), str(tmp_path))
    with pytest.raises(PipelineFault, match=r"^/proc/nowhere/.*: cannot be written: No such"):
        write(str(tables), "/proc/nowhere/report.html")


@pytest.mark.parametrize(
    ("counts_", "expected"),
    [
        ([(100.0, 1)], [100, 100, 100]),
        ([(100.0, 1), (200.0, 1)], [150, 195, 199]),
        ([(100.0, 90), (900.0, 10)], [100, 900, 900]),
        ([(100.0, 95), (200.0, 5)], [100, 105, 200]),
        ([(1.0, 10**12), (2.0, 1)], [1, 1, 1]),
    ],
)
def test_quantiles_of_buckets_are_interpolated_like_those_of_spark(
    counts_: list[tuple[float, int]], expected: list[float]
) -> None:
    bounds, requests = np.array([bound for bound, _ in counts_]), np.array([count for _, count in counts_])
    assert quantiles(bounds, requests) == pytest.approx([0.99 * value for value in expected])
