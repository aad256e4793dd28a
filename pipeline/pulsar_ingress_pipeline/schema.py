"""The event schema for Spark, from the module that the sidecar writes events by."""

import re

from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_proxy.observability.event_schema import FIELDS

_TYPES: dict[str, T.DataType] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "boolean": T.BooleanType(),
}


def snake(name: str) -> str:
    """`redirectFrom` is `redirect_from` in tables."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()


EVENTS = T.StructType(
    [
        T.StructField(snake(field.name), T.TimestampType() if field.name == "time" else _TYPES[field.type])
        for field in FIELDS
    ]
)
"""A row of `events`, without the partitions."""
