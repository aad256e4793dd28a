"""Rows of `events` as Parquet files, one hour in each, every event once. Spark's executors run this."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.ingest.parsing import CODED, EVENTS

FULL = 128 << 20
"""So many bytes of rows are held at most before they become files, a bit more than a sidecar's largest file."""
_ROWS = 1 << 17
"""Of a row group: what a reader can skip."""
_HOUR = 3_600_000_000

SORTED = ("kind", "ingress")
"""Rows of an hour stand together that are asked for together, so that readers can skip the others; then by time."""


def as_parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    repeated = [field.name for field in table.schema if field.name not in ("id", "time")]
    pq.write_table(table, out, row_group_size=_ROWS, compression="zstd", use_dictionary=repeated, store_schema=False)
    return bytes(out.getvalue())


class Hours:
    """Rows of `events` that wait to be packed, by hour."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._size = 0

    def add(self, events: pa.Table) -> None:
        if len(events):
            self._waiting.append(events)
            self._size += events.nbytes

    @property
    def is_full(self) -> bool:
        return self._size >= FULL

    def packed(self) -> Iterator[tuple[str, pa.Table]]:
        """What waits, hour by hour and sorted; nothing waits then."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).unify_dictionaries().combine_chunks()
        self._waiting, self._size = [], 0
        micros = rows["time"].cast(pa.int64()).to_numpy()
        hours = micros // _HOUR
        order = np.lexsort((micros, _ranks(rows, SORTED), hours))
        rows, hours = rows.take(pa.array(order)), hours[order]
        bounds = [0, *(np.flatnonzero(np.diff(hours)) + 1).tolist(), len(hours)]
        for start, end in pairwise(bounds):
            part = rows.slice(start, end - start)
            part = without(part, copies(part["id"], part["time"]))
            # A dictionary goes into a file as a whole: of one that has mostly others' words it is made anew.
            yield hour_name(int(hours[start])), part if 2 * len(part) >= len(rows) else plain(part)


def _ranks(rows: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """The place of each row in the order of some columns; null is first."""
    ranks = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows[name].chunk(0)
        words = [(word or "").encode() for word in column.dictionary.to_pylist()]
        places = np.zeros(len(words) + 1, np.int64)
        places[sorted(range(len(words)), key=words.__getitem__)] = np.arange(1, len(words) + 1)
        ranks = ranks * (len(words) + 1) + places[column.indices.fill_null(len(words)).to_numpy()]
    return ranks


PLAIN = pa.schema([(field.name, pa.string() if field.type == CODED else field.type) for field in EVENTS])
"""A row of `events` as it is in files."""


def plain(rows: pa.Table) -> pa.Table:
    return rows.cast(PLAIN)


def hour_name(hours: int) -> str:
    """By the hours since 1970."""
    return str(np.datetime64(hours, "h"))


def copies(ids: pa.ChunkedArray, times: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which rows have the id and the time of a row before them."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return np.zeros(len(ids), np.bool_)
    numbers = ids.combine_chunks().dictionary_encode().indices.to_numpy()
    micros = times.cast(pa.int64()).to_numpy()
    order = np.lexsort((np.arange(len(numbers)), micros, numbers))
    found = np.zeros(len(numbers), np.bool_)
    found[order[1:]] = (numbers[order[1:]] == numbers[order[:-1]]) & (micros[order[1:]] == micros[order[:-1]])
    return found


def without(rows: pa.Table, unwanted: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


def newest_of(events: pa.Table) -> int | None:
    """The time of the newest, in microseconds since the epoch."""
    newest: int | None = pc.max(events["time"].cast(pa.int64())).as_py()
    return newest
