"""From tables to records, with Spark: what is large is counted where it lies, and only bounded results come here."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pipeline.report import ways
from pipeline.report.counting import Names, first_rows, place_in, sum_of, time_of
from pipeline.report.records import (
    Bins,
    Counted,
    Hits,
    Latency,
    Miss,
    Namer,
    Namespace,
    Numbers,
    Owner,
    Report,
    Top,
    Unmapped,
)  # fmt: skip
from pipeline.report.scales import WINDOW, bins
from pipeline.schema import EVENTS
from pipeline.storage import Storage, literal, shown
from pipeline.tables import DERIVED

_KEPT = 100
"""Rows of a ranking that come here."""
_COLUMNS = 96
_INGRESSES = 8

Record = TypeVar("Record")

_PARTITIONS = [T.StructField("date", T.DateType()), T.StructField("hour", T.IntegerType())]
_SCHEMAS = {table.name: table.schema for table in DERIVED} | {
    "events": T.StructType([*EVENTS.fields, *_PARTITIONS]),
    "quarantine": T.StructType([T.StructField(name, T.StringType()) for name in ("file", "line_text", "reason")]),
}
_USED = (
    "events", "quarantine", "listener_windows", "misses", "namespaces", "latency_windows", "unmapped_addresses",
    "owner_changes", "client_named",
)  # fmt: skip


def gather(spark: SparkSession, tables: Storage, days: int | None, made: datetime) -> Report:
    """`days` are counted back from the newest window; None is all there is."""
    absent = tuple(name for name in _USED if not tables.exists(name))

    def table(name: str) -> DataFrame:
        """A table that is not there has no rows."""
        if name in absent:
            return spark.createDataFrame([], _SCHEMAS[name])
        return spark.read.schema(_SCHEMAS[name]).parquet(literal(tables.path(name)))

    windows = table("listener_windows").withColumn("lookups", F.col("hits") + F.col("misses"))
    first, last = _span(windows, table("latency_windows"))
    start = first if days is None or last is None or first is None else max(first, last + WINDOW - timedelta(days=days))
    columns = None if start is None or last is None else bins(start, last, _COLUMNS)
    ingresses = Names.most_used(windows, "ingress", "lookups", _INGRESSES)
    since = None if days is None else start
    unmapped, owners = table("unmapped_addresses"), table("owner_changes")
    moved = _top(owners.where(F.col("changes") > 0), "changes", Owner, ("topic", "lookups", "changes", "brokers"))
    bad = _quarantine(table("quarantine"))
    lookups, hits = _sums(windows, "lookups", "hits")
    (redirects,) = _sums(unmapped, "redirects")
    name = shown(tables.url)
    seen = ways.ways(table("events"), since)
    return Report(
        tables=name,
        made=made,
        days=days,
        absent=absent,
        clusters=seen.clusters,
        numbers=None if last is None else Numbers(name, made, last, lookups, hits, redirects, moved.total, bad.total),
        bins=columns,
        hits=() if columns is None else _hits(windows, columns, ingresses),
        latency=() if columns is None else _latency(table("latency_windows"), columns, None),
        latency_by_ingress=() if columns is None else _latency(table("latency_windows"), columns, ingresses),
        flows=seen.flows,
        redirects=seen.redirects,
        leaks=seen.leaks,
        misses=_misses(table("misses"), table("events"), since),
        unmapped=_top(
            _seen(unmapped, since),
            "redirects",
            Unmapped,
            ("listener", "address", "redirects", "first_seen", "last_seen"),
        ),
        owners=moved,
        topics=owners.count(),
        namers=_top(table("client_named"), "lookups", Namer, ("user_agent", "tenant", "listener", "lookups")),
        namespaces=_namespaces(table("namespaces")),
        quarantine=bad,
    )


def _span(*windows: DataFrame) -> tuple[datetime | None, datetime | None]:
    """The first and the last window that there is."""
    times = windows[0].select("window_start")
    for more in windows[1:]:
        times = times.union(more.select("window_start"))
    first, last = times.select(F.unix_micros("window_start").alias("at")).agg(F.min("at"), F.max("at")).collect()[0]
    return time_of(first), time_of(last)


def _sums(frame: DataFrame, *names: str) -> list[int]:
    return [int(value) for value in frame.agg(*(sum_of(name) for name in names)).collect()[0]]


def _seen(frame: DataFrame, since: datetime | None) -> DataFrame:
    return frame if since is None else frame.where(F.col("last_seen") >= F.lit(since))


def _top(frame: DataFrame, measure: str, make: Callable[..., Record], columns: tuple[str, ...]) -> Top[Record]:
    rows, count, total = first_rows(frame, columns, measure, _KEPT)
    return Top(tuple(make(*row) for row in rows), count, total)


def _hits(windows: DataFrame, columns: Bins, ingresses: Names) -> tuple[Hits, ...]:
    rows = (
        windows.where(F.col("window_start") >= F.lit(columns.start))
        .groupBy(place_in(columns, "window_start"), *ingresses.keys)
        .agg(sum_of("hits"), sum_of("misses"))
        .orderBy("place", "ingress")
        .collect()
    )
    return tuple(Hits(row["place"], ingresses.of(row), row["hits"], row["misses"]) for row in rows)


def _latency(windows: DataFrame, columns: Bins, ingresses: Names | None) -> tuple[Latency, ...]:
    is_counted: Column = (F.col("kind") == "lookup") & (F.col("requests") > 0) & F.col("p99_ms").isNotNull()
    quantiles = [F.percentile(name, 0.5, F.col("requests")).alias(name) for name in ("p50_ms", "p95_ms", "p99_ms")]
    rows = (
        windows.where(is_counted & (F.col("window_start") >= F.lit(columns.start)))
        .groupBy(place_in(columns, "window_start"), *(ingresses.keys if ingresses else ()))
        .agg(sum_of("requests"), *quantiles, F.max("p95_ms").alias("worst"))
        .orderBy("place")
        .collect()
    )
    return tuple(
        Latency(
            row["place"],
            None if ingresses is None else ingresses.of(row),
            row["requests"],
            *(row[name] for name in ("p50_ms", "p95_ms", "p99_ms", "worst")),
        )
        for row in rows
    )


def _misses(misses: DataFrame, events: DataFrame, since: datetime | None) -> Top[Miss]:
    """With the names that clients asked for, where a name is why: the table has none, so the events are asked."""
    columns = ("ingress", "host", "reason", "protocol", "misses", "first_seen", "last_seen")
    top = _top(_seen(misses, since), "misses", Miss, columns)
    if not any(miss.reason in ways.NAMED for miss in top.rows):
        return top
    named = ways.names_asked(events, since, _KEPT)
    rows = tuple(replace(miss, named=named.get((miss.ingress, miss.host, miss.reason))) for miss in top.rows)
    return Top(rows, top.count, top.total)


def _namespaces(days: DataFrame) -> Top[Namespace]:
    sums = [sum_of(name) for name in ("lookups", "hits", "misses", "redirects")]
    return _top(
        days.groupBy("tenant", "namespace").agg(*sums),
        "lookups",
        Namespace,
        ("tenant", "namespace", "hits", "misses", "redirects"),
    )


def _quarantine(lines: DataFrame) -> Top[Counted]:
    counted = lines.groupBy(F.col("reason").alias("word")).agg(F.count(F.lit(1)).alias("count"))
    return _top(counted, "count", Counted, ("word", "count"))
