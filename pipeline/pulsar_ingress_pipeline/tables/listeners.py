"""Hits and misses: by window, sidecar, host, namespace, day, generation of the config, and way through the proxy."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.fields import COUNT, NUMBER, STRING, Field
from pulsar_ingress_pipeline.tables.sources import (
    counted,
    is_hit,
    is_lookup,
    seen,
    span_of,
    sum_where,
    summed,
    tally,
    window_of,
)
from pulsar_ingress_pipeline.tables.table import SPAN, Table
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

_NAMED = ("not-allowed", "unknown-listener", "client-named")
"""Misses because of a name that the client sent."""


def listener_windows(counts: DataFrame, *more: str) -> DataFrame:
    return (
        counts.where(is_lookup())
        .groupBy("window_start", *more, "ingress", "listener", "rule", "protocol")
        .agg(sum_where(F.col("hit")).alias("hits"), sum_where(~F.col("hit")).alias("misses"))
    )


def misses(counts: DataFrame) -> DataFrame:
    """Each hour's misses."""
    return (
        counts.where(is_lookup() & ~F.col("hit"))
        .groupBy(span_of("window_start"), "ingress", "host", F.col("miss_reason").alias("reason"), "protocol")
        .agg(F.sum("requests").alias("misses"), *seen())
    )


def named_misses(events: DataFrame) -> DataFrame:
    """Each hour's."""
    is_named = F.col("miss_reason").isin(*_NAMED) & F.col("client_named").isNotNull()
    reason, listener = F.col("miss_reason").alias("reason"), F.col("client_named").alias("listener")
    missed = events.where(is_lookup() & ~is_hit() & is_named)
    return missed.groupBy(span_of("time"), "ingress", "host", reason, listener).agg(*tally("misses"))


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


def flows(events: DataFrame) -> DataFrame:
    hour = window_of("time", minutes=60).alias("window_start")
    return events.groupBy(hour, "cluster", "kind", "ingress", "listener", "broker").agg(
        F.count(F.lit(1)).alias("requests"), F.count_if(is_hit()).alias("hits")
    )


def slo_days(counts: DataFrame) -> DataFrame:
    """Each hour's."""
    return (
        counts.where(is_lookup())
        .groupBy(span_of("window_start"), F.to_date("window_start").alias("date"), "ingress")
        .agg(F.sum("requests").alias("lookups"), F.sum("slow").alias("slow"))
    )


def finish_slo_days(merged: DataFrame) -> DataFrame:
    period = Window.partitionBy("ingress").orderBy(F.unix_date("date")).rangeBetween(1 - DAYS, 0)
    lookups, slow = F.sum("lookups").over(period), F.sum("slow").over(period)
    return merged.withColumns(
        {
            "good": F.col("lookups") - F.col("slow"),
            "period_lookups": lookups,
            "period_good": lookups - slow,
            "budget_left": 1 - slow / (lookups * (1 - OBJECTIVE)),
        }
    )


def generations(counts: DataFrame) -> DataFrame:
    """Each hour's."""
    return counts.groupBy(span_of("window_start"), "sidecar", "generation").agg(
        sum_where(is_lookup()).alias("lookups"),
        sum_where(is_lookup() & F.col("hit")).alias("hits"),
        F.sum("redirects").alias("redirects"),
        F.sum("leaks").alias("leaks"),
        *seen(),
    )


def finish_generations(merged: DataFrame) -> DataFrame:
    """The generation before is the last one that had lookups: one without any has no ratio to compare with."""
    in_time = Window.partitionBy("sidecar").orderBy("first_seen", "generation")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    with_ratio = merged.withColumns(
        {"misses": F.col("lookups") - F.col("hits"), "hit_ratio": F.try_divide("hits", "lookups")}
    )
    change = F.col("hit_ratio") - F.last("hit_ratio", ignorenulls=True).over(before)
    return with_ratio.withColumn("hit_ratio_change", change)


