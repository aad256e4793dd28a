"""Files that executors have made in memory, written by Spark: by URL, and a task that is tried again leaves one.

Spark's writer of Parquet takes four times as long for an event as Arrow's, and would need a query for each table. So
rows become files in Python, and Spark puts them in place: with its writer of text, which writes bytes as they are and
ends each value with a separator. That is `1`, and the values lack it: every Parquet file ends with `PAR1`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline import packing
from pulsar_ingress_pipeline.storage import File, Storage

TABLE, SPAN = "of_table", "of_span"
FILES = f"{TABLE} string, {SPAN} string, content binary"
_END = b"1"

SMALL, SMALL_SHARES = 2 << 20, 8 << 20
"""Bytes of Parquet, of events and of shares, that are sooner worked on than a query for many is compiled."""
PARTITION = 8 << 20
"""Bytes of Parquet for each partition of a shuffle; each of its tasks has a file for each."""
PARTITIONS = 1000
_RULES = "org.apache.spark.sql.catalyst.optimizer."
# Spark would plan all of a query anew whenever a part of it is done, and ours are large.
_ALWAYS = {
    "spark.sql.adaptive.enabled": "false",
    # It would sort files by their folders, and hold all that a task makes for that.
    "spark.sql.maxConcurrentOutputFileWriters": "1000",
    # Inputs of one partition each, put together, would be one task's.
    "spark.sql.unionOutputPartitioning": "false",
}
# Files may be large, and Java holds what it hands over twice.
_BOUNDED = {"spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20)}
# It would ask after each row how large all columns are by now: half of what all tables cost.
_UNBOUNDED = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
_FOR_SMALL = {
    # Compiling a query costs more than running it on a few rows,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # and so does finding out what could be left out of it.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        _RULES + rule
        for rule in (
            "FoldablePropagation", "PruneFilters", "ConstantFolding", "RemoveRedundantAliases", "OptimizeIn",
            "InferFiltersFromConstraints", "OptimizeOneRowRelationSubquery", "CombineConcats",
        )
    ),
}  # fmt: skip

Staged = dict[tuple[str, str], list[File]]
"""By table and span."""


def row(table: str, span: str, rows: pa.Table) -> tuple[str, str, bytes]:
    """A file, as a row of FILES."""
    return table, span, packing.as_parquet(rows).removesuffix(_END)


def write(files: DataFrame, storage: Storage, folder: str) -> Staged:
    """Write rows of FILES, each a file, and list what there is then."""
    content = F.col("content").cast("string").alias("value")
    chosen = files.where(F.col("content").isNotNull()).select(content, TABLE, SPAN)
    writer = chosen.write.option("lineSep", _END.decode()).option("maxRecordsPerFile", 1)
    writer.mode("overwrite").partitionBy(TABLE, SPAN).text(storage.path(folder))
    staged: Staged = defaultdict(list)
    for file in storage.tree(folder):
        staged[_value(file.url, TABLE), _value(file.url, SPAN)].append(file)
    return staged


def _value(url: str, key: str) -> str:
    """The value of a partition in a path."""
    return url.partition(f"/{key}=")[2].partition("/")[0]


def pack_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `events` to files of it, by hour."""
    hours = packing.Hours()
    for batch in batches:
        hours.add(packing.coded(pa.Table.from_batches([batch])))
        if hours.is_full:
            yield from as_batches(row("events", hour, rows) for hour, rows in hours.packed())
    yield from as_batches(row("events", hour, rows) for hour, rows in hours.packed())


def as_batches(rows: Iterable[tuple[object, ...]], schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """One row at a time, since each may be large."""
    schema = schema or pa.schema([(TABLE, pa.string()), (SPAN, pa.string()), ("content", pa.binary())])
    for values in rows:
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], type_) for value, type_ in zip(values, schema.types, strict=True)], schema=schema
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are to become files of a table."""

    rows: DataFrame
    span: str
    """Which file a row goes to, as SQL."""
    schema: T.StructType
    """What a file has of them."""


def together(parts: Mapping[str, Part], is_small: bool) -> DataFrame:
    """Parts of several tables, by a name of each, as rows of FILES.

    One query makes all of them. A column is passed on in the first place that is free for its type.
    """
    places: dict[str, list[str]] = defaultdict(list)
    columns: dict[str, list[tuple[str, str]]] = {}
    for name, part in parts.items():
        taken: dict[str, int] = defaultdict(int)
        columns[name] = []
        for field in part.schema:
            kind = field.dataType.simpleString()
            if taken[kind] == len(places[kind]):
                places[kind].append(f"c{sum(map(len, places.values()))}")
            columns[name].append((field.name, places[kind][taken[kind]]))
            taken[kind] += 1
    selected = [
        part.rows.selectExpr(f"'{name}' as {TABLE}", f"{part.span} as {SPAN}", *_placed(places, columns[name]))
        for name, part in parts.items()
    ]
    rows = _union(selected)
    rows = rows.coalesce(1) if is_small else rows.repartition(TABLE, SPAN)  # so that a span is one file
    return rows.mapInArrow(_Packing(columns), FILES)


def _placed(places: Mapping[str, Sequence[str]], columns: Sequence[tuple[str, str]]) -> list[str]:
    """As SQL, which is one call of the JVM for all columns instead of four for each."""
    of_place = {place: f"`{name}`" for name, place in columns}
    return [
        f"cast({of_place.get(place, 'null')} as {kind}) as {place}" for kind, names in places.items() for place in names
    ]


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """By halves: Spark looks at all that is there for each that is added."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


class _Packing:
    """Rows of many tables to one file for each table and span."""

    def __init__(self, columns: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        size = 0
        for batch in batches:
            for key, rows in self._apart(pa.Table.from_batches([batch])):
                waiting[key].append(rows)
                size += rows.nbytes
            if size >= packing.FULL:
                yield from self._packed(waiting)
                size = 0
        yield from self._packed(waiting)

    def _apart(self, rows: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
        keys = rows.select([TABLE, SPAN]).append_column("row", pa.array(range(len(rows)), pa.int32()))
        groups = keys.group_by([TABLE, SPAN]).aggregate([("row", "list")])
        for table, span, places in zip(*(groups[name].to_pylist() for name in (TABLE, SPAN, "row_list")), strict=True):
            columns = self._columns[table]
            chosen = rows.select([place for _, place in columns]).rename_columns([name for name, _ in columns])
            yield (table, span), chosen if len(places) == len(rows) else chosen.take(pa.array(places, pa.int32()))

    def _packed(self, waiting: dict[tuple[str, str], list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        yield from as_batches(row(*key, pa.concat_tables(tables)) for key, tables in waiting.items())
        waiting.clear()


def size_of(files: Sequence[File]) -> int:
    return sum(file.size for file in files)


@contextmanager
def settings_for(
    spark: SparkSession, size: int, are_lines: bool = False, small: int = SMALL
) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Plans for so many bytes of Parquet; gives what is to be done to each input: little is read by one task.

    Of one partition Spark can group, sort and join without a shuffle. Lines may be of any length, so that many of them
    go to Python only as far as there is room; our own rows are not.
    """
    is_small = size < small
    partitions = {"spark.sql.shuffle.partitions": str(min(max(size // PARTITION, 1), PARTITIONS))}
    settings = partitions | _ALWAYS | (_BOUNDED if are_lines else _UNBOUNDED) | (_FOR_SMALL if is_small else {})
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield lambda rows: rows.coalesce(1) if is_small else rows
    finally:
        for key, was in before.items():
            if was is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, was)
