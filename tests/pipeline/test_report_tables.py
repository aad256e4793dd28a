"""From tables to the page, with Spark: what is counted, what is bounded, and what is not there."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.report import Report, page, write
from pulsar_ingress_pipeline.report.records import (
    Anomaly,
    Flow,
    Generation,
    Hits,
    Leak,
    Loop,
    Miss,
    Moved,
    Namespace,
    Numbers,
    Objective,
    Others,
    Owner,
    Redirects,
    Stray,
    Unmapped,
)  # fmt: skip
from pulsar_ingress_pipeline.report.since import read
from pulsar_ingress_proxy.config import load_mapping

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
LATER = START + timedelta(days=1)
TIME = pa.timestamp("us", tz="UTC")
EVENT = {
    "time": TIME, "kind": pa.string(), "cluster": pa.string(), "ingress": pa.string(), "listener": pa.string(),
    "broker": pa.string(), "host": pa.string(), "hit": pa.bool_(), "miss_reason": pa.string(),
    "client_named": pa.string(),
}  # fmt: skip


def put(folder: Path, columns: dict[str, Any], rows: Iterable[tuple[Any, ...]]) -> None:
    folder.mkdir(parents=True)
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(list(value), kind) for value, kind in zip(values, columns.values(), strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), folder / "part.parquet")


def event(time: datetime, **changes: Any) -> tuple[Any, ...]:
    usual = {
        "time": time, "kind": "lookup", "cluster": "pulsar", "ingress": "public", "listener": "external",
        "broker": "b-0", "host": "pulsar.example.com", "hit": True,
    }  # fmt: skip
    return tuple((usual | changes).get(name) for name in EVENT)


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
REFUSED = {"hit": False, "listener": None, "broker": None, "miss_reason": "not-allowed"}


def put_judged(root: Path) -> None:
    """Tables that judge what others count."""
    text, count, number, seen = pa.string(), pa.int64(), pa.float64(), {"first_seen": TIME, "last_seen": TIME}
    hops = {"window_start": TIME, "kind": text, "action": text, "hops": count, "requests": count}
    put(root / "redirect_hops", hops, [(START, "lookup", "followed", 30, 1), (START, "lookup", "followed", 12, 2)])
    keys = dict.fromkeys(("ingress", "listener", "found_in", "address", "user_agent"), text)
    put(root / "leaks", keys | {"leaks": count} | seen, [("public", "external", "body", None, "x", 1, START, START)])
    loop = {"listener": text, "topic": text, "followed_by": text, "brokers": pa.list_(text), "loops": count}
    put(root / "redirect_loops", loop | seen, [("external", "t", "client", ["a:443", "b:443"], 4, START, LATER)])
    days = {"date": pa.date32(), "ingress": text, "period_lookups": count, "period_good": count, "budget_left": number}
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
    drift = {"host": text, "state": text, "ingress": text, "requests": count, "lookups": count}
    put(root / "drift", drift | seen, [("x.example.com", "seen-not-configured", None, 7, 6, START, LATER)])
    put(root / "hosts", {"host": text}, [("pulsar.example.com",), ("a.wild.example.com",), ("x.example.com",)])
    of = {"sidecar": text, "generation": count, "lookups": count, "hits": count, "hit_ratio_change": number}
    rows = [
        ("s", 2, 100, 50, -0.5, LATER, LATER), ("s", 3, 1000, 600, 0.1, START, LATER),
        ("s", 4, 9, 0, -0.6, START, START),
        ("s", 1, 900, 900, None, START, START), ("s", 5, 900, 540, 0.0, START, START),
    ]  # fmt: skip
    put(root / "generations", of | seen, rows)
    odd = {"window_start": TIME, "ingress": text, "what": text, "value": number, "usual": number, "days": count}
    rows_ = [(START, "public", "lookups", 0.0, 500.0, 3, -10.0), (LATER, None, "p95_ms", 90.0, 9.0, 4, 40.0)]
    put(root / "anomalies", odd | {"score": number}, rows_)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    lookups = [event(START, broker=f"b-{place}") for place in range(20)]
    lookups += [event(START), event(START, **REFUSED, client_named="internal")]
    put(root / "events/date=2026-11-16/hour=9", EVENT, lookups)
    put(root / "events/date=2026-11-17/hour=9", EVENT, [event(LATER), event(LATER, kind="admin")])
    hits = {"window_start": TIME, "ingress": pa.string(), "hits": pa.int64(), "misses": pa.int64()}
    doors = [(START, f"door-{place}", 1, 0) for place in range(9)]
    put(
        root / "listener_windows",
        hits,
        [(START, "public", 20, 1), (LATER, "public", 1, 0), (LATER, None, 0, 4), *doors],
    )
    quantiles = {name: pa.float64() for name in ("p50_ms", "p95_ms", "p99_ms")}
    windows = {"window_start": TIME, "ingress": pa.string(), "kind": pa.string(), "requests": pa.int64()} | quantiles
    rows = [
        (START, "public", "lookup", 90, 1.0, 2.0, 3.0),
        (START + timedelta(minutes=5), "public", "lookup", 10, 9.0, 9.0, 9.0),
        (LATER, "public", "admin", 5, 7.0, 7.0, 7.0), (LATER, None, "lookup", 5, 4.0, 5.0, 6.0),
    ]  # fmt: skip
    put(root / "latency_windows", windows, rows)
    buckets = {"window_start": TIME, "ingress": pa.string(), "kind": pa.string(), "bucket": pa.float64()}
    timed = [
        (START, "public", "lookup", 100.0, 90), (START + timedelta(minutes=5), "public", "lookup", 900.0, 10),
        (LATER, "public", "admin", 7000.0, 5), (LATER, None, "lookup", 500.0, 5), (LATER, None, "lookup", None, 1),
    ]  # fmt: skip
    put(root / "latency_buckets", buckets | {"requests": pa.int64()}, timed)
    put_judged(root)
    seen = {"first_seen": TIME, "last_seen": TIME}
    words = ("ingress", "host", "reason", "protocol")
    put(
        root / "misses",
        {name: pa.string() for name in words} | {"misses": pa.int64()} | seen,
        [
            ("public", "pulsar.example.com", "not-allowed", "http", 1, START, START),
            (None, "<script>", "no-rule", "http", 4, LATER, LATER),
        ],
    )
    put(
        root / "unmapped_addresses",
        {"listener": pa.string(), "address": pa.string(), "redirects": pa.int64()} | seen,
        [("external", f"10.0.0.{place}:8080", 1 + place, START, START) for place in range(120)],
    )
    changes = {"topic": pa.string(), "lookups": pa.int64(), "changes": pa.int64(), "brokers": pa.int64()}
    put(root / "owner_changes", changes, [("persistent://a/b/c", 9, 3, 2), ("persistent://a/b/still", 9, 0, 1)])
    sums = {name: pa.int64() for name in ("lookups", "hits", "misses", "redirects")}
    days = [(day, "a", "b", 10, 9, 1, 2) for day in (START.date(), LATER.date())]
    put(root / "namespaces", {"date": pa.date32(), "tenant": pa.string(), "namespace": pa.string()} | sums, days)
    put(
        root / "quarantine", {"file": pa.string(), "line_text": pa.string(), "reason": pa.string()}, [("f", "{", "bad")]
    )
    return root


def test_a_report_counts_what_the_tables_hold(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "report.html"
    made = write(spark, str(tables), str(out), made=MADE, config=load_mapping(CONFIG))
    assert made.absent == ("client_named",)
    assert made.clusters == ("pulsar",)
    assert made.bins is not None
    assert (made.bins.start, made.bins.step, made.bins.count) == (START, timedelta(minutes=30), 49)
    assert set(made.hits) == {
        Hits(0, "public", 20, 1), Hits(48, "public", 1, 0), Hits(48, None, 0, 4), Hits(0, Others(2), 2, 0),
        *(Hits(0, f"door-{place}", 1, 0) for place in range(7)),
    }  # fmt: skip
    assert [(cell.place, cell.requests, cell.worst) for cell in made.latency] == [(0, 100, 9.0), (48, 5, 5.0)]
    quantiles = [value for cell in made.latency for value in (cell.p50, cell.p95, cell.p99)]
    assert quantiles == pytest.approx([99.0, 891.0, 891.0, 495.0, 495.0, 495.0])
    assert [cell.ingress for cell in made.latency_by_ingress] == ["public", None]
    assert sum(flow.lookups for flow in made.flows) == 23
    assert Flow("public", "external", "b-0", True, 3) in made.flows
    assert Flow("public", "external", Others(8), True, 8) in made.flows
    assert Flow("public", None, None, False, 1) in made.flows
    assert made.redirects == (Redirects("lookup", "followed", 10, 3),)
    assert made.leaks.rows == (Leak("public", "external", "body", None, "x", 1, START, START),)
    assert made.loops.rows == (Loop("external", "t", "client", ("a:443", "b:443"), 4, START, LATER),)
    assert made.objectives == (Objective("public", 200, 199, 0.5), Objective(None, 9, 8, -10.1))
    assert made.strays.rows == (Stray("x.example.com", "seen-not-configured", None, 7, 6, START, LATER),)
    assert made.unseen == (("partners", "pulsar.partner.example"), ("public", "*.calm.example.com"))
    assert made.generations.rows == (
        Generation("s", 3, START, 1000, 600, 0.1),
        Generation("s", 2, LATER, 100, 50, -0.5),
    )
    assert [row.score for row in made.anomalies.rows] == [40.0, -10.0]
    assert made.anomalies.rows[0] == Anomaly(LATER, None, "p95_ms", 90.0, 9.0, 4, 40.0)
    assert made.moved == (Moved("a/b", 1, 3),)
    assert made.misses.rows == (
        Miss(None, "<script>", "no-rule", "http", 4, LATER, LATER),
        Miss("public", "pulsar.example.com", "not-allowed", "http", 1, START, START, "internal"),
    )
    assert made.unmapped.rows[0] == Unmapped("external", "10.0.0.119:8080", 120, START, START)
    assert (len(made.unmapped.rows), made.unmapped.count, made.unmapped.total) == (100, 120, 7260)
    assert made.owners.rows == (Owner("persistent://a/b/c", 9, 3, 2),)
    assert made.topics == 2
    assert made.namespaces.rows == (Namespace("a", "b", 18, 2, 4),)
    assert made.numbers is not None
    assert (made.numbers.lookups, made.numbers.hits, made.numbers.unmapped) == (35, 30, 7260)
    html = out.read_text()
    assert "&lt;script&gt;" in html
    assert read(html) == made.numbers
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_days_option_limits_the_report_to_the_newest_events(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    older = Report(str(tables), START, numbers=Numbers(str(tables), START, START, 30, 29, 7000, 1, 0))
    (tmp_path / "older.html").write_text(page(older, None))
    out, before = (tmp_path / "report.html").as_uri(), str(tmp_path / "older.html")
    made = write(spark, str(tables), out, before, days=1, made=MADE)
    assert sum(flow.lookups for flow in made.flows) == 1
    assert {miss.host for miss in made.misses.rows} == {"<script>"}
    assert [len(rows) for rows in (made.redirects, made.leaks.rows, made.loops.rows, made.anomalies.rows)] == [
        0,
        0,
        1,
        1,
    ]
    assert [row.generation for row in made.generations.rows] == [3, 2]
    assert made.unseen is None
    assert made.bins is not None
    assert made.bins.start == START
    assert made.numbers is not None
    assert made.numbers.lookups == 35
    html = (tmp_path / "report.html").read_text()
    assert "It was made 2026-11-16 09:00 UTC" in html
    assert "+260 since last time" in html
    assert read(html) == made.numbers


def test_windows_in_the_future_are_counted_but_not_plotted(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    """They count, and are in no plot."""
    made = write(spark, str(tables), str(tmp_path / "report.html"), days=1, made=START + timedelta(hours=2))
    assert made.bins is not None
    assert (made.bins.start, made.bins.time(made.bins.count)) == (START, START + timedelta(hours=2, minutes=5))
    assert sum(cell.requests for cell in made.latency) == 100
    assert made.numbers is not None
    assert made.numbers.lookups == 35


def test_report_is_written_for_empty_and_missing_tables(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "tables/misses").mkdir(parents=True)
    put(tmp_path / "tables/events/date=2026-11-16/hour=9", EVENT, [])
    made = write(spark, str(tmp_path / "tables"), str(tmp_path / "report.html"))
    assert made.numbers is None
    assert "misses" not in made.absent
    assert "listener_windows" in made.absent
    assert "The tables hold no lookups." in (tmp_path / "report.html").read_text()


def test_missing_tables_bad_since_file_and_unwritable_output_raise_faults(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(PipelineFault, match="there are no tables here"):
        write(spark, str(tmp_path / "nowhere"), str(tmp_path / "report.html"))
    with pytest.raises(PipelineFault, match="is no report with numbers"):
        write(spark, str(tables), str(tmp_path / "report.html"), since=str(tmp_path / "older.html"))
    with pytest.raises(PipelineFault, match="cannot be read: Is a directory"):
        write(spark, str(tables), str(tmp_path))
