"""From tables to records, with Spark: what is large is counted where it lies, and only bounded results come here."""

from dataclasses import replace
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.report import findings, ways
from pulsar_ingress_pipeline.report.counting import Names, place_in, sum_of, time_of
from pulsar_ingress_pipeline.report.findings import KEPT, recent, top
from pulsar_ingress_pipeline.report.records import (
    Bins,
    Counted,
    Hits,
    Latency,
    Miss,
    Name,
    Namer,
    Namespace,
    Numbers,
    Owner,
    Report,
    Top,
    Unmapped,
)  # fmt: skip
from pulsar_ingress_pipeline.report.scales import WINDOW, bins
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_pipeline.storage import Storage, literal, shown
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_pipeline.tables.sources import quantiles_of

_COLUMNS = 96
_INGRESSES = 8

_PARTITIONS = [T.StructField("date", T.DateType()), T.StructField("hour", T.IntegerType())]
_SCHEMAS = {table.name: table.schema for table in DERIVED} | {
    "events": T.StructType([*EVENTS.fields, *_PARTITIONS]),
    "quarantine": T.StructType([T.StructField(name, T.StringType()) for name in ("file", "line_text", "reason")]),
}
_USED = (
    "events", "quarantine", "listener_windows", "misses", "namespaces", "latency_windows", "unmapped_addresses",
    "owner_changes", "client_named", "latency_buckets", "redirect_hops", "redirect_loops", "leaks", "drift", "slo_days",
    "generations", "anomalies",
)  # fmt: skip


