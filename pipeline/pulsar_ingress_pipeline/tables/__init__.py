"""The tables that are made of `events`."""

from pulsar_ingress_pipeline.tables import addresses, anomalies, hosts, latency, listeners, owners, redirects
from pulsar_ingress_pipeline.tables.table import Table

DERIVED: tuple[Table, ...] = (
    *listeners.TABLES, *latency.TABLES, *addresses.TABLES, *owners.TABLES, *redirects.TABLES, *hosts.TABLES,
    *anomalies.TABLES,
)  # fmt: skip

__all__ = ["DERIVED", "Table"]
