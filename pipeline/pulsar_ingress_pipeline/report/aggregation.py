"""Bounded answers from Arrow tables: the names most used, the first rows by a measure, quantiles of buckets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.report.records import Bins, Name, Others, Top

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

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a column that are shown by themselves, and how many there are beside them."""

    shown: tuple[str, ...]
    others: int

    @classmethod
    def most_used(cls, table: pa.Table, column: str, measure: str, most: int) -> "Names":
        ordered = by_amount(table, column, measure)
        return cls(tuple(ordered[:most]), len(ordered[most:]))

    def of(self, name: str | None) -> Name:
        return Others(self.others) if name is not None and name not in self.shown else cut(name)


def by_amount(table: pa.Table, column: str, measure: str) -> list[str]:
    """The names of a column, those with most first."""
    sums = [(name, amount or 0) for name, amount in sums_by(table, [column], [measure]) if name is not None]
    return [name for name, _ in sorted(sums, key=lambda pair: (-pair[1], pair[0]))]


def sums_by(table: pa.Table, keys: Sequence[str], measures: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Keys and sums of measures, a tuple for each group."""
    grouped = table.group_by(list(keys)).aggregate([(measure, "sum") for measure in measures])
    return rows_of(grouped, [*keys, *(f"{measure}_sum" for measure in measures)])


def rows_of(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows with times in UTC and names of a bounded length."""
    return zip(*(_values(table.column(column)) for column in columns), strict=True)


def top(table: pa.Table, measure: str, make: Callable[..., Record], columns: Sequence[str]) -> Top[Record]:
    """The first rows by a measure, then by their names; a name that is null comes before the others."""
    names = [column for column in columns if pa.types.is_string(table.schema.field(column).type)]
    keys = {"": table.column(measure)}
    for name in names:
        keys |= {f"has {name}": pc.is_valid(table.column(name)), name: table.column(name)}
    order = pc.sort_indices(
        pa.Table.from_pydict(keys), sort_keys=[(key, "ascending" if key else "descending") for key in keys]
    )
    rows = rows_of(table.take(order[:KEPT]), columns)
    return Top(tuple(make(*row) for row in rows), table.num_rows, total(table, measure))


def total(table: pa.Table, measure: str) -> int:
    return int(pc.sum(table.column(measure)).as_py() or 0)


def since_time(table: pa.Table, since: datetime | None, column: str = "last_seen") -> pa.Table:
    """Rows from a time on."""
    return table if since is None else table.filter(pc.greater_equal(_micros(table.column(column)), _micros_of(since)))


def with_place(table: pa.Table, columns: Bins) -> pa.Table:
    """The windows that the columns of a chart cover, each with the number of its column as `place`."""
    times = _micros(table.column("window_start"))
    start, end = _micros_of(columns.start), _micros_of(columns.time(columns.count))
    covered = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
    offsets = pc.subtract(_micros(covered.column("window_start")), start)  # none is negative, so division rounds down
    return covered.append_column("place", pc.divide(offsets, columns.step // timedelta(microseconds=1)))


def span_of(*tables: pa.Table) -> tuple[datetime | None, datetime | None]:
    """The first and the last window that there is."""
    ends = [pc.min_max(_micros(table.column("window_start"))).as_py() for table in tables]
    known = [end for end in ends if end["min"] is not None]
    if not known:
        return None, None
    return time_of(min(end["min"] for end in known)), time_of(max(end["max"] for end in known))


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


def time_of(micros: int | None) -> datetime | None:
    """Clocks that are centuries off are taken for the nearest time there is."""
    return None if micros is None else _EPOCH + timedelta(microseconds=min(max(micros, 0), _END))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [time_of(micros) for micros in _micros(column).to_pylist()]
    values: list[Any] = column.to_pylist()
    return [cut(value) if isinstance(value, str) else value for value in values]


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """As numbers: Arrow's times reach further than Python's."""
    return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _micros_of(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
