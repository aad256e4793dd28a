"""Tables made of a few events, by way of shares of hours and days."""

from collections.abc import Sequence
from typing import Any

from made_events import Event, frame
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual

from pulsar_ingress_pipeline.tables import DERIVED, Table
from pulsar_ingress_pipeline.tables.table import SPAN

TABLES = {table.name: table for table in DERIVED}


def made(table: Table, events: DataFrame) -> DataFrame:
    """The table of these events; what is merged is merged from hours by way of days."""
    part = table.rows(table.source(events))
    if table.span == "hour":
        return exactly(table, part)
    share = table.merge(part.withColumn(SPAN, F.substring(SPAN, 1, 10)))
    if table.span == "all":
        share = table.merge(share.withColumn(SPAN, F.lit("all")))
    return exactly(table, table.finish(share))


def exactly(table: Table, rows: DataFrame) -> DataFrame:
    """The columns as they are promised, in their order and of their types."""
    return rows.select([rows[field.name].cast(field.type).alias(field.name) for field in table.fields])


def expect(spark: SparkSession, name: str, events: Sequence[Event], rows: list[tuple[Any, ...]]) -> None:
    table = TABLES[name]
    assertDataFrameEqual(made(table, frame(spark, events)), spark.createDataFrame(rows, table.schema))
