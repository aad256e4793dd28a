"""How well lookups do by what they are held to: the same objective that the alerts have."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables.listeners import INGRESS, LOOKUPS
from pulsar_ingress_pipeline.tables.sources import counted, is_lookup, span_of
from pulsar_ingress_pipeline.tables.table import COUNT, DAY, NUMBER, SPAN, Field, Table
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS


def slo_days(counts: DataFrame) -> DataFrame:
    """Each hour's."""
    return (
        counts.where(is_lookup())
        .groupBy(span_of("window_start"), F.to_date("window_start").alias("date"), "ingress")
        .agg(F.sum("requests").alias("lookups"), F.sum("slow").alias("slow"))
    )


def merge_slo_days(parts: DataFrame) -> DataFrame:
    return parts.groupBy(SPAN, "date", "ingress").agg(F.sum("lookups").alias("lookups"), F.sum("slow").alias("slow"))


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


TABLES = (
    Table(
        "slo_days",
        f"Lookups against their objective: {OBJECTIVE:.0%} of them answered within {SECONDS} s, over {DAYS} days.",
        "day and ingress of lookups",
        (
            Field("date", DAY, "the day, UTC"),
            INGRESS,
            LOOKUPS,
            Field("good", COUNT, f"those answered within {SECONDS} s"),
            Field("period_lookups", COUNT, f"lookups of the {DAYS} days that end with this one"),
            Field("period_good", COUNT, "those of them that were good"),
            Field(
                "budget_left",
                NUMBER,
                "share of these days' error budget that is left: 1 where none was slow, below 0 where more is spent",
            ),
        ),
        slo_days,
        merge_slo_days,
        finish_slo_days,
        span="all",
        source=counted,
    ),
)
