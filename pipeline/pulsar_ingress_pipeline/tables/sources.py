"""What tables count: single events, or events that are already counted by everything that several tables ask for."""

import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_proxy.observability.objectives import SECONDS

ERROR = 0.01
"""The largest relative error of a duration that is known by its bucket."""
LEAST_MS = 0.01
"""Shorter durations are in the bucket of this one."""

# The buckets of DDSketch (Masson, Rim and Lee, 2019): the ratio of a bound to the one before.
_GAMMA = (1 + ERROR) / (1 - ERROR)
_MIDDLE = 2 / (_GAMMA + 1)


def window_of(time: str, minutes: int = 5) -> str:
    """The start of the five minutes, or of the hour, that a time is in, as SQL."""
    return f"timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {minutes * 60_000_000}))"


def each_event(events: DataFrame) -> DataFrame:
    """Events with the columns that counted ones have."""
    return events.withColumns(
        {
            "hit": F.coalesce("hit", F.lit(False)),
            "requests": F.expr("1L"),
            "window_start": F.expr(window_of("time")),
            "first_seen": F.col("time"),
            "last_seen": F.col("time"),
        }
    )


def counted(events: DataFrame) -> DataFrame:
    """Requests by window and decision."""
    keys = (
        "window_start", "sidecar", "generation", "protocol", "kind", "ingress", "host", "server_name", "listener",
        "rule", "miss_reason", "redirect_action", "hops", "hit",
    )  # fmt: skip
    return (
        each_event(events)
        .groupBy(*keys)
        .agg(
            F.count("redirect_from").alias("redirects"),
            F.count("leak").alias("leaks"),
            F.count_if(F.col("duration_ms") > SECONDS * 1000).alias("slow"),
            F.count(F.lit(1)).alias("requests"),
            F.min("time").alias("first_seen"),
            F.max("time").alias("last_seen"),
        )
    )


def timed(events: DataFrame) -> DataFrame:
    """Requests by window and duration, which is known by its bucket: the milliseconds that none of it exceeds."""
    step = f"cast(ceil(ln(greatest(duration_ms, {LEAST_MS}D)) / {math.log(_GAMMA)}D) as int)"
    known = F.expr(f"if(duration_ms is null, null, {step})").alias("step")  # `greatest` ignores null
    steps = (
        each_event(events)
        .groupBy("window_start", "ingress", "broker", "kind", known)
        .agg(F.count(F.lit(1)).alias("requests"), F.count_if(~F.col("hit")).alias("misses"))
    )
    bucket = f"pow({_GAMMA}D, step) as bucket"
    return steps.selectExpr("window_start", "ingress", "broker", "kind", bucket, "requests", "misses")


def quantile_of_buckets(share: float) -> str:
    """A quantile of `timed` requests, as SQL: the middle of its bucket, and so within the error."""
    return f"percentile(bucket, {share}D, requests) * {_MIDDLE}D"
