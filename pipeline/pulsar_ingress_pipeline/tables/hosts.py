"""The hosts that are asked for, and those among them that no ingress has."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.addresses import AUTHORITY
from pulsar_ingress_pipeline.tables.fields import COUNT, STRING, TIME, Field
from pulsar_ingress_pipeline.tables.sources import counted, is_lookup, seen, span_of, sum_where, summed
from pulsar_ingress_pipeline.tables.table import Table


def host_of(authority: Column) -> Column:
    """A host as ingresses look at it: lower case, without port and trailing dot. What is no host stays as it is."""
    host = F.lower(F.regexp_extract(authority, AUTHORITY, 1))
    is_bare = F.translate(authority, ":@[]", "") == F.rtrim(authority, F.lit("."))
    return F.when(is_bare, F.lower(authority)).when(host != "", host).otherwise(authority)


def hosts(counts: DataFrame) -> DataFrame:
    """Each hour's."""
    host = host_of(F.coalesce("host", "server_name")).alias("host")
    return counts.groupBy(span_of("window_start"), host, "ingress", "protocol").agg(
        F.sum("requests").alias("requests"),
        sum_where(is_lookup()).alias("lookups"),
        sum_where(is_lookup() & ~F.col("hit")).alias("misses"),
        *seen(),
    )


def drift(counts: DataFrame) -> DataFrame:
    """Each hour's hosts: the requests that had no ingress, and the last that had one, with its name.

    Through a socket that has a listener the host decides nothing: such requests say nothing of it.
    """
    told = counts.where(F.col("ingress").isNotNull() | ~F.col("rule").eqNullSafe("bind"))
    host = host_of(F.coalesce("host", "server_name")).alias("host")
    outside = F.col("ingress").isNull()
    held = F.when(~outside, F.struct(F.col("last_seen").alias("at"), "ingress"))
    return told.groupBy(span_of("window_start"), host).agg(
        sum_where(outside).alias("requests"),
        sum_where(outside & is_lookup()).alias("lookups"),
        F.min(F.when(outside, F.col("first_seen"))).alias("first_seen"),
        F.max(F.when(outside, F.col("last_seen"))).alias("last_seen"),
        F.max(held).alias("held"),
    )


def finish_drift(merged: DataFrame) -> DataFrame:
    """Those whose newest request had no ingress."""
    is_open = F.col("held").isNull() | (F.col("last_seen") > F.col("held.at"))
    state = F.when(F.col("held").isNull(), F.lit("seen-not-configured")).otherwise(F.lit("no-longer-configured"))
    open_ = merged.where(F.col("host").isNotNull() & (F.col("requests") > 0) & is_open)
    return open_.withColumns({"state": state, "ingress": F.col("held.ingress"), "configured_until": F.col("held.at")})


HOST = Field("host", STRING, "lower case, without port; binary: the TLS server name; what is no host as it came")

TABLES = (
    Table(
        "hosts",
        "Hosts that clients request, and the ingress of each.",
        "host, ingress and protocol of requests",
        (
            HOST,
            col.INGRESS,
            col.PROTOCOL,
            Field("requests", COUNT, "requests of all kinds"),
            Field("lookups", COUNT, "lookups among them"),
            Field("misses", COUNT, "lookups that had no listener or were refused"),
            *col.SEEN,
        ),
        hosts,
        summed("host", "ingress", "protocol"),
        source=counted,
    ),
    Table(
        "drift",
        "Hosts that clients request and no ingress has, by the newest request. Which hosts of a config nobody requests "
        "is not in events: `report --config` and `suggest --config` show that.",
        "host whose newest request came through no ingress",
        (
            HOST,
            Field("state", STRING, "seen-not-configured: none ever had an ingress; no-longer-configured: some had"),
            Field("ingress", STRING, "the ingress that it had; null: none ever"),
            Field("configured_until", TIME, "time of the last request that had it"),
            Field("requests", COUNT, "requests of all kinds without an ingress"),
            Field("lookups", COUNT, "lookups among them"),
            Field("first_seen", TIME, "time of the first without an ingress"),
            Field("last_seen", TIME, "time of the last"),
        ),
        drift,
        summed("host"),
        finish_drift,
        source=counted,
    ),
)
