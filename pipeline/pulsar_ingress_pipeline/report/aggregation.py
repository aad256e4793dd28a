"""Results of bounded size from Arrow tables: the most used names, the top rows, quantiles of buckets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.report.records import Bins, Name, Others, Row, Top

KEPT = 100
"""Rows of a ranking."""
ERROR = 0.01
"""The largest relative error of a duration that is known by its bucket."""
TIME = pa.timestamp("us", tz="UTC")
_LONGEST = 256
"""Characters of a name: some come from clients."""
_END = (datetime(9900, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
# The middle of a bucket, relative to its upper bound in the table `latency_buckets`.
_MIDDLE = 2 / ((1 + ERROR) / (1 - ERROR) + 1)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a column that are shown, and the number of the others."""

    shown: tuple[str, ...]
    others: int

    @classmethod
    def most_used(cls, table: pa.Table, column: str, measure: str, most: int) -> "Names":
        """The names with the highest sums of a measure."""
        sums = sums_by(table, [column], [measure]).sort_by([(measure, "descending"), (column, "ascending")])
        names = sums.column(column).drop_null().to_pylist()
        return cls(tuple(names[:most]), len(names[most:]))

    def of(self, name: str | None) -> Name:
        return Others(self.others) if name is not None and name not in self.shown else name


def bounded(table: pa.Table) -> pa.Table:
    """Shorten long names, and limit times of wrong clocks to those that Python supports."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            micros = pc.max_element_wise(column.cast(TIME).cast(pa.int64()), 0, skip_nulls=False)
            column = pc.min_element_wise(micros, _END, skip_nulls=False).cast(TIME)
        elif pa.types.is_string(column.type):
            column = pc.utf8_slice_codeunits(column, 0, _LONGEST)
        columns.append(column)
    return pa.Table.from_arrays(columns, table.column_names)


def sums_by(table: pa.Table, keys: Sequence[str], measures: Sequence[str]) -> pa.Table:
    """Sums of measures for each group."""
    sums = table.group_by(list(keys)).aggregate([(measure, "sum") for measure in measures])
    return sums.select([*keys, *(f"{measure}_sum" for measure in measures)]).rename_columns([*keys, *measures])


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def top(table: pa.Table, measure: str, most: int = KEPT) -> Top:
    """The first rows by a measure, then by their other columns, null first."""
    keys = {"": table.column(measure)}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name != measure and not pa.types.is_list(column.type):
            keys |= {f"has {name}": pc.is_valid(column), name: column}
    order = [(key, "ascending" if key else "descending") for key in keys]
    first = table.take(pc.sort_indices(pa.table(keys), sort_keys=order)[:most])
    rows: tuple[Row, ...] = tuple(dict(zip(table.column_names, row, strict=True)) for row in rows_of(first))
    return Top(rows, table.num_rows, total(table, measure))


def total(table: pa.Table, measure: str) -> int:
    return int(pc.sum(table.column(measure)).as_py() or 0)


def since_time(table: pa.Table, since: datetime | None) -> pa.Table:
    """Rows from a time on: by their window, or by when they were last seen."""
    column = "window_start" if "window_start" in table.column_names else "last_seen"
    return table if since is None else table.filter(pc.greater_equal(table.column(column), pa.scalar(since, TIME)))


def with_place(table: pa.Table, columns: Bins) -> pa.Table:
    """The windows that the columns of a chart cover, with the number of the column as `place`."""
    times, start = table.column("window_start"), pa.scalar(columns.start, TIME)
    end = pa.scalar(columns.time(columns.count), TIME)
    covered = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
    micros = pc.subtract(covered.column("window_start"), start).cast(pa.int64())
    return covered.append_column("place", pc.divide(micros, columns.step // timedelta(microseconds=1)))


def span_of(*tables: pa.Table) -> tuple[datetime, datetime] | None:
    """The first and the last window of the tables."""
    chunks = [chunk for table in tables for chunk in table.column("window_start").chunks]
    ends = pc.min_max(pa.chunked_array(chunks, TIME)).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def quantiles(bounds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """p50, p95 and p99 of requests by the upper bounds of their buckets, which are in ascending order.

    They are interpolated linearly, like Spark's `percentile` with a frequency, which the tables use.
    """
    ends = np.cumsum(counts)
    places = (ends[-1] - 1) * np.array([0.5, 0.95, 0.99])
    low, high = (
        bounds[np.searchsorted(ends, np.array(place, dtype=np.int64), side="right")]
        for place in (np.floor(places), np.ceil(places))
    )
    p50, p95, p99 = (low + (high - low) * (places - np.floor(places))) * _MIDDLE
    return float(p50), float(p95), float(p99)
