"""How long requests take: quantiles of a window, and buckets that any windows can be rolled up from."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.fields import NUMBER, Field
from pulsar_ingress_pipeline.tables.sources import ERROR, LEAST_MS, bound_of, quantiles_of, timed, window_of
from pulsar_ingress_pipeline.tables.table import Table

ACCURACY = 10_000
"""A quantile's rank is off by one in so many at most; groups of fewer requests have it exactly."""
_NAMES = ("p50_ms", "p95_ms", "p99_ms")


def latency_windows(events: DataFrame) -> DataFrame:
    quantiles = F.percentile_approx("duration_ms", [0.5, 0.95, 0.99], ACCURACY)
    return (
        events.groupBy(window_of("time").alias("window_start"), "ingress", "kind")
        .agg(F.count(F.lit(1)).alias("requests"), quantiles.alias("quantiles"))
        .select(
            "window_start", "ingress", "kind", "requests",
            *(F.col("quantiles")[place].alias(name) for place, name in enumerate(_NAMES)),
        )
    )  # fmt: skip


def latency_buckets(times: DataFrame) -> DataFrame:
    return times.withColumn("bucket", bound_of(F.col("step")))


def broker_latency(times: DataFrame) -> DataFrame:
    """Rolled up from the buckets of the hour."""
    quantiles = [column.alias(name) for column, name in zip(quantiles_of("bucket"), _NAMES, strict=True)]
    return (
        latency_buckets(times)
        .groupBy(window_of("window_start", minutes=60).alias("window_start"), "ingress", "broker", "kind")
        .agg(F.sum("requests").alias("requests"), *quantiles)
    )


QUANTILES = (
    Field("p50_ms", NUMBER, "half of them took no longer, in milliseconds"),
    Field("p95_ms", NUMBER, "95 of 100 took no longer"),
    Field("p99_ms", NUMBER, "99 of 100 took no longer"),
)

TABLES = (
    Table(
        "latency_windows",
        "How long requests took, from their head to the end of their answer.",
        "five minutes, ingress and kind of requests",
        (col.WINDOW, col.INGRESS, col.KIND, col.REQUESTS, *QUANTILES),
        latency_windows,
    ),
    Table(
        "latency_buckets",
        "How long requests took, as a histogram: sum `requests` by `bucket` over any windows, ingresses or brokers, "
        f"and their quantiles are known to {ERROR:.0%}. Each bound is {(1 + ERROR) / (1 - ERROR):.6f} times the one "
        f"before (as in DDSketch); {1 - ERROR:g} times the bound is within {ERROR:.0%} of all in "
        f"the bucket.",
        "five minutes, ingress, broker, kind and bucket of requests",
        (
            col.WINDOW,
            col.INGRESS,
            col.BROKER,
            col.KIND,
            Field(
                "bucket", NUMBER, f"milliseconds none exceeds; less than {LEAST_MS} is in the lowest; null: not known"
            ),
            col.REQUESTS,
        ),
        latency_buckets,
        source=timed,
    ),
    Table(
        "broker_latency",
        f"How long brokers take to answer, hour by hour, from the buckets: quantiles are within {ERROR:.0%}.",
        "hour, ingress, broker and kind of requests",
        (col.HOUR, col.INGRESS, col.BROKER, col.KIND, col.REQUESTS, *QUANTILES),
        broker_latency,
        source=timed,
    ),
)