def gather(
    spark: SparkSession,
    tables: Storage,
    days: int | None,
    made: datetime,
    unseen: tuple[tuple[str, str], ...] | None = None,
) -> Report:
    """`days` are counted back from the newest window that can be; None is all there is."""
    absent = tuple(name for name in _USED if not tables.exists(name))

    def table(name: str) -> DataFrame:
        """A table that is not there has no rows."""
        if name in absent:
            return spark.createDataFrame([], _SCHEMAS[name])
        return spark.read.schema(_SCHEMAS[name]).parquet(literal(tables.path(name)))

    windows = table("listener_windows").withColumn("lookups", F.col("hits") + F.col("misses"))
    first, last = _span(windows, table("latency_windows"))
    if first is not None and last is not None and first < made < last:  # somebody's clock is ahead
        last = made
    start = first if days is None or last is None or first is None else max(first, last + WINDOW - timedelta(days=days))
    columns = None if start is None or last is None else bins(start, last, _COLUMNS)
    ingresses = Names.most_used(windows, "ingress", "lookups", _INGRESSES)
    since = None if days is None else start
    unmapped, owners = table("unmapped_addresses"), table("owner_changes")
    moved = top(owners.where(F.col("changes") > 0), "changes", Owner, ("topic", "lookups", "changes", "brokers"))
    bad = _quarantine(table("quarantine"))
    lookups, hits = _sums(windows, "lookups", "hits")
    (redirects,) = _sums(unmapped, "redirects")
    name = shown(tables.url)
    seen = ways.ways(table("events"), since)
    latencies = (table("latency_buckets"), table("latency_windows"))
    return Report(
        tables=name,
        made=made,
        days=days,
        absent=absent,
        clusters=seen.clusters,
        numbers=None if last is None else Numbers(name, made, last, lookups, hits, redirects, moved.total, bad.total),
        bins=columns,
        hits=() if columns is None else _hits(windows, columns, ingresses),
        latency=() if columns is None else _latency(*latencies, columns, None),
        latency_by_ingress=() if columns is None else _latency(*latencies, columns, ingresses),
        flows=seen.flows,
        redirects=findings.redirects(table("redirect_hops"), since),
        leaks=findings.leaks(table("leaks"), since),
        loops=findings.loops(table("redirect_loops"), since),
        objectives=findings.objectives(table("slo_days")),
        strays=findings.strays(table("drift"), since),
        unseen=unseen,
        generations=findings.generations(table("generations"), since),
        anomalies=findings.anomalies(table("anomalies"), since),
        misses=_misses(table("misses"), table("events"), since),
        unmapped=top(
            recent(unmapped, since),
            "redirects",
            Unmapped,
            ("listener", "address", "redirects", "first_seen", "last_seen"),
        ),
        owners=moved,
        topics=owners.count(),
        moved=findings.moved(owners),
        namers=top(table("client_named"), "lookups", Namer, ("user_agent", "tenant", "listener", "lookups")),
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


def _is_in(columns: Bins) -> Column:
    time = F.col("window_start")
    return (time >= F.lit(columns.start)) & (time < F.lit(columns.time(columns.count)))


def _sums(frame: DataFrame, *names: str) -> list[int]:
    return [int(value) for value in frame.agg(*(sum_of(name) for name in names)).collect()[0]]


def _hits(windows: DataFrame, columns: Bins, ingresses: Names) -> tuple[Hits, ...]:
    rows = (
        windows.where(_is_in(columns))
        .groupBy(place_in(columns, "window_start"), *ingresses.keys)
        .agg(sum_of("hits"), sum_of("misses"))
        .orderBy("place", "ingress")
        .collect()
    )
    return tuple(Hits(row["place"], ingresses.of(row), row["hits"], row["misses"]) for row in rows)


def _latency(buckets: DataFrame, windows: DataFrame, columns: Bins, ingresses: Names | None) -> tuple[Latency, ...]:
    """Quantiles of all lookups in a column, from the buckets; and of its worst five minutes."""
    keys = [place_in(columns, "window_start"), *(ingresses.keys if ingresses else ())]

    def name_of(row: Row) -> Name:
        return None if ingresses is None else ingresses.of(row)

    def lookups(frame: DataFrame, known: str) -> GroupedData:
        is_counted = (F.col("kind") == "lookup") & F.col(known).isNotNull()
        return frame.where(is_counted & _is_in(columns)).groupBy(*keys)

    worst = {
        (row["place"], name_of(row)): row["worst"]
        for row in lookups(windows, "p95_ms").agg(F.max("p95_ms").alias("worst")).collect()
    }
    quantiles = [column.alias(name) for column, name in zip(quantiles_of("bucket"), ("p50", "p95", "p99"), strict=True)]
    rows = lookups(buckets, "bucket").agg(sum_of("requests"), *quantiles).orderBy("place").collect()
    return tuple(
        Latency(
            row["place"],
            name_of(row),
            row["requests"],
            row["p50"],
            row["p95"],
            row["p99"],
            worst.get((row["place"], name_of(row)), row["p95"]),
        )
        for row in rows
    )


def _misses(misses: DataFrame, events: DataFrame, since: datetime | None) -> Top[Miss]:
    """With the names that clients asked for, where a name is why: the table has none, so the events are asked."""
    columns = ("ingress", "host", "reason", "protocol", "misses", "first_seen", "last_seen")
    most = top(recent(misses, since), "misses", Miss, columns)
    if not any(miss.reason in ways.NAMED for miss in most.rows):
        return most
    named = ways.names_asked(events, since, KEPT)
    rows = tuple(replace(miss, named=named.get((miss.ingress, miss.host, miss.reason))) for miss in most.rows)
    return Top(rows, most.count, most.total)


def _namespaces(days: DataFrame) -> Top[Namespace]:
    sums = [sum_of(name) for name in ("lookups", "hits", "misses", "redirects")]
    return top(
        days.groupBy("tenant", "namespace").agg(*sums),
        "lookups",
        Namespace,
        ("tenant", "namespace", "hits", "misses", "redirects"),
    )


def _quarantine(lines: DataFrame) -> Top[Counted]:
    counted = lines.groupBy(F.col("reason").alias("word")).agg(F.count(F.lit(1)).alias("count"))
    return top(counted, "count", Counted, ("word", "count"))
