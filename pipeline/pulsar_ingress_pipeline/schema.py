"""The event schema for Arrow and Spark, from the module that the sidecar writes events by."""

import re

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_ingress_proxy.observability.event_schema import FIELDS

TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
TIME = pa.timestamp("us", "UTC")


def snake(name: str) -> str:
    """`redirectFrom` is `redirect_from` in tables."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()


ROWS = pa.schema([(snake(field.name), TIME if field.name == "time" else TYPES[field.type]) for field in FIELDS])
"""A row of `events`, without the partitions."""
EVENTS = from_arrow_schema(ROWS)
"""The same for Spark."""
