"""An event counts once by `id` and `time`. Copies fall into the same hour, so new files are held against their hour's.

The first that was committed stays. An hour of many small files becomes one file on the way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.ingest import event_files
from pulsar_ingress_pipeline.ingest.reading import write_parquet
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import DataFile

MOST_FILES = 8
"""An hour with more small files than that has one in their place."""
SMALL = 16 << 20
"""Bytes; a larger file is not written again to save readers a file."""


@dataclass(frozen=True, slots=True)
class Hour:
    """What a commit does to one hour."""

    add: tuple[DataFile, ...]
    remove: tuple[DataFile, ...]
    rows: int
    """Events that are new."""


def settle(events: Storage, before: Sequence[DataFile], new: Sequence[DataFile]) -> Hour:
    """New files of an hour, without what the hour has already; Spark's executors and the driver run this."""
    is_copy = _copies(events, before, new)
    count = len(is_copy) - int(is_copy.sum())
    small = [file for file in before if file.size < SMALL]
    is_scattered = len(small) + len(new) > MOST_FILES
    if not is_copy.any() and not is_scattered:
        return Hour(tuple(new), (), count)
    rows = [event_files.without(events.parquet([file.path for file in new]), is_copy)]
    gone = small if is_scattered and count else []
    if gone:
        rows.insert(0, events.parquet([file.path for file in gone]))
    for file in new:
        events.delete(file.path)  # which nobody has committed
    if not count:
        return Hour((), (), 0)
    table, partition = pa.concat_tables(rows), new[0].partition
    path, size = write_parquet(events, f"date={partition['date']}/hour={partition['hour']}/", table)
    return Hour((DataFile(path, size, len(table), partition),), tuple(gone), count)


def _copies(
    events: Storage, before: Sequence[DataFile], new: Sequence[DataFile]
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which rows of the new files are there already."""
    total = sum(file.rows for file in new)
    if not before and len(new) == 1:  # the task that wrote the file has looked
        return np.zeros(total, np.bool_)
    keys = events.parquet([file.path for file in (*before, *new)], ["id", "time"])
    return event_files.copies(keys["id"], keys["time"])[-total:]
