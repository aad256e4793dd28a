"""How long requests take: quantiles of a window, and buckets that any windows can be rolled up from."""

from collections.abc import Callable

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.sources import ERROR, LEAST_MS, each_event, quantile_of_buckets, timed
from pulsar_ingress_pipeline.tables.table import NUMBER, Field, Table

ACCURACY = 10_000
"""The rank of a quantile is off by at most one in this many; in groups of fewer requests it is exact."""


def _quantiles(sql: Callable[[float], str]) -> tuple[Field, ...]:
    return (
        Field("p50_ms", NUMBER, "half of them took no longer, in milliseconds", sql(0.5)),
        Field("p95_ms", NUMBER, "95 of 100 took no longer", sql(0.95)),
        Field("p99_ms", NUMBER, "99 of 100 took no longer", sql(0.99)),
    )


def _quantile_of_durations(share: float) -> str:
    """One aggregate for all three, which Spark computes once."""
    shares = [0.5, 0.95, 0.99]
    return f"percentile_approx(duration_ms, array(0.5D, 0.95D, 0.99D), {ACCURACY})[{shares.index(share)}]"


TABLES = (
    Table(
        "latency_windows",
        "How long requests took, from their head to the end of their answer.",
        (col.WINDOW, col.INGRESS, col.KIND),
        (col.REQUESTS, *_quantiles(_quantile_of_durations)),
        each_event,
        span="hour",
    ),
    Table(
        "latency_buckets",
        "How long requests took, as a histogram: sum `requests` by `bucket` over any windows, ingresses or brokers, "
        f"and their quantiles are known to {ERROR:.0%}. Each bound is {(1 + ERROR) / (1 - ERROR):.6f} times the one "
        f"before (as in DDSketch); {1 - ERROR:g} times the bound is within {ERROR:.0%} of all in "
        f"the bucket.",
        (
            col.WINDOW,
            col.INGRESS,
            col.BROKER,
            col.KIND,
            Field(
                "bucket", NUMBER, f"upper bound in milliseconds; less than {LEAST_MS} is in the lowest; null: not known"
            ),
        ),
        (col.REQUESTS,),
        timed,
        span="hour",
        make_rows=lambda times: times,
    ),
    Table(
        "broker_latency",
        f"How long brokers take to answer, hour by hour, from the buckets: quantiles are within {ERROR:.0%}.",
        (col.HOUR, col.INGRESS, col.BROKER, col.KIND),
        (col.REQUESTS, *_quantiles(quantile_of_buckets)),
        timed,
        span="hour",
    ),
)
