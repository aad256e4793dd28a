"""Bounded answers from DataFrames: the names most used with the rest as one, and the first rows by a measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.report.records import Bins, Name, Others

_LONGEST = 256
"""Characters of a name: some come from clients."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a column that are shown by themselves, and how many there are beside them."""

    column: str
    shown: tuple[str, ...]
    others: int

    @classmethod
    def most_used(cls, frame: DataFrame, column: str, measure: str, most: int) -> "Names":
        named = frame.where(F.col(column).isNotNull()).groupBy(column).agg(sum_of(measure))
        first = named.orderBy(F.desc(measure), column).limit(most).collect()
        count = named.count() if len(first) == most else len(first)
        return cls(column, tuple(row[column] for row in first), count - len(first))

    @property
    def keys(self) -> list[Column]:
        """What to group by."""
        name = F.col(self.column)
        is_shown = name.isin(list(self.shown))
        return [
            F.when(is_shown, name).alias(self.column),
            (name.isNotNull() & ~is_shown).alias(f"other_{self.column}"),
        ]

    def of(self, row: Row) -> Name:
        if row[f"other_{self.column}"]:
            return Others(self.others)
        name: str | None = row[self.column]
        return cut(name)


def first_rows(
    frame: DataFrame, columns: Sequence[str], measure: str, most: int
) -> tuple[list[tuple[object, ...]], int, int]:
    """The first rows by a measure, how many there are, and the sum over all. Names are cut, times have their zone."""
    count, total = frame.agg(F.count(F.lit(1)), sum_of(measure)).collect()[0]
    if not count:
        return [], 0, 0
    names = [field.name for field in frame.schema.fields if isinstance(field.dataType, T.StringType)]
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, T.TimestampType)]
    shaped = [
        F.left(column, F.lit(_LONGEST)).alias(column)
        if column in names
        else F.unix_micros(column).alias(column)
        if column in times
        else F.col(column)
        for column in columns
    ]
    rows = frame.orderBy(F.desc(measure), *(name for name in columns if name in names)).select(*shaped).limit(most)
    return [
        tuple(time_of(value) if name in times else value for name, value in zip(columns, row, strict=True))
        for row in rows.collect()
    ], count, total  # fmt: skip


def sum_of(column: str) -> Column:
    return F.coalesce(F.sum(column), F.lit(0)).cast("long").alias(column)


def place_in(columns: Bins, time: str) -> Column:
    """The number of the column that a time is in."""
    start, step = int(columns.start.timestamp()), int(columns.step.total_seconds())
    return F.floor((F.unix_seconds(time) - F.lit(start)) / F.lit(step)).cast("int").alias("place")


def cut(name: str | None) -> str | None:
    return None if name is None else name[:_LONGEST]


def time_of(micros: int | None) -> datetime | None:
    """With its zone, which Spark leaves out. Clocks that are centuries off are taken for the nearest time there is."""
    return None if micros is None else _EPOCH + timedelta(microseconds=min(max(micros, 0), _END))
