"""How often topics change their owner.

Brokers are compared by a hash of their name, since numbers are much cheaper to aggregate than texts.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables.sources import each_event, window_of
from pulsar_ingress_pipeline.tables.table import COUNT, LOOKUP, LOOKUPS, SPAN, STRING, TIME, Field, Table, key, span_of

_GROUP = ("key", "hour", "topic")
"""The key is a hash of the others: rows are sorted faster by a number."""


def owner_changes(events: DataFrame) -> DataFrame:
    """Each hour's share: its lookups and changes, its first and last owner, and the set of owners."""
    in_time = Window.partitionBy(*_GROUP).orderBy("time", "id")
    before = F.last("owner", ignorenulls=True).over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    hour = F.expr(window_of("time", minutes=60))
    lookups = events.where(f"{LOOKUP} and topic is not null").select(
        F.xxhash64(hour, "topic").alias("key"), hour.alias("hour"), "topic", "time", "id",
        F.when(F.col("broker").isNotNull(), F.xxhash64("broker")).alias("owner"),
    )  # fmt: skip
    held = F.when(F.col("owner").isNotNull(), F.struct("time", "id", "owner"))
    topics = (
        lookups.withColumn("before", before)
        .groupBy(*_GROUP)
        .agg(
            F.count(F.lit(1)).alias("lookups"),
            F.count_if(F.col("owner") != F.col("before")).alias("changes"),
            F.min(held).alias("first"),
            F.max(held).alias("last"),
            F.sort_array(F.collect_set("owner")).alias("owners"),
        )
    )
    return topics.select(
        span_of("hour"), "topic", "lookups", "changes",
        F.col("first.time").alias("first_time"), F.col("first.owner").alias("first_owner"),
        F.col("last.time").alias("last_time"), F.col("last.owner").alias("last_owner"), "owners",
    )  # fmt: skip


def merge_owner_changes(parts: DataFrame) -> DataFrame:
    """Spans follow each other in time, so the changes between two of them are added."""
    held = F.struct("first_time", "first_owner", "last_time", "last_owner")
    shares = parts.groupBy(SPAN, "topic").agg(
        F.sum("lookups").alias("lookups"),
        F.sum("changes").alias("changes"),
        F.sort_array(F.collect_list(F.when(F.col("first_owner").isNotNull(), held))).alias("held"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_list("owners")))).alias("owners"),
    )
    between = F.size(F.filter(F.sequence(F.lit(1), F.size("held")), _changed_before))
    first, last = F.try_element_at("held", F.lit(1)), F.try_element_at("held", F.lit(-1))
    return shares.select(
        SPAN, "topic", "lookups",
        (F.col("changes") + F.when(F.size("held") > 1, between).otherwise(F.lit(0))).alias("changes"),
        first["first_time"].alias("first_time"),
        first["first_owner"].alias("first_owner"),
        last["last_time"].alias("last_time"),
        last["last_owner"].alias("last_owner"),
        "owners",
    )  # fmt: skip


def _changed_before(place: Column) -> Column:
    """Whether the first owner of a span, counted from 1, differs from the last owner of the span before."""
    held = F.col("held")
    return (place > 1) & (held[place - 1]["first_owner"] != F.try_element_at(held, place - 1)["last_owner"])


TABLES = (
    Table(
        "owner_changes",
        "How often topics change their owner: each move costs every client a lookup. Brokers move bundles, "
        "which events do not name; the next best is the namespace, by the sum of its topics' changes.",
        "topic looked up",
        (
            key("topic", STRING, "the full name, as in persistent://tenant/namespace/topic"),
            LOOKUPS,
            Field(
                "changes", COUNT, "consecutive lookups by time whose broker differs; those without one left out",
                "changes",
            ),
            Field("brokers", COUNT, "different brokers"),
        ),
        each_event,
        only_in_shares=(
            Field("first_time", TIME, "time of the first lookup that had an owner", "first_time"),
            Field("first_owner", COUNT, "that owner", "first_owner"),
            Field("last_time", TIME, "time of the last lookup that had an owner", "last_time"),
            Field("last_owner", COUNT, "that owner", "last_owner"),
            Field("owners", T.ArrayType(COUNT), "all owners", "owners"),
        ),
        make_rows=owner_changes,
        make_merged=merge_owner_changes,
        finish=lambda merged: merged.withColumn("brokers", F.size("owners")),
    ),
)  # fmt: skip
