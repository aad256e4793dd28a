"""Hits and misses: by window, by sidecar, by host, by namespace."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables.sources import counted, is_hit, is_lookup, span_of, window_of
from pulsar_ingress_pipeline.tables.table import COUNT, DAY, SPAN, STRING, TIME, Field, Table


def sum_where(condition: Column, name: str = "requests") -> Column:
    return F.sum(F.when(condition, F.col(name)).otherwise(F.lit(0)))


def listener_windows(counts: DataFrame) -> DataFrame:
    return _windows(counts)


def sidecar_windows(counts: DataFrame) -> DataFrame:
    return _windows(counts, "sidecar")


def _windows(counts: DataFrame, *more: str) -> DataFrame:
    return (
        counts.where(is_lookup())
        .groupBy("window_start", *more, "ingress", "listener", "rule", "protocol")
        .agg(sum_where(F.col("hit")).alias("hits"), sum_where(~F.col("hit")).alias("misses"))
    )


def misses(counts: DataFrame) -> DataFrame:
    """Each hour's misses."""
    missed = counts.where(is_lookup() & ~F.col("hit"))
    return _misses(missed, span_of("window_start"), F.col("miss_reason").alias("reason"), "requests")


def merge_misses(parts: DataFrame) -> DataFrame:
    return _misses(parts, F.col(SPAN), F.col("reason"), "misses")


def _misses(rows: DataFrame, span: Column, reason: Column, measure: str) -> DataFrame:
    return rows.groupBy(span, "ingress", "host", reason, "protocol").agg(F.sum(measure).alias("misses"), *seen())


def seen() -> list[Column]:
    """First and last, of rows that have both."""
    return [F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen")]


def namespaces(events: DataFrame) -> DataFrame:
    """Each hour's lookups by namespace."""
    return (
        events.where(is_lookup())
        .groupBy(window_of("time", minutes=60).alias("hour"), "tenant", "namespace")
        .agg(
            F.count(F.lit(1)).alias("lookups"),
            F.count_if(is_hit()).alias("hits"),
            F.count_if(~is_hit()).alias("misses"),
            F.count("redirect_from").alias("redirects"),
        )
        .select(span_of("hour"), "tenant", "namespace", "lookups", "hits", "misses", "redirects")
    )


def merge_namespaces(parts: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("lookups", "hits", "misses", "redirects")]
    return parts.groupBy(SPAN, "tenant", "namespace").agg(*sums)


def finish_namespaces(merged: DataFrame) -> DataFrame:
    return merged.withColumn("date", F.to_date(SPAN))


WINDOW = Field("window_start", TIME, "start of the five minutes, UTC")
INGRESS = Field("ingress", STRING, "the ingress it came through; null: none")
LISTENER = Field("listener", STRING, "the listener selected; null: none")
RULE = Field("rule", STRING, "rule that decided: query, header, bind, ingress, default or none")
PROTOCOL = Field("protocol", STRING, "http or binary")
KIND = Field("kind", STRING, "lookup, admin or other")
HITS = Field("hits", COUNT, "lookups that had a listener and were served by it")
MISSES = Field("misses", COUNT, "lookups that were not")
FIRST = Field("first_seen", TIME, "time of the first")
LAST = Field("last_seen", TIME, "time of the last")
LOOKUPS = Field("lookups", COUNT, "lookups, hits and misses together")
SIDECAR = Field("sidecar", STRING, "the sidecar that decided")

TABLES = (
    Table(
        "listener_windows",
        "Listener hits and misses over time: the hit ratio of a door, and which rule decided.",
        "five minutes, ingress, listener, rule and protocol of lookups",
        (WINDOW, INGRESS, LISTENER, RULE, PROTOCOL, HITS, MISSES),
        listener_windows,
        source=counted,
    ),
    Table(
        "sidecar_windows",
        "The same by sidecar: one that decides otherwise than its neighbours has another config, or an old one.",
        "five minutes, sidecar, ingress, listener, rule and protocol of lookups",
        (WINDOW, SIDECAR, INGRESS, LISTENER, RULE, PROTOCOL, HITS, MISSES),
        sidecar_windows,
        source=counted,
    ),
    Table(
        "misses",
        "What is asked for and not served: the hosts that no rule knows, and the names that are refused.",
        "ingress, host, reason and protocol of missed lookups",
        (
            INGRESS,
            Field("host", STRING, "the Host asked for, as in the event"),
            Field("reason", STRING, "why it is a miss, in the metric's words"),
            PROTOCOL,
            MISSES,
            FIRST,
            LAST,
        ),
        misses,
        merge_misses,
        span="all",
        source=counted,
    ),
    Table(
        "namespaces",
        "Whose lookups they are.",
        "day, tenant and namespace of lookups",
        (
            Field("date", DAY, "the day, UTC"),
            Field("tenant", STRING, "a single name"),
            Field("namespace", STRING, "a single name, without the tenant"),
            LOOKUPS,
            HITS,
            MISSES,
            Field("redirects", COUNT, "lookups that a broker answered with a redirect"),
        ),
        namespaces,
        merge_namespaces,
        finish_namespaces,
        span="day",
    ),
)
