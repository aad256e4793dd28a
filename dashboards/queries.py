"""The queries of panels: for the jobs and instances that the viewer selected, over Grafana's interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.promql import grown, select, total
from dashboards.variables import SCOPE
from pulsar_ingress_proxy.observability.catalogue import Metric

WINDOW = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """A panel's query, and the legend of its series."""

    expr: str
    legend: str = ""


def shown(metric: Metric, *where: str) -> str:
    """The series of the selected jobs and instances."""
    return select(metric, *SCOPE, *where)


def rate(metric: Metric, *by: str, where: Sequence[str] = ()) -> str:
    """The rate per second, in total or by these labels."""
    return total(f"rate({shown(metric, *where)}[{WINDOW}])", *by)


def counted(metric: Metric, *by: str, where: Sequence[str] = (), window: str = WINDOW) -> str:
    """The number of rare occurrences, including the first one of a series."""
    return total(grown(shown(metric, *where), window), *by)


def quantile(share: float, histogram: Metric, *by: str, where: Sequence[str] = ()) -> str:
    buckets = f"rate({shown(histogram.part('bucket'), *where)}[{WINDOW}])"
    return f"histogram_quantile({share}, {total(buckets, 'le', *by)})"


def mean(histogram: Metric, where: Sequence[str] = ()) -> str:
    return f"{rate(histogram.part('sum'), where=where)} / {rate(histogram.part('count'), where=where)}"


def or_none(query: str) -> str:
    """0 instead of no data, as no occurrences are good news."""
    return f"{query} or vector(0)"