TABLES = (
    Table(
        "listener_windows",
        "Listener hits and misses over time: the hit ratio of an ingress, and which rule decided.",
        "five minutes, ingress, listener, rule and protocol of lookups",
        (col.WINDOW, col.INGRESS, col.LISTENER, col.RULE, col.PROTOCOL, col.HITS, col.MISSES),
        listener_windows,
        source=counted,
    ),
    Table(
        "sidecar_windows",
        "The same by sidecar. A sidecar that decides differently from the others has a different or an old config.",
        "five minutes, sidecar, ingress, listener, rule and protocol of lookups",
        (col.WINDOW, col.SIDECAR, col.INGRESS, col.LISTENER, col.RULE, col.PROTOCOL, col.HITS, col.MISSES),
        lambda counts: listener_windows(counts, "sidecar"),
        source=counted,
    ),
    Table(
        "misses",
        "Missed lookups: hosts that no rule matches, and names that are refused.",
        "ingress, host, reason and protocol of missed lookups",
        (col.INGRESS, col.ASKED, col.REASON, col.PROTOCOL, col.MISSES, *col.SEEN),
        misses,
        summed("ingress", "host", "reason", "protocol"),
        source=counted,
    ),
    Table(
        "named_misses",
        "Lookups that missed because of the listener that the client named.",
        "ingress, host, reason and listener named of missed lookups",
        (
            col.INGRESS,
            col.ASKED,
            col.REASON,
            col.NAMED,
            Field("misses", COUNT, "lookups that named it and missed"),
            *col.SEEN,
        ),
        named_misses,
        summed("ingress", "host", "reason", "listener"),
    ),
    Table(
        "namespaces",
        "Lookups by tenant and namespace.",
        "day, tenant and namespace of lookups",
        (
            col.DATE,
            col.TENANT,
            Field("namespace", STRING, "a single name, without the tenant"),
            col.LOOKUPS,
            col.HITS,
            col.MISSES,
            Field("redirects", COUNT, "lookups that a broker answered with a redirect"),
        ),
        namespaces,
        summed("tenant", "namespace"),
        lambda merged: merged.withColumn("date", F.to_date(SPAN)),
        span="day",
    ),
    Table(
        "flows",
        "Where requests went, hour by hour.",
        "hour, cluster, kind, ingress, listener and broker of requests",
        (
            col.HOUR,
            Field("cluster", STRING, "the cluster's name, as the sidecar's config has it"),
            col.KIND,
            col.INGRESS,
            col.LISTENER,
            col.BROKER,
            col.REQUESTS,
            Field("hits", COUNT, "those that had a listener and were served by it"),
        ),
        flows,
    ),
    Table(
        "slo_days",
        f"Lookups against their objective, which the alerts have too: {OBJECTIVE:.0%} of them answered within "
        f"{SECONDS} s, over {DAYS} days.",
        "day and ingress of lookups",
        (
            col.DATE,
            col.INGRESS,
            col.LOOKUPS,
            Field("good", COUNT, f"those answered within {SECONDS} s"),
            Field("period_lookups", COUNT, f"lookups of the {DAYS} days that end with this one"),
            Field("period_good", COUNT, "those of them that were good"),
            Field("budget_left", NUMBER, "share of the error budget left: 1 if none was slow, below 0 if overspent"),
        ),
        slo_days,
        summed("date", "ingress"),
        finish_slo_days,
        source=counted,
    ),
    Table(
        "generations",
        "What each generation of a sidecar's config changed. A generation is counted from 1 when a sidecar starts: one "
        "that starts again under its name adds to the rows that it had.",
        "sidecar and generation of requests",
        (
            col.SIDECAR,
            Field("generation", COUNT, "number of the snapshot it decided by"),
            *col.SEEN,
            col.LOOKUPS,
            col.HITS,
            col.MISSES,
            Field("redirects", COUNT, "requests of all kinds that a broker answered with a redirect"),
            Field("leaks", COUNT, "answers with an address off the listener"),
            Field("hit_ratio", NUMBER, "hits as a share of lookups; null: there were none"),
            Field("hit_ratio_change", NUMBER, "against the one with lookups before it, by `first_seen`; null: none"),
        ),
        generations,
        summed("sidecar", "generation"),
        finish_generations,
        source=counted,
    ),
)
