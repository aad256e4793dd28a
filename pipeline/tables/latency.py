"""How long requests take."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.tables.listeners import INGRESS, WINDOW, window_of
from pipeline.tables.table import COUNT, NUMBER, STRING, Field, Table

ACCURACY = 10_000
"""A quantile's rank is off by one in so many at most; groups of fewer requests have it exactly."""


def latency_windows(events: DataFrame) -> DataFrame:
    quantiles = F.percentile_approx("duration_ms", [0.5, 0.95, 0.99], ACCURACY)
    return (
        events.groupBy(window_of("time").alias("window_start"), "ingress", "kind")
        .agg(F.count(F.lit(1)).alias("requests"), quantiles.alias("quantiles"))
        .select(
            "window_start", "ingress", "kind", "requests",
            *(F.col("quantiles")[place].alias(name) for place, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))),
        )
    )  # fmt: skip


TABLES = (
    Table(
        "latency_windows",
        "How long requests took, from their head to the end of their answer.",
        "five minutes, ingress and kind of requests",
        (
            WINDOW,
            INGRESS,
            Field("kind", STRING, "lookup, admin or other"),
            Field("requests", COUNT, "requests, all that have an event"),
            Field("p50_ms", NUMBER, "half of them took no longer, in milliseconds"),
            Field("p95_ms", NUMBER, "95 of 100 took no longer"),
            Field("p99_ms", NUMBER, "99 of 100 took no longer"),
        ),
        latency_windows,
    ),
)
