"""Recording rules, `level:metric:operations`: what alerts compare with a threshold.

They sum by `namespace` and `job`, and not without `instance`, as the custom is: series scraped from pods have labels of
the pod, the container and the endpoint too, and others that an operator chose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.promql import METRICS, name, select, total
from dashboards.slo import SECONDS, WINDOWS

JOB = ("namespace", "job")
DOOR = (*JOB, "ingress")
KIND = 'kind="lookup"'

HITS = "job_ingress:pulsar_ingress_listener_hits:rate5m"
MISSES = "job_ingress:pulsar_ingress_listener_misses:rate5m"
LOOKUPS = "job:pulsar_ingress_lookups:rate5m"
MISS_RATIO = "job_ingress:pulsar_ingress_listener_misses_per_lookups:ratio_rate5m"
ERROR_RATIO = "job:pulsar_ingress_upstream_errors_per_requests:ratio_rate5m"


def slow_ratio(window: str) -> str:
    return f"job:pulsar_ingress_slow_lookups_per_lookups:ratio_rate{window}"


@dataclass(frozen=True, slots=True)
class Recording:
    record: str
    expr: str


def _slow(window: str) -> Recording:
    """`le` of a bucket is inclusive, so these are the lookups that took longer."""
    buckets, count = f"{name(METRICS.duration)}_bucket", f"{name(METRICS.duration)}_count"
    within = select(buckets, KIND, f'le="{SECONDS}"')
    every = select(count, KIND)
    return Recording(
        slow_ratio(window),
        f"1 -\n{total(f'rate({within}[{window}])', *JOB)}\n/\n{total(f'rate({every}[{window}])', *JOB)}",
    )


# A door's misses are held against its own lookups; those through no door, which scanners make too, against all.
RECORDINGS: Mapping[str, Sequence[Recording]] = {
    "lookups": [
        Recording(HITS, total(f"rate({select(METRICS.hits)}[5m])", *DOOR)),
        Recording(MISSES, total(f"rate({select(METRICS.misses)}[5m])", *DOOR)),
        Recording(LOOKUPS, total(f"rate({select(METRICS.requests, KIND)}[5m])", *JOB)),
        Recording(
            MISS_RATIO,
            f'{MISSES}{{ingress!=""}}\n/ ({MISSES} + ({HITS} or 0 * {MISSES}))\n'
            f'or\n{MISSES}{{ingress=""}}\n/ on (namespace, job) group_left ()\n  {LOOKUPS}',
        ),
    ],
    "brokers": [
        Recording(
            ERROR_RATIO,
            f"{total(f'rate({select(METRICS.upstream_errors)}[5m])', *JOB)}\n"
            f"/\n{total(f'rate({select(METRICS.requests)}[5m])', *JOB)}",
        ),
    ],
    "latency": [_slow(window) for window in WINDOWS],
}
