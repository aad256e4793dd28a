"""What each generation of a sidecar's config did to its lookups."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables.listeners import FIRST, HITS, LAST, LOOKUPS, MISSES, SIDECAR, seen, sum_where
from pulsar_ingress_pipeline.tables.sources import counted, is_lookup, span_of
from pulsar_ingress_pipeline.tables.table import COUNT, NUMBER, SPAN, Field, Table


def generations(counts: DataFrame) -> DataFrame:
    """Each hour's."""
    return counts.groupBy(span_of("window_start"), "sidecar", "generation").agg(
        sum_where(is_lookup()).alias("lookups"),
        sum_where(is_lookup() & F.col("hit")).alias("hits"),
        F.sum("redirects").alias("redirects"),
        F.sum("leaks").alias("leaks"),
        *seen(),
    )


def merge_generations(parts: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("lookups", "hits", "redirects", "leaks")]
    return parts.groupBy(SPAN, "sidecar", "generation").agg(*sums, *seen())


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
        "generations",
        "What each generation of a sidecar's config changed. A generation is counted from 1 when a sidecar starts: one "
        "that starts again under its name adds to the rows that it had.",
        "sidecar and generation of requests",
        (
            SIDECAR,
            Field("generation", COUNT, "number of the snapshot it decided by"),
            FIRST,
            LAST,
            LOOKUPS,
            HITS,
            MISSES,
            Field("redirects", COUNT, "requests of all kinds that a broker answered with a redirect"),
            Field("leaks", COUNT, "answers with an address off the listener"),
            Field("hit_ratio", NUMBER, "hits as a share of lookups; null: there were none"),
            Field(
                "hit_ratio_change",
                NUMBER,
                "against the generation with lookups before it, by the times of their first; null: there is none",
            ),
        ),
        generations,
        merge_generations,
        finish_generations,
        span="all",
        source=counted,
    ),
)
