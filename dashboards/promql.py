"""Builds PromQL from the metrics catalogue, so that no name can be misspelt."""

from pulsar_ingress_proxy.observability.catalogue import Metric

TARGET = ("cluster", "namespace", "job", "instance")
"""Labels that identify a process. A series need not have the first two, which are then equal."""
SAME = f"on ({', '.join(TARGET)})"
"""Matches series of the same process."""


def select(metric: Metric, *matchers: str) -> str:
    return f"{metric.name}{{{', '.join(matchers)}}}" if matchers else metric.name


def total(what: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({what})" if by else f"sum({what})"


def grown(series: str, window: str) -> str:
    """The increase of counters, including series that began within the window.

    A series appears with its first count, and `increase` takes the first sample as the start, so it would miss a
    single leak.
    """
    before = f"{series} offset {window}"
    return f"\n  increase({series}[{window}])\n    and {before}\n  or {series}\n    unless {before}\n"
