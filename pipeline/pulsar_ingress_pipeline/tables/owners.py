"""How often topics change their owner.

Brokers are compared by a hash of their name, since numbers are much cheaper to aggregate than texts.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.sources import each_event, window_of
from pulsar_ingress_pipeline.tables.table import COUNT, LATER, SPAN, STRING, TIME, Field, Table

_GROUP = ("key", "hour", "topic")
"""The key is a hash of the others: rows are sorted faster by a number."""
_OWNED = T.StructType([T.StructField("time", TIME), T.StructField("owner", COUNT)])
_BETWEEN = """
    if(size(owned) > 1, size(filter(sequence(1, size(owned) - 1), place ->
        owned[place].first.owner != owned[place - 1].last.owner)), 0)
"""
"""Changes between spans: how often the first owner of one is not the last owner of the one before."""


def owner_changes(events: DataFrame) -> DataFrame:
    """Each hour's share: its lookups and changes, its first and last owner, and the set of owners."""
    in_time = Window.partitionBy(*_GROUP).orderBy("time", "id")
    before = F.last("owner", ignorenulls=True).over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    hour = F.expr(window_of("time", minutes=60))
    lookups = events.where(f"{col.LOOKUP} and topic is not null").select(
        F.xxhash64(hour, "topic").alias("key"),
        hour.alias("hour"),
        "topic",
        "time",
        "id",
        F.when(F.col("broker").isNotNull(), F.xxhash64("broker")).alias("owner"),
    )
    owned = F.when(F.col("owner").isNotNull(), F.struct("time", "id", "owner"))
    topics = (
        lookups.withColumn("before", before)
        .groupBy(*_GROUP)
        .agg(
            F.count(F.lit(1)).alias("lookups"),
            F.count_if(F.col("owner") != F.col("before")).alias("changes"),
            F.min(owned).alias("first"),
            F.max(owned).alias("last"),
            F.sort_array(F.collect_set("owner")).alias("owners"),
        )
    )
    without_id = "if({0} is null, null, struct({0}.time, {0}.owner)) as {0}"
    ends = [F.expr(without_id.format(name)) for name in ("first", "last")]
    return topics.select(col.span_of("hour"), "topic", "lookups", "changes", *ends, "owners")


def merge_owner_changes(parts: DataFrame) -> DataFrame:
    """Spans follow each other in time, so the changes between two of them are added."""
    owned = F.when(F.col("first").isNotNull(), F.struct("first", "last"))
    merged = parts.groupBy(SPAN, "topic").agg(
        F.sum("lookups").alias("lookups"),
        F.sum("changes").alias("changes"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_list("owners")))).alias("owners"),
        F.sort_array(F.collect_list(owned)).alias("owned"),
    )
    return merged.withColumn("changes", F.col("changes") + F.expr(_BETWEEN)).drop("owned")


TABLES = (
    Table(
        "owner_changes",
        "How often topics change their owner: each move costs every client a lookup. Brokers move bundles, "
        "which events do not name; the next best is the namespace, by the sum of its topics' changes.",
        (Field("topic", STRING, "the full name, as in persistent://tenant/namespace/topic"),),
        (
            col.LOOKUPS,
            Field("changes", COUNT, "consecutive lookups by time whose broker differs; those without one left out"),
            Field("brokers", COUNT, "different brokers", LATER),
        ),
        each_event,
        only_in_shares=(
            Field("first", _OWNED, "the first lookup that had an owner"),
            Field("last", _OWNED, "the last lookup that had an owner"),
            Field("owners", T.ArrayType(COUNT), "all owners"),
        ),
        make_rows=owner_changes,
        make_merged=merge_owner_changes,
        finish=lambda merged: merged.withColumn("brokers", F.size("owners")),
    ),
)
