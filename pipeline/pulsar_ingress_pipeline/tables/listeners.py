"""Hits and misses: by window, sidecar, host, namespace, day, generation of the config, and way through the proxy."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.sources import counted, each_event
from pulsar_ingress_pipeline.tables.table import COUNT, LATER, NUMBER, STRING, Field, Table, requests_where
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS


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


def finish_generations(merged: DataFrame) -> DataFrame:
    """Compare each generation with the last one before it that had lookups: without any there is no ratio."""
    in_time = Window.partitionBy("sidecar").orderBy("first_seen", "generation")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    with_ratio = merged.withColumn("hit_ratio", F.try_divide("hits", "lookups"))
    change = F.col("hit_ratio") - F.last("hit_ratio", ignorenulls=True).over(before)
    return with_ratio.withColumn("hit_ratio_change", change)


TABLES = (
    Table(
        "listener_windows",
        "Listener hits and misses over time: the hit ratio of an ingress, and which rule decided.",
        (col.WINDOW, col.INGRESS, col.LISTENER, col.RULE, col.PROTOCOL),
        (col.HITS, col.MISSES),
        counted,
        col.LOOKUP,
        span="hour",
    ),
    Table(
        "sidecar_windows",
        "The same by sidecar. A sidecar that decides differently from the others has a different or an old config.",
        (col.WINDOW, col.SIDECAR, col.INGRESS, col.LISTENER, col.RULE, col.PROTOCOL),
        (col.HITS, col.MISSES),
        counted,
        col.LOOKUP,
        span="hour",
    ),
    Table(
        "misses",
        "Missed lookups: hosts that no rule matches, and names that are refused.",
        (col.INGRESS, col.ASKED, col.REASON, col.PROTOCOL),
        (col.MISSES, *col.SEEN),
        counted,
        col.MISS,
    ),
    Table(
        "named_misses",
        "Lookups that missed because of the listener that the client named.",
        (col.INGRESS, col.ASKED, col.REASON, col.NAMED),
        (Field("misses", COUNT, "lookups that named it and missed", "sum(requests)"), *col.SEEN),
        each_event,
        f"{col.MISS} and client_named is not null"
        " and miss_reason in ('not-allowed', 'unknown-listener', 'client-named')",
    ),
    Table(
        "namespaces",
        "Lookups by tenant and namespace.",
        (col.DATE, col.TENANT, Field("namespace", STRING, "a single name, without the tenant")),
        (
            col.LOOKUPS,
            col.HITS,
            col.MISSES,
            Field("redirects", COUNT, "lookups that a broker answered with a redirect", "count(redirect_from)"),
        ),
        each_event,
        col.LOOKUP,
        span="day",
    ),
    Table(
        "flows",
        "Where requests went, hour by hour.",
        (
            col.HOUR,
            Field("cluster", STRING, "the cluster's name, as the sidecar's config has it"),
            col.KIND,
            col.INGRESS,
            col.LISTENER,
            col.BROKER,
        ),
        (col.REQUESTS, Field("hits", COUNT, "those that had a listener and were served by it", requests_where("hit"))),
        each_event,
        span="hour",
    ),
    Table(
        "slo_days",
        f"Lookups against their objective, which the alerts have too: {OBJECTIVE:.0%} of them answered within "
        f"{SECONDS} s, over {DAYS} days.",
        (col.DATE, col.INGRESS),
        (
            col.LOOKUPS,
            Field("good", COUNT, f"those answered within {SECONDS} s", LATER),
            Field("period_lookups", COUNT, f"lookups of the {DAYS} days that end with this one", LATER),
            Field("period_good", COUNT, "those of them that were good", LATER),
            Field("budget_left", NUMBER, "share of the error budget that is left; below 0: it is overspent", LATER),
        ),
        counted,
        col.LOOKUP,
        only_in_shares=(Field("slow", COUNT, "lookups that took longer", "sum(slow)"),),
        finish=finish_slo_days,
    ),
    Table(
        "generations",
        "What each generation of a sidecar's config changed. A generation is counted from 1 when a sidecar starts: one "
        "that starts again under its name adds to the rows that it had.",
        (col.SIDECAR, Field("generation", COUNT, "number of the snapshot it decided by")),
        (
            *col.SEEN,
            col.LOOKUPS,
            col.HITS,
            col.MISSES,
            Field("redirects", COUNT, "requests of all kinds that a broker answered with a redirect", "sum(redirects)"),
            Field("leaks", COUNT, "answers with an address off the listener", "sum(leaks)"),
            Field("hit_ratio", NUMBER, "hits as a share of lookups; null: there were none", LATER),
            Field("hit_ratio_change", NUMBER, "against the last one before it that had lookups; null: none", LATER),
        ),
        counted,
        finish=finish_generations,
    ),
)
