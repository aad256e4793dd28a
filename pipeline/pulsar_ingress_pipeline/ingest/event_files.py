"""Rows of `events` by hour, with every event once by `id` and `time`.

Copies of an event are in the same hour, so new files are compared with those of their hour only. The copy that was
committed first stays. Executors sort rows into hours, and the driver compares the files that they wrote.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.lake.storage import DataFile, Storage
from pulsar_ingress_pipeline.schema import ROWS

FULL = 128 << 20
"""Bytes of rows in memory before they are written to files, a bit more than a sidecar's largest file."""
MOST_FILES = 8
"""If an hour has more small files than this, they are merged into one."""
SMALL = 16 << 20
"""Bytes; larger files are not merged."""
_HOUR = 3_600_000_000

SORTED = ("kind", "ingress")
"""Order of the rows of an hour, before their time, so that readers can skip row groups."""


class Hours:
    """Rows of `events` that wait to be written, by hour."""

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
        """Take the waiting rows, hour by hour and sorted."""
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
            # A dictionary is written as a whole, so a small part of the rows gets dictionaries of its own.
            hour = str(np.datetime64(int(hours[start]), "h"))
            yield hour, part if 2 * len(part) >= len(rows) else part.cast(ROWS)


def _ranks(rows: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """The position of each row when sorted by these columns, null first."""
    ranks = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows[name].chunk(0)
        places = np.append(pc.rank(column.dictionary, "ascending").to_numpy().astype(np.int64), 0)
        ranks = ranks * len(places) + places[column.indices.fill_null(len(places) - 1).to_numpy()]
    return ranks


def copies(ids: pa.ChunkedArray, times: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which rows have the id and the time of an earlier row."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return np.zeros(len(ids), np.bool_)
    rows = pa.Table.from_arrays([ids, times, pa.array(np.arange(len(ids)))], ["id", "time", "row"])
    firsts = rows.group_by(["id", "time"], use_threads=False).aggregate([("row", "min")])["row_min"]
    found = np.ones(len(ids), np.bool_)
    found[firsts.to_numpy()] = False
    return found


def without(rows: pa.Table, unwanted: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


def newest_of(events: pa.Table) -> int | None:
    """The time of the newest event, in microseconds since 1970."""
    newest: int | None = pc.max(events["time"].cast(pa.int64())).as_py()
    return newest


@dataclass(frozen=True, slots=True)
class HourChange:
    """What a commit changes in one hour."""

    add: Sequence[DataFile]
    remove: Sequence[DataFile]
    new_events: int


def without_copies(events: Storage, before: Sequence[DataFile], new: Sequence[DataFile]) -> HourChange:
    """The new files of an hour without events that the hour already has. Merges small files if there are many."""
    is_copy = _copies_in(events, before, new)
    count = len(is_copy) - int(is_copy.sum())
    small = [file for file in before if file.size < SMALL]
    is_scattered = len(small) + len(new) > MOST_FILES
    if not is_copy.any() and not is_scattered:
        return HourChange(new, (), count)
    rows = [without(events.parquet([file.path for file in new]), is_copy)]
    gone = small if is_scattered and count else []
    if gone:
        rows.insert(0, events.parquet([file.path for file in gone]))
    for file in new:
        events.delete(file.path)  # it is not committed
    if not count:
        return HourChange((), (), 0)
    partition = new[0].partition
    folder = f"date={partition['date']}/hour={partition['hour']}/"
    return HourChange([events.write_parquet(folder, pa.concat_tables(rows), partition)], gone, count)


def _copies_in(events: Storage, before: Sequence[DataFile], new: Sequence[DataFile]) -> npt.NDArray[np.bool_]:
    """Which rows of the new files are in an earlier file, or twice in the new ones."""
    total = sum(file.rows for file in new)
    if not before and len(new) == 1:  # the task that wrote the file has already checked
        return np.zeros(total, np.bool_)
    keys = events.parquet([file.path for file in (*before, *new)], ["id", "time"])
    return copies(keys["id"], keys["time"])[-total:]
