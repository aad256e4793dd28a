"""Writes the files of many tables in one query, with Arrow on Spark's executors.

Spark's own writer takes four times as long for each row, and needs a query for each table. So the rows of all tables
are put into the columns of one, and Python writes a file for each table and day.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.tables.table import SPAN

TABLE, DAY = "of_table", "of_day"
_WRITTEN = pa.schema(
    [(TABLE, pa.string()), (DAY, pa.string()), ("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64())]
)
WRITTEN_DDL = f"{TABLE} string, {DAY} string, path string, size long, rows long"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to write to the files of a table."""

    rows: DataFrame
    day: str
    """The day of a row's file, as SQL."""
    schema: T.StructType
    """The columns of the file."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the file of a day. Spark sends it to the executors."""

    tables: Storage
    schemas: Mapping[str, pa.Schema]
    replaced: Mapping[tuple[str, str], Sequence[str]]
    """The files that a table's new file of a day replaces. Their rows of unchanged hours go into the new file."""
    changed: Sequence[str]
    """The hours that have changed."""

    def write(self, table: str, day: str, rows: Sequence[pa.Table]) -> tuple[str, int, int] | None:
        """The file's path, its size, and the number of its rows; None if there are no rows."""
        schema = self.schemas[table]
        parts = [part.cast(schema) for part in rows]
        parts += [self._unchanged(table, path) for path in self.replaced.get((table, day), ())]
        whole = pa.concat_tables(parts) if parts else schema.empty_table()
        if not len(whole):
            return None
        file = self.tables.below(table).write_parquet(f"{day}-", whole)
        return file.path, file.size, file.rows

    def _unchanged(self, table: str, path: str) -> pa.Table:
        rows = self.tables.below(table).parquet([path]).cast(self.schemas[table])
        hours = rows[SPAN] if SPAN in rows.column_names else pc.strftime(rows["window_start"], "%Y-%m-%dT%H")
        return rows.filter(pc.invert(pc.is_in(hours, value_set=pa.array(self.changed))))


def together(parts: Mapping[str, Part], writer: Writer, is_small: bool) -> DataFrame:
    """A query that writes the parts and gives a row for each file. Each column uses the first free one of its type."""
    places: dict[str, list[str]] = defaultdict(list)
    columns: dict[str, list[tuple[str, str]]] = {}
    for name, part in parts.items():
        taken: dict[str, int] = defaultdict(int)
        columns[name] = []
        for field_ in part.schema:
            kind = field_.dataType.simpleString()
            if taken[kind] == len(places[kind]):
                places[kind].append(f"c{sum(map(len, places.values()))}")
            columns[name].append((field_.name, places[kind][taken[kind]]))
            taken[kind] += 1
    selected = [
        part.rows.selectExpr(f"'{name}' as {TABLE}", f"{part.day} as {DAY}", *_placed(places, columns[name]))
        for name, part in parts.items()
    ]
    rows = _union(selected)
    rows = rows.coalesce(1) if is_small else rows.repartition(TABLE, DAY)  # so that a day is one file
    return rows.mapInArrow(_Write(columns, writer), WRITTEN_DDL)


def arrow_schema(schema: T.StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _placed(places: Mapping[str, Sequence[str]], columns: Sequence[tuple[str, str]]) -> list[str]:
    """SQL needs one call to the JVM for all columns instead of four for each."""
    of_place = {place: f"`{name}`" for name, place in columns}
    return [
        f"cast({of_place.get(place, 'null')} as {kind}) as {place}" for kind, names in places.items() for place in names
    ]


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """In halves: with one union after another, Spark checks all earlier ones again each time."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


class _Write:
    """For `mapInArrow`: writes rows of many tables, and gives a row for each file."""

    def __init__(self, columns: Mapping[str, Sequence[tuple[str, str]]], writer: Writer) -> None:
        self._columns, self._writer = columns, writer

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        for batch in batches:
            for key, rows in self._by_file(pa.Table.from_batches([batch])):
                waiting[key].append(rows)
        written = [
            dict(zip(_WRITTEN.names, (*key, *file), strict=True))
            for key, rows in waiting.items()
            if (file := self._writer.write(*key, rows)) is not None
        ]
        if written:
            yield pa.RecordBatch.from_pylist(written, _WRITTEN)

    def _by_file(self, rows: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
        keys = rows.select([TABLE, DAY]).append_column("row", pa.array(range(len(rows)), pa.int32()))
        groups = keys.group_by([TABLE, DAY]).aggregate([("row", "list")])
        for table, day, places in zip(*(groups[name].to_pylist() for name in (TABLE, DAY, "row_list")), strict=True):
            columns = self._columns[table]
            chosen = rows.select([place for _, place in columns]).rename_columns([name for name, _ in columns])
            yield (table, day), chosen if len(places) == len(rows) else chosen.take(pa.array(places, pa.int32()))
