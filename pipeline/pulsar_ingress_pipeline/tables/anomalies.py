"""Hours that are unlike the same hour of earlier days.

A share has one row an hour and ingress. What is usual is the median of the same hour of the days before, and how much
it varies their median absolute deviation, which a single bad day does not move; a floor keeps what never varies from
being judged by nothing. The newest hour is left out: it may not be whole yet.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.fields import COUNT, NUMBER, STRING, Field
from pulsar_ingress_pipeline.tables.sources import bound_of, is_lookup, quantiles_of, span_of, timed, window_of
from pulsar_ingress_pipeline.tables.table import SPAN, Table

DAYS = 28
"""So far back do hours count, and for so long are they judged."""
LEAST_DAYS = 3
LEAST_LOOKUPS = 100
SCORE = 4.0
_DAY = 86_400
_DEVIATION = 1.4826
"""A standard deviation is so many times the median absolute deviation of what is normally distributed."""


FLOORS = {"lookups": (0.1, 10.0), "miss_ratio": (0.0, 0.01), "p95_ms": (0.1, 1.0)}
"""The least that each is taken to vary by: a share of what is usual, and an amount."""


def anomalies(times: DataFrame) -> DataFrame:
    """Each hour's numbers."""
    [p95] = quantiles_of("bucket", (0.95,))
    return (
        times.where(is_lookup())
        .withColumn("bucket", bound_of(F.col("step")))
        .groupBy(span_of("window_start"), window_of("window_start", minutes=60).alias("window_start"), "ingress")
        .agg(F.sum("requests").alias("lookups"), F.sum("misses").alias("misses"), p95.alias("p95_ms"))
    )


def merge_anomalies(parts: DataFrame) -> DataFrame:
    """Hours that are too long ago to judge, or to judge by, are left out; so are those of a clock that is wrong.

    These stand apart: where between two hours there is more time than hours count for, the newest is the newest of
    those, before it or after it, that have more lookups.
    """
    in_time = Window.partitionBy(SPAN).orderBy("at")
    is_apart = F.coalesce(F.col("at") - F.lag("at").over(in_time) > DAYS * _DAY, F.lit(False)).cast("int")
    apart = parts.withColumn("at", F.unix_seconds("window_start")).withColumn("is_apart", is_apart)
    stretches = apart.withColumn("stretch", F.sum("is_apart").over(in_time))
    weighed = stretches.withColumn("weight", F.sum("lookups").over(Window.partitionBy(SPAN, "stretch")))
    newest = F.max(F.struct("weight", "at")).over(Window.partitionBy(SPAN))["at"]
    return (
        weighed.withColumn("newest", newest)
        .where((F.col("at") > F.col("newest") - 2 * DAYS * _DAY) & (F.col("at") <= F.col("newest")))
        .select(parts.columns)
    )


def finish_anomalies(merged: DataFrame) -> DataFrame:
    hours = _with_silence(merged)
    facts = {
        "lookups": F.col("lookups").cast("double"),
        "miss_ratio": F.try_divide("misses", "lookups"),
        "p95_ms": F.col("p95_ms"),
    }
    told = []
    for what, value in facts.items():
        share, amount = (
            F.lit(least).alias(name) for least, name in zip(FLOORS[what], ("share", "amount"), strict=True)
        )
        told.append(F.struct(F.lit(what).alias("what"), value.alias("value"), share, amount))
    each = hours.select(SPAN, "window_start", "ingress", "lookups", F.explode(F.array(*told)).alias("told"))
    judged = each.select(SPAN, "window_start", "ingress", "lookups", "told.*").where(F.col("value").isNotNull())
    return _off(judged)


def _with_silence(merged: DataFrame) -> DataFrame:
    """An hour in which others had lookups and an ingress had none is an hour of none, once the ingress is known."""
    hours = merged.select(SPAN, "window_start").distinct()
    ingresses = merged.groupBy(SPAN, "ingress").agg(F.min("window_start").alias("since"))
    grid = hours.join(ingresses, SPAN).where(F.col("window_start") >= F.col("since"))
    none = F.lit(0).cast("long")
    silent = grid.withColumns({"lookups": none, "misses": none, "p95_ms": F.lit(None).cast("double")}).drop("since")
    together = merged.unionByName(silent).groupBy(SPAN, "window_start", "ingress")
    return together.agg(*(F.max(name).alias(name) for name in ("lookups", "misses", "p95_ms")))


def _off(judged: DataFrame) -> DataFrame:
    """Rows that are far from what is usual, with how far."""
    day = F.unix_seconds("window_start")
    hour = F.pmod(day, F.lit(_DAY))
    earlier = Window.partitionBy(SPAN, "ingress", "what", "hour").orderBy("at").rangeBetween(-DAYS * _DAY, -1)
    known = judged.withColumns({"at": day, "hour": hour})
    with_history = known.withColumns(
        {
            "before": F.collect_list("value").over(earlier),
            "usual_lookups": F.percentile("lookups", 0.5).over(earlier),
            "newest": F.max("at").over(Window.partitionBy(SPAN)),
        }
    ).where(
        (F.size("before") >= LEAST_DAYS)
        & (F.greatest("lookups", "usual_lookups") >= LEAST_LOOKUPS)
        & (F.col("at") < F.col("newest"))
        & (F.col("at") > F.col("newest") - DAYS * _DAY)
    )
    usual = with_history.withColumns({"usual": _median(F.col("before")), "days": F.size("before")})
    deviation = _median(F.transform("before", lambda value: F.abs(value - F.col("usual"))))
    floor = F.greatest(F.col("share") * F.col("usual"), F.col("amount"))
    varies = usual.withColumn("varies", F.greatest(_DEVIATION * deviation, floor))
    scored = varies.withColumn("score", (F.col("value") - F.col("usual")) / F.col("varies"))
    return scored.where(F.abs("score") >= SCORE)


def _median(values: Column) -> Column:
    """Null where there is none: Spark may evaluate this before it drops rows that have too few values."""
    ordered, size = F.sort_array(values), F.size(values)
    low, high = F.floor((size - 1) / 2).cast("int"), F.floor(size / 2).cast("int")
    return (F.get(ordered, low) + F.get(ordered, high)) / 2


def _told(what: str) -> str:
    share, amount = FLOORS[what]
    return f"{amount:g} of `{what}`" + (f" (or {share:.0%} of the median)" if share else "")


TABLES = (
    Table(
        "anomalies",
        f"Hours unlike the same hour of the {DAYS} days before, at least {LEAST_DAYS} of them: off by {SCORE:g} times "
        f"what these vary by, or more. They vary by {_DEVIATION} times their median absolute deviation, and by no less "
        f"than {', '.join(map(_told, FLOORS))}. Only where the hour, or the median, has {LEAST_LOOKUPS} lookups. The "
        "newest hour is left out, since it may not be whole. An hour in which others had lookups and an ingress had "
        f"none counts as none. Of the newest {DAYS} days; a few hours that stand apart by more, as those of a clock "
        "that is ahead, are not the newest.",
        "hour, ingress and what is unusual",
        (
            col.HOUR,
            col.INGRESS,
            Field("what", STRING, "lookups, miss_ratio or p95_ms"),
            Field("value", NUMBER, "what it was in this hour"),
            Field("usual", NUMBER, "the median of the same hour of earlier days"),
            Field("days", COUNT, "how many earlier days there are"),
            Field("score", NUMBER, "how many times what it varies by it is off; below 0: less than usual"),
        ),
        anomalies,
        merge_anomalies,
        finish_anomalies,
        source=timed,
    ),
)
