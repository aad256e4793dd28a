"""Rows of a report, from their values in order."""

from collections.abc import Callable
from typing import Any

from pulsar_ingress_pipeline.report.records import Row


def _row(columns: str, **usual: Any) -> Callable[..., Row]:
    names = columns.split()
    return lambda *values: usual | dict(zip(names, values, strict=False))


Redirects = _row("kind action hops requests")
Leak = _row("ingress listener found_in address user_agent leaks first_seen last_seen")
Loop = _row("listener topic followed_by brokers loops first_seen last_seen")
Objective = _row("ingress period_lookups period_good budget_left")
Stray = _row("host state ingress requests lookups first_seen last_seen")
Generation = _row("sidecar generation first_seen lookups hits hit_ratio_change")
Anomaly = _row("window_start ingress what value usual days score")
Miss = _row("ingress host reason protocol misses first_seen last_seen named", named=None)
Unmapped = _row("listener address redirects first_seen last_seen")
Owner = _row("topic lookups changes brokers")
Moved = _row("namespace topics changes")
Namer = _row("user_agent tenant listener lookups")
Namespace = _row("tenant namespace hits misses redirects")
Counted = _row("reason lines")
