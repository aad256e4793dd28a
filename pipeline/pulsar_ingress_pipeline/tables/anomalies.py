"""Hours that are unlike the same hour of earlier days.

A share has one row for each hour and ingress. The usual value is the median of the same hour of earlier days. Its
variation is their median absolute deviation, which a single bad day does not change; it has a lower limit for values
that never vary. The newest hour is left out: it may not be complete yet.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.sources import quantile_of_buckets, timed
from pulsar_ingress_pipeline.tables.table import COUNT, LATER, NUMBER, SPAN, STRING, Field, Table

DAYS = 28
"""How far back hours are compared, and how many days are judged."""
LEAST_DAYS = 3
LEAST_LOOKUPS = 100
SCORE = 4.0
_DAY = 86_400
_DEVIATION = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of normally distributed values."""
FLOORS = {"lookups": (0.1, 10.0), "miss_ratio": (0.0, 0.01), "p95_ms": (0.1, 1.0)}
"""The least variation of each: as a share of the usual value, and as an amount."""


def _newest(parts: DataFrame) -> DataFrame:
    """Leave out hours that are too old, and hours of a clock that is wrong.

    A gap of more than `DAYS` separates such hours from the others. The newest hour is that of the part with the most
    lookups, so that a few hours of a clock that is ahead do not make all others too old.
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


def _with_silence(merged: DataFrame) -> DataFrame:
    """Add hours with 0 lookups for an ingress that is known by then, where other ingresses had lookups."""
    hours = merged.select(SPAN, "window_start").distinct()
    ingresses = merged.groupBy(SPAN, "ingress").agg(F.min("window_start").alias("since"))
    grid = hours.join(ingresses, SPAN).where(F.col("window_start") >= F.col("since"))
    none = F.lit(0).cast("long")
    silent = grid.withColumns({"lookups": none, "misses": none, "p95_ms": F.lit(None).cast("double")}).drop("since")
    together = merged.unionByName(silent).groupBy(SPAN, "window_start", "ingress")
    return together.agg(*(F.max(name).alias(name) for name in ("lookups", "misses", "p95_ms")))


def finish_anomalies(merged: DataFrame) -> DataFrame:
    """Hours that are far from the usual value, with their score."""
    hours = _with_silence(_newest(merged))
    values = {"lookups": "double(lookups)", "miss_ratio": "try_divide(misses, lookups)", "p95_ms": "p95_ms"}
    facts = ", ".join(f"'{what}', {values[what]}, {share}D, {amount}D" for what, (share, amount) in FLOORS.items())
    stacked = f"stack({len(FLOORS)}, {facts}) as (what, value, share, amount)"
    judged = hours.selectExpr(SPAN, "window_start", "ingress", "lookups", stacked).where("value is not null")
    at = F.unix_seconds("window_start")
    earlier = Window.partitionBy(SPAN, "ingress", "what", "hour").orderBy("at").rangeBetween(-DAYS * _DAY, -1)
    known = judged.withColumns({"at": at, "hour": F.pmod(at, F.lit(_DAY))})
    with_history = known.withColumns(
        {
            "before": F.collect_list("value").over(earlier),
            "usual_lookups": F.percentile("lookups", 0.5).over(earlier),
            "newest": F.max("at").over(Window.partitionBy(SPAN)),
        }
    ).where(
        f"size(before) >= {LEAST_DAYS} and greatest(lookups, usual_lookups) >= {LEAST_LOOKUPS}"
        f" and at < newest and at > newest - {DAYS * _DAY}"
    )
    usual = with_history.withColumns({"usual": _median(F.col("before")), "days": F.size("before")})
    deviation = _median(F.transform("before", lambda value: F.abs(value - F.col("usual"))))
    varies = usual.withColumn("varies", F.greatest(_DEVIATION * deviation, F.expr("share * usual"), F.col("amount")))
    return varies.withColumn("score", F.expr("(value - usual) / varies")).where(F.abs("score") >= SCORE)


def _median(values: Column) -> Column:
    """Null for an empty list: Spark may evaluate this before it drops rows that have too few values."""
    ordered, size = F.sort_array(values), F.size(values)
    low, high = F.floor((size - 1) / 2).cast("int"), F.floor(size / 2).cast("int")
    return (F.get(ordered, low) + F.get(ordered, high)) / 2


def _told(what: str) -> str:
    share, amount = FLOORS[what]
    return f"{amount:g} of `{what}`" + (f" (or {share:.0%} of the median)" if share else "")


TABLES = (
    Table(
        "anomalies",
        f"Hours that differ from the same hour of the {DAYS} days before, at least {LEAST_DAYS} of them, by {SCORE:g} "
        f"times its variation or more. The variation is {_DEVIATION} times the median absolute deviation, and at least "
        f"{', '.join(map(_told, FLOORS))}. The hour or the median must have {LEAST_LOOKUPS} lookups. The newest hour "
        "is left out, since it may be incomplete. An ingress without lookups in an hour in which others have some "
        f"counts as 0. Only the newest {DAYS} days are judged; a few hours that are further apart, such as those of a "
        "clock that is ahead, do not count as the newest.",
        (col.HOUR, col.INGRESS, Field("what", STRING, "lookups, miss_ratio or p95_ms", LATER)),
        (
            Field("value", NUMBER, "value in this hour", LATER),
            Field("usual", NUMBER, "median of the same hour of earlier days", LATER),
            Field("days", COUNT, "number of earlier days", LATER),
            Field("score", NUMBER, "difference from the usual value, in variations; below 0: less than usual", LATER),
        ),
        timed,
        col.LOOKUP,
        only_in_shares=(
            Field("lookups", COUNT, "lookups of the hour", "sum(requests)"),
            Field("misses", COUNT, "misses of the hour", "sum(misses)"),
            Field("p95_ms", NUMBER, "p95 of the hour", quantile_of_buckets(0.95)),
        ),
        make_merged=lambda shares: shares,  # which hours are too old is known only of all together
        finish=finish_anomalies,
    ),
)
