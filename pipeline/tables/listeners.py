"""Hits and misses: by window, by host, by namespace."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.hours import hour_of
from pipeline.tables.table import COUNT, DAY, SPAN, STRING, TIME, Field, Table


def is_lookup() -> Column:
    return F.col("kind") == "lookup"


def is_hit() -> Column:
    return F.coalesce(F.col("hit"), F.lit(False))


def window_of(time: str) -> Column:
    """The five minutes that a time is in."""
    return F.timestamp_micros(F.unix_micros(time) - F.pmod(F.unix_micros(time), F.lit(300_000_000)))


def listener_windows(events: DataFrame) -> DataFrame:
    return (
        events.where(is_lookup())
        .groupBy(window_of("time").alias("window_start"), "ingress", "listener", "rule", "protocol")
        .agg(F.count_if(is_hit()).alias("hits"), F.count_if(~is_hit()).alias("misses"))
    )


def misses(events: DataFrame) -> DataFrame:
    """Each hour's misses."""
    return (
        events.where(is_lookup() & ~is_hit())
        .groupBy(
            hour_of(F.col("time")).alias(SPAN), "ingress", "host", F.col("miss_reason").alias("reason"), "protocol"
        )
        .agg(F.count(F.lit(1)).alias("misses"), F.min("time").alias("first_seen"), F.max("time").alias("last_seen"))
    )


def merge_misses(parts: DataFrame) -> DataFrame:
    return parts.groupBy(SPAN, "ingress", "host", "reason", "protocol").agg(
        F.sum("misses").alias("misses"), F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen")
    )


def namespaces(events: DataFrame) -> DataFrame:
    """Each hour's lookups by namespace."""
    return (
        events.where(is_lookup())
        .groupBy(hour_of(F.col("time")).alias(SPAN), "tenant", "namespace")
        .agg(
            F.count(F.lit(1)).alias("lookups"),
            F.count_if(is_hit()).alias("hits"),
            F.count_if(~is_hit()).alias("misses"),
            F.count("redirect_from").alias("redirects"),
        )
    )


def merge_namespaces(parts: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("lookups", "hits", "misses", "redirects")]
    return parts.groupBy(SPAN, "tenant", "namespace").agg(*sums)


def finish_namespaces(merged: DataFrame) -> DataFrame:
    return merged.withColumn("date", F.to_date(SPAN))


WINDOW = Field("window_start", TIME, "start of the five minutes, UTC")
INGRESS = Field("ingress", STRING, "the ingress it came through; null: none")
PROTOCOL = Field("protocol", STRING, "http or binary")
HITS = Field("hits", COUNT, "lookups that had a listener and were served by it")
MISSES = Field("misses", COUNT, "lookups that were not")
FIRST = Field("first_seen", TIME, "time of the first")
LAST = Field("last_seen", TIME, "time of the last")
LOOKUPS = Field("lookups", COUNT, "lookups, hits and misses together")

TABLES = (
    Table(
        "listener_windows",
        "Listener hits and misses over time: the hit ratio of a door, and which rule decided.",
        "five minutes, ingress, listener, rule and protocol of lookups",
        (
            WINDOW,
            INGRESS,
            Field("listener", STRING, "the listener selected; null: none"),
            Field("rule", STRING, "rule that decided: query, header, bind, ingress, default or none"),
            PROTOCOL,
            HITS,
            MISSES,
        ),
        listener_windows,
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
