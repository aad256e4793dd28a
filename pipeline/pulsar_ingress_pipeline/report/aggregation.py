"""Bounded answers from Arrow tables: the names most used, the first rows by a measure, quantiles of buckets."""

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
"""How far a duration that is known by its bucket may be off, as a share of it."""
_LONGEST = 256
"""Characters of a name: some come from clients."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
# The middle of a bucket, as a share of its upper bound; bounds are those of the table `latency_buckets`.
_MIDDLE = 2 / ((1 + ERROR) / (1 - ERROR) + 1)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a column that are shown by themselves, and how many there are beside them."""

    shown: tuple[str, ...]
    others: int

    @classmethod
    def most_used(cls, table: pa.Table, column: str, measure: str, most: int) -> "Names":
        """Those with most of a measure."""
        sums = sums_by(table, [column], [measure]).sort_by([(measure, "descending"), (column, "ascending")])
        names = sums.column(column).drop_null().to_pylist()
        return cls(tuple(names[:most]), len(names[most:]))

    def of(self, name: str | None) -> Name:
        return Others(self.others) if name is not None and name not in self.shown else cut(name)


def sums_by(table: pa.Table, keys: Sequence[str], measures: Sequence[str]) -> pa.Table:
    """Sums of measures for each group."""
    sums = table.group_by(list(keys)).aggregate([(measure, "sum") for measure in measures])
    return sums.select([*keys, *(f"{measure}_sum" for measure in measures)]).rename_columns([*keys, *measures])


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows with times in UTC and names of a bounded length."""
    return list(zip(*map(_values, table.columns), strict=True))


def top(table: pa.Table, measure: str, most: int = KEPT) -> Top:
    """The first rows by a measure, then by their other columns; null comes before other values."""
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
    return table if since is None else table.filter(pc.greater_equal(_micros(table.column(column)), _micros_of(since)))


def with_place(table: pa.Table, columns: Bins) -> pa.Table:
    """The windows that the columns of a chart cover, each with the number of its column as `place`."""
    times = _micros(table.column("window_start"))
    start, end = _micros_of(columns.start), _micros_of(columns.time(columns.count))
    covered = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
    offsets = pc.subtract(_micros(covered.column("window_start")), start)  # none is negative, so division rounds down
    return covered.append_column("place", pc.divide(offsets, columns.step // timedelta(microseconds=1)))


def span_of(*tables: pa.Table) -> tuple[datetime, datetime] | None:
    """The first and the last window that there is."""
    starts = [_micros(table.column("window_start")) for table in tables]
    ends = pc.min_max(pa.chunked_array([chunk for times in starts for chunk in times.chunks], pa.int64())).as_py()
    return None if ends["min"] is None else (time_of(ends["min"]), time_of(ends["max"]))


def quantiles(bounds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """p50, p95 and p99 of requests by the upper bound of their bucket, in ascending order.

    As Spark's `percentile` with a frequency, by which the tables have theirs: linear between neighbouring values.
    """
    ends = np.cumsum(counts)
    places = (ends[-1] - 1) * np.array([0.5, 0.95, 0.99])
    low, high = (
        bounds[np.searchsorted(ends, np.array(place, dtype=np.int64), side="right")]
        for place in (np.floor(places), np.ceil(places))
    )
    p50, p95, p99 = (low + (high - low) * (places - np.floor(places))) * _MIDDLE
    return float(p50), float(p95), float(p99)


def cut(name: str | None) -> str | None:
    return None if name is None else name[:_LONGEST]


def time_of(micros: int) -> datetime:
    """Clocks that are centuries off are taken for the nearest time there is."""
    return _EPOCH + timedelta(microseconds=min(max(micros, 0), _END))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if micros is None else time_of(micros) for micros in _micros(column).to_pylist()]
    values: list[Any] = column.to_pylist()
    return [cut(value) if isinstance(value, str) else value for value in values]


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """As numbers: Arrow's times reach further than Python's."""
    return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _micros_of(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
