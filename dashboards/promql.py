"""PromQL in the words of the catalogue: a metric is taken from there, so none can be misspelt."""

from pulsar_ingress_proxy.observability.catalogue import Metric


def select(metric: Metric, *matchers: str) -> str:
    return f"{metric.name}{{{', '.join(matchers)}}}" if matchers else metric.name


def total(what: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({what})" if by else f"sum({what})"


def grown(series: str, window: str) -> str:
    """By how much counters grew, with those that began within the window.

    A counter of ours is not there until it counts, and to `increase` the first sample is where it begins: a single
    leak would be none.
    """
    before = f"{series} offset {window}"
    return f"\n  increase({series}[{window}])\n    and {before}\n  or {series}\n    unless {before}\n"
