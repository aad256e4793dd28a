"""Writes the files of many tables in one query, with Arrow on Spark's executors.

Spark's own writer takes four times as long for each row, and needs a query for each table. So the rows of all tables
are put into the columns of one, and Python writes a file for each table and day.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from pulsar_ingress_pipeline.lake.storage import DataFile, Storage
from pulsar_ingress_pipeline.tables.table import SPAN

TABLE, DAY = "of_table", "of_day"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes a file for each table and day. Spark sends it to the executors."""

    tables: Storage
    schemas: Mapping[str, T.StructType]
    replaced: Mapping[tuple[str, str], Sequence[str]]
    """The files that a table's new file of a day replaces. Their rows of unchanged hours go into the new file."""
    changed: Sequence[str]
    """The hours that have changed."""

    def query(self, parts: Mapping[str, tuple[DataFrame, str]], is_small: bool) -> DataFrame:
        """Write the rows of tables, given with the day of each row as SQL; the result has a row for each file."""
        places = sorted({place for name in parts for place in _places(self.schemas[name])})
        selected = []
        for name, (rows, day) in parts.items():
            # SQL needs one call to the JVM for all columns instead of four for each.
            names = {place: f"`{field}`" for place, field in self._columns(name).items()}
            columns = [
                f"cast({names.get(place, 'null')} as {place.partition(' ')[0]}) as `{place}`" for place in places
            ]
            selected.append(rows.selectExpr(f"'{name}' as {TABLE}", f"{day} as {DAY}", *columns))
        together = _union(selected)
        together = together.coalesce(1) if is_small else together.repartition(TABLE, DAY)  # so that a day is one file
        return together.mapInArrow(self, f"{TABLE} string, {DAY} string, path string, size long, rows long")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        waiting: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        for batch in batches:
            for key, rows in self._by_file(pa.Table.from_batches([batch])):
                waiting[key].append(rows)
        written = [
            {TABLE: table, DAY: day, "path": file.path, "size": file.size, "rows": file.rows}
            for (table, day), rows in waiting.items()
            if (file := self.write(table, day, rows)) is not None
        ]
        if written:
            yield pa.RecordBatch.from_pylist(written)

    def _by_file(self, rows: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
        keys = rows.select([TABLE, DAY]).append_column("row", pa.array(range(len(rows)), pa.int32()))
        groups = keys.group_by([TABLE, DAY]).aggregate([("row", "list")])
        for table, day, places in zip(*(groups[name].to_pylist() for name in (TABLE, DAY, "row_list")), strict=True):
            columns = self._columns(table)
            chosen = rows.select([*columns]).rename_columns([*columns.values()])
            yield (table, day), chosen if len(places) == len(rows) else chosen.take(pa.array(places, pa.int32()))

    def write(self, table: str, day: str, rows: Sequence[pa.Table]) -> DataFile | None:
        """None if there are no rows."""
        schema = arrow_schema(self.schemas[table])
        parts = [part.cast(schema) for part in rows]
        parts += [self._unchanged(table, path).cast(schema) for path in self.replaced.get((table, day), ())]
        whole = pa.concat_tables(parts) if parts else schema.empty_table()
        return self.tables.below(table).write_parquet(f"{day}-", whole) if len(whole) else None

    def _unchanged(self, table: str, path: str) -> pa.Table:
        rows = self.tables.below(table).parquet([path])
        hours = rows[SPAN] if SPAN in rows.column_names else pc.strftime(rows["window_start"], "%Y-%m-%dT%H")
        return rows.filter(pc.invert(pc.is_in(hours, value_set=pa.array(self.changed))))

    def _columns(self, table: str) -> dict[str, str]:
        """The columns that a table uses, with their names in the table."""
        schema = self.schemas[table]
        return dict(zip(_places(schema), schema.names, strict=True))


def _places(schema: T.StructType) -> Iterator[str]:
    """A column for each field: `string 0`, `bigint 0`, `string 1`. Tables share columns of the same type."""
    count: Counter[str] = Counter()
    for field in schema:
        kind = field.dataType.simpleString()
        yield f"{kind} {count[kind]}"
        count[kind] += 1


def arrow_schema(schema: T.StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """In halves: with one union after another, Spark checks all earlier ones again each time."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))
