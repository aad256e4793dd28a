"""The tables that are made of `events`."""

from pulsar_ingress_pipeline.tables import (
    addresses,
    anomalies,
    flows,
    generations,
    hosts,
    latency,
    listeners,
    objectives,
    owners,
    redirects,
)  # fmt: skip
from pulsar_ingress_pipeline.tables.table import Table

DERIVED: tuple[Table, ...] = (
    *listeners.TABLES, *latency.TABLES, *addresses.TABLES, *owners.TABLES, *redirects.TABLES, *hosts.TABLES,
    *objectives.TABLES, *generations.TABLES, *anomalies.TABLES, *flows.TABLES,
)  # fmt: skip

__all__ = ["DERIVED", "Table"]
