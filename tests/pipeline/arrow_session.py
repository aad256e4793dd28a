"""What the pipeline asks of a Spark session, done by Arrow in this process. Only rows are computed in another way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.tables.table import COUNT, SPAN, STRING, TIME, Field, Table
from pulsar_ingress_pipeline.tables.writing import Writer, arrow_schema

Make = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Column = Callable[[pa.Table], Any]


@dataclass(frozen=True)
class Rows:
    """A data frame."""

    table: pa.Table

    def coalesce(self, number: int) -> "Rows":
        return self

    def withColumn(self, name: str, column: Column) -> "Rows":
        kept = self.table.drop_columns([name]) if name in self.table.column_names else self.table
        return Rows(kept.append_column(name, column(self.table)))

    def unionByName(self, other: "Rows") -> "Rows":
        return Rows(pa.concat_tables([self.table, other.table.select(self.table.column_names)]))

    def persist(self) -> "Rows":
        return self

    def unpersist(self) -> None: ...

    def mapInArrow(self, make: Make, schema: str) -> "Rows":
        return Rows(pa.Table.from_batches([*make(iter(self.table.to_batches()))]))

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.table.to_pylist()]


FUNCTIONS = SimpleNamespace(
    lit=lambda value: lambda rows: pa.array([value] * len(rows), pa.string()),
    substring=lambda name, start, length: (
        lambda rows: pc.utf8_slice_codeunits(rows[name], start - 1, start - 1 + length)
    ),
)
"""Of `pyspark.sql.functions` what the derivation uses."""


class ArrowSession:
    """A Spark session."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(
            get=lambda key, default: default, set=lambda key, value: None, unset=lambda key: None
        )

    def range(self, start: int, end: int, step: int, partitions: int) -> Rows:
        return Rows(pa.table({"id": [*range(start, end, step)]}))

    @property
    def read(self) -> Any:
        return SimpleNamespace(schema=lambda schema: SimpleNamespace(parquet=_parquet))

    def createDataFrame(self, rows: Sequence[Any], schema: T.StructType) -> Rows:
        return Rows(arrow_schema(schema).empty_table())


def _parquet(*urls: str) -> Rows:
    return Rows(Storage("/").parquet([url.removeprefix("file:///") for url in urls]))


def query(writer: Writer, parts: dict[str, tuple[Rows, str]], is_small: bool) -> Rows:
    """In place of `Writer.query`: the same files by the same `Writer.write`."""
    found = []
    for name, (rows, day) in parts.items():
        table = rows.table
        days = pc.strftime(table["window_start"], "%Y-%m-%d") if "window_start" in day else table[SPAN]
        days = pc.utf8_slice_codeunits(days, 0, 10) if day.startswith("left") else days
        columns = table.select(writer.schemas[name].names)
        written = (
            (one, writer.write(name, one, [columns.filter(pc.equal(days, one))]))
            for one in sorted(set(days.to_pylist()))
        )
        found += [
            {"table": name, "day": one, "path": file.path, "size": file.size, "rows": file.rows}
            for one, file in written
            if file is not None
        ]
    return Rows(pa.Table.from_pylist(found))


def windows_of(events: pa.Table) -> pa.Table:
    """Events by five minutes."""
    starts = pc.floor_temporal(events["time"], 5, unit="minute")
    return _counted(pa.table({"window_start": starts}))


def topics_of(events: pa.Table) -> pa.Table:
    return _counted(events.select(["topic"]))


def _counted(rows: pa.Table) -> pa.Table:
    names = rows.column_names
    return rows.group_by(names).aggregate([([], "count_all")]).rename_columns([*names, "lookups"])


def _windows(rows: Rows) -> Rows:
    return Rows(windows_of(rows.table))


def _shares(rows: Rows) -> Rows:
    spans = pc.strftime(rows.table["time"], "%Y-%m-%dT%H")
    return Rows(_counted(pa.table({SPAN: spans, "topic": rows.table["topic"]})))


def _merged(rows: Rows) -> Rows:
    found = rows.table.group_by([SPAN, "topic"]).aggregate([("lookups", "sum")])
    return Rows(found.rename_columns([SPAN, "topic", "lookups"]))


def _same(rows: Any) -> Any:
    return rows


_LOOKUPS = Field("lookups", COUNT, "number of lookups")
WINDOWS = Table(
    "windows", "lookups by time", (Field("window_start", TIME, "start of the five minutes"),), (_LOOKUPS,), _same,
    span="hour", make_rows=_windows,  # type: ignore[arg-type]
)  # fmt: skip
TOPICS = Table(
    "topics", "lookups of all time", (Field("topic", STRING, "the topic"),), (_LOOKUPS,), _same,
    make_rows=_shares, make_merged=_merged,  # type: ignore[arg-type]
)  # fmt: skip
