"""What several tables are made of: events counted once, by all that these tables ask for; and how they are counted."""

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables.table import SPAN, Make
from pulsar_ingress_proxy.observability.objectives import SECONDS

MINUTES = 5
ERROR = 0.01
"""How far a duration that is known by its bucket may be off, as a share of it."""
LEAST_MS = 0.01
"""What took less is in the bucket of this."""

# DDSketch's buckets (Masson, Rim and Lee, 2019): each bound is so many times the one before.
_GAMMA = (1 + ERROR) / (1 - ERROR)
_MIDDLE = 2 / (_GAMMA + 1)

_MERGED = {"first_seen": F.min, "last_seen": F.max, "held": F.max}
"""How columns of shares are merged that are no counts."""


def is_lookup() -> Column:
    return F.col("kind") == "lookup"


def is_hit() -> Column:
    return F.coalesce(F.col("hit"), F.lit(False))


def window_of(time: str, minutes: int = MINUTES) -> Column:
    """The start of the five minutes, or of the hour, that a time is in."""
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(minutes * 60_000_000)))


def span_of(time: Column | str) -> Column:
    """The hour, as a share has it: `2026-11-16T09`, in UTC."""
    return F.date_format(time, "yyyy-MM-dd'T'HH").alias(SPAN)


def tally(name: str) -> list[Column]:
    """The number of events, and the times of the first and the last."""
    return [F.count(F.lit(1)).alias(name), F.min("time").alias("first_seen"), F.max("time").alias("last_seen")]


def seen() -> list[Column]:
    """First and last, of rows that have both."""
    return [F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen")]


def sum_where(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("requests")).otherwise(F.lit(0)))


def summed(*keys: str) -> Make:
    """Merges shares by these columns: counts are added up, and the first and the last seen stay so."""

    def merge(shares: DataFrame) -> DataFrame:
        others = [name for name in shares.columns if name not in (SPAN, *keys)]
        return shares.groupBy(SPAN, *keys).agg(*(_MERGED.get(name, F.sum)(name).alias(name) for name in others))

    return merge


def counted(events: DataFrame) -> DataFrame:
    """Requests by window and by what was decided."""
    keys = (
        "sidecar", "generation", "protocol", "kind", "ingress", "host", "server_name", "listener", "rule",
        "miss_reason", "redirect_action", "hops",
    )  # fmt: skip
    return events.groupBy(window_of("time").alias("window_start"), *keys, is_hit().alias("hit")).agg(
        F.count("redirect_from").alias("redirects"),
        F.count("leak").alias("leaks"),
        F.count_if(F.col("duration_ms") > SECONDS * 1000).alias("slow"),
        *tally("requests"),
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
