"""Where requests go, from ingresses over listeners to brokers; and the listeners that missed lookups named."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.hours import hour_of
from pulsar_ingress_pipeline.tables.latency import BROKER, REQUESTS
from pulsar_ingress_pipeline.tables.listeners import FIRST, INGRESS, KIND, LAST, LISTENER, seen
from pulsar_ingress_pipeline.tables.sources import is_hit, is_lookup, window_of
from pulsar_ingress_pipeline.tables.table import COUNT, SPAN, STRING, TIME, Field, Table

_NAMED = ("not-allowed", "unknown-listener", "client-named")
"""Misses because of a name that the client sent."""


def flows(events: DataFrame) -> DataFrame:
    hour = window_of("time", minutes=60).alias("window_start")
    return events.groupBy(hour, "cluster", "kind", "ingress", "listener", "broker").agg(
        F.count(F.lit(1)).alias("requests"), F.count_if(is_hit()).alias("hits")
    )


def named_misses(events: DataFrame) -> DataFrame:
    """Each hour's."""
    is_named = F.col("miss_reason").isin(*_NAMED) & F.col("client_named").isNotNull()
    return (
        events.where(is_lookup() & ~is_hit() & is_named)
        .groupBy(
            hour_of(F.col("time")).alias(SPAN), "ingress", "host", F.col("miss_reason").alias("reason"),
            F.col("client_named").alias("listener"),
        )
        .agg(F.count(F.lit(1)).alias("misses"), F.min("time").alias("first_seen"), F.max("time").alias("last_seen"))
    )  # fmt: skip


def merge_named_misses(shares: DataFrame) -> DataFrame:
    keys = ("ingress", "host", "reason", "listener")
    return shares.groupBy(SPAN, *keys).agg(F.sum("misses").alias("misses"), *seen())


TABLES = (
    Table(
        "flows",
        "Where requests went, hour by hour.",
        "hour, cluster, kind, ingress, listener and broker of requests",
        (
            Field("window_start", TIME, "start of the hour, UTC"),
            Field("cluster", STRING, "the cluster's name, as the sidecar's config has it"),
            KIND,
            INGRESS,
            LISTENER,
            BROKER,
            REQUESTS,
            Field("hits", COUNT, "those that had a listener and were served by it"),
        ),
        flows,
    ),
    Table(
        "named_misses",
        "Lookups that missed because of the listener that the client named.",
        "ingress, host, reason and listener named of missed lookups",
        (
            INGRESS,
            Field("host", STRING, "the Host asked for, as in the event"),
            Field("reason", STRING, "why it is a miss, in the metric's words"),
            Field("listener", STRING, "the name that the client sent"),
            Field("misses", COUNT, "lookups that named it and missed"),
            FIRST,
            LAST,
        ),
        named_misses,
        merge_named_misses,
        span="all",
    ),
)
