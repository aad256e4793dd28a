"""Recording rules, named `level:metric:operations`, that alerts compare with a threshold.

They use `sum by (cluster, namespace, job)` instead of the usual `sum without (instance)`: series scraped from pods
also have labels of the pod, the container and the endpoint, and labels that an operator added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.promql import select, total
from dashboards.slo import WINDOWS
from pulsar_ingress_proxy.observability.catalogue import PREFIX, Metric, Sidecar
from pulsar_ingress_proxy.observability.objectives import SECONDS

JOB = ("cluster", "namespace", "job")
INGRESS = (*JOB, "ingress")
KIND = 'kind="lookup"'


def _stem(counter: Metric) -> str:
    """The name of a counter's rate."""
    return counter.name.removesuffix("_total")


HITS = f"job_ingress:{_stem(Sidecar.hits)}:rate5m"
MISSES = f"job_ingress:{_stem(Sidecar.misses)}:rate5m"
LOOKUPS = f"job:{PREFIX}lookups:rate5m"
MISS_RATIO = f"job_ingress:{_stem(Sidecar.misses)}_per_lookups:ratio_rate5m"
ERROR_RATIO = f"job:{_stem(Sidecar.upstream_errors)}_per_requests:ratio_rate5m"


def slow_ratio(window: str) -> str:
    return f"job:{PREFIX}slow_lookups_per_lookups:ratio_rate{window}"


@dataclass(frozen=True, slots=True)
class Recording:
    record: str
    expr: str


def _slow(window: str) -> Recording:
    """`le` of a bucket is inclusive, so these are the lookups that took longer."""
    within = select(Sidecar.duration.part("bucket"), KIND, f'le="{SECONDS}"')
    every = select(Sidecar.duration.part("count"), KIND)
    return Recording(
        slow_ratio(window),
        f"1 -\n{total(f'rate({within}[{window}])', *JOB)}\n/\n{total(f'rate({every}[{window}])', *JOB)}",
    )


# Misses of an ingress are divided by its own lookups, misses of no ingress (such as scanners') by all lookups.
RECORDINGS: Mapping[str, Sequence[Recording]] = {
    "lookups": [
        Recording(HITS, total(f"rate({select(Sidecar.hits)}[5m])", *INGRESS)),
        Recording(MISSES, total(f"rate({select(Sidecar.misses)}[5m])", *INGRESS)),
        Recording(LOOKUPS, total(f"rate({select(Sidecar.requests, KIND)}[5m])", *JOB)),
        Recording(
            MISS_RATIO,
            f'{MISSES}{{ingress!=""}}\n/ ({MISSES} + ({HITS} or 0 * {MISSES}))\n'
            f'or\n{MISSES}{{ingress=""}}\n/ on ({", ".join(JOB)}) group_left ()\n  {LOOKUPS}',
        ),
    ],
    "brokers": [
        Recording(
            ERROR_RATIO,
            f"{total(f'rate({select(Sidecar.upstream_errors)}[5m])', *JOB)}\n"
            f"/\n{total(f'rate({select(Sidecar.requests)}[5m])', *JOB)}",
        ),
    ],
    "latency": [_slow(window) for window in WINDOWS],
}
