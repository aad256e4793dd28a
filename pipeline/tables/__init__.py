"""The tables that are made of `events`."""

from pipeline.tables import addresses, latency, listeners, owners
from pipeline.tables.table import Table

DERIVED: tuple[Table, ...] = (*listeners.TABLES, *latency.TABLES, *addresses.TABLES, *owners.TABLES)

__all__ = ["DERIVED", "Table"]
