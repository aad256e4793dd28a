"""What several tables are made of: events counted once, by all that these tables ask for."""

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.hours import hour_of
from pulsar_ingress_pipeline.tables.table import SPAN
from pulsar_ingress_proxy.observability.objectives import SECONDS

MINUTES = 5
ERROR = 0.01
"""How far a duration that is known by its bucket may be off, as a share of it."""
LEAST_MS = 0.01
"""What took less is in the bucket of this."""

# DDSketch's buckets (Masson, ServerContext and Lee, 2019): each bound is so many times the one before.
_GAMMA = (1 + ERROR) / (1 - ERROR)
_MIDDLE = 2 / (_GAMMA + 1)


def is_lookup() -> Column:
    return F.col("kind") == "lookup"


def is_hit() -> Column:
    return F.coalesce(F.col("hit"), F.lit(False))


def window_of(time: str, minutes: int = MINUTES) -> Column:
    """The start of the five minutes, or of the hour, that a time is in."""
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(minutes * 60_000_000)))


def span_of(time: str) -> Column:
    """The hour, as a share has it."""
    return hour_of(F.col(time)).alias(SPAN)


def counted(events: DataFrame) -> DataFrame:
    """Requests by window and by what was decided."""
    keys = (
        "sidecar", "generation", "protocol", "kind", "ingress", "host", "server_name", "listener", "rule",
        "miss_reason", "redirect_action", "hops",
    )  # fmt: skip
    return events.groupBy(window_of("time").alias("window_start"), *keys, is_hit().alias("hit")).agg(
        F.count(F.lit(1)).alias("requests"),
        F.count("redirect_from").alias("redirects"),
        F.count("leak").alias("leaks"),
        F.count_if(F.col("duration_ms") > SECONDS * 1000).alias("slow"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
    )


def timed(events: DataFrame) -> DataFrame:
    """Requests by window and by the bucket of their duration, as a number."""
    least = F.greatest(F.col("duration_ms"), F.lit(LEAST_MS))
    step = F.when(F.col("duration_ms").isNotNull(), F.ceil(F.ln(least) / math.log(_GAMMA)).cast("int"))
    return events.groupBy(window_of("time").alias("window_start"), "ingress", "broker", "kind", step.alias("step")).agg(
        F.count(F.lit(1)).alias("requests"), F.count_if(~is_hit()).alias("misses")
    )


def bound_of(step: Column) -> Column:
    """Milliseconds that no request of this bucket exceeds."""
    return F.pow(F.lit(_GAMMA), step)


def quantiles_of(bound: str, shares: tuple[float, ...] = (0.5, 0.95, 0.99)) -> list[Column]:
    """Of `requests` by the bound of their bucket; each is the middle of its bucket, and so within the stated error."""
    return [F.percentile(bound, share, F.col("requests")) * _MIDDLE for share in shares]
