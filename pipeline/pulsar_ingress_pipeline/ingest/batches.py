"""Ingests a batch of event files as a new version of `events`.

The table `files` lists the event files that were ingested, and is committed last. After a crash before that commit the
files are read again, and nothing new is found in them.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.ingest import event_files
from pulsar_ingress_pipeline.ingest.reading import OUTPUT_DDL, QUARANTINE, Output, read_files, shown
from pulsar_ingress_pipeline.lake.storage import DataFile, File, Storage
from pulsar_ingress_pipeline.lake.table import LakeTable
from pulsar_ingress_pipeline.schema import ROWS

log = logging.getLogger("pipeline")

BATCH_BYTES, BATCH_FILES = 2 << 30, 10_000
"""The most that one commit takes, so that a crash does not cost more."""
TASK_BYTES = 256 << 20
"""Bytes of lines for one task. Its files are in time order, so that few tasks have events of the same hour."""
MOST_FILES = 32
"""If `files` or `quarantine` has more Parquet files than this, a commit replaces them by one."""
_PACKED = 9
"""Typical compression ratio of event files."""

EVENT_FILES = (".jsonl", ".jsonl.gz")
"""The endings of finished event files."""
PARTITIONS = ("date", "hour")
EVENTS_TABLE = pa.schema([*ROWS, ("date", pa.date32()), ("hour", pa.int32())])
FILES_TABLE = pa.schema(
    [("name", pa.string()), *((name, pa.int64()) for name in ("size", "lines", "events", "bad", "version"))]
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was ingested in a batch."""

    files: int
    lines: int
    events: int
    """New events."""
    bad: int
    newest: float | None
    """The time of the newest event in the batch, in seconds since 1970."""


def batches(files: Sequence[File]) -> list[list[File]]:
    """Files, sorted by their names and so by time, in groups for one commit each."""
    return _grouped(files, lambda file: file.size, BATCH_BYTES, BATCH_FILES)


def tasks(files: Sequence[File]) -> list[list[File]]:
    """The same in groups for one task each."""
    return _grouped(files, bytes_of_lines, TASK_BYTES, len(files))


def bytes_of_lines(file: File) -> int:
    """An estimate."""
    return file.size * (_PACKED if file.name.endswith(".gz") else 1)


def _grouped(files: Sequence[File], size_of: Callable[[File], int], most: int, most_files: int) -> list[list[File]]:
    found: list[list[File]] = []
    size = 0
    for file in files:
        if not found or size + size_of(file) > most or len(found[-1]) >= most_files:
            found.append([])
            size = 0
        found[-1].append(file)
        size += size_of(file)
    return found


class Ingest:
    """Ingests event files into `events`, `quarantine` and `files`."""

    def __init__(self, source: Storage, tables: Storage, spark: Callable[[], SparkSession]) -> None:
        self._source, self._tables, self._spark = source, tables, spark
        self.events = LakeTable(tables, "events", EVENTS_TABLE, PARTITIONS)
        self._quarantine = LakeTable(tables, "quarantine", QUARANTINE)
        self._files = LakeTable(tables, "files", FILES_TABLE)

    def newest(self) -> float | None:
        """The time of the newest event, in seconds since 1970."""
        files = self.events.files()
        newest = max((file.hour for file in files), default=None)
        paths = [file.path for file in files if file.hour == newest]
        micros = event_files.newest_of(self.events.storage.parquet(paths, ["time"])) if paths else None
        return None if micros is None else micros / 1e6

    def present(self) -> list[File]:
        """All finished event files, by name."""
        return self._source.files(EVENT_FILES)

    def new(self, present: Sequence[File]) -> list[File]:
        """The files that were not ingested yet, or have grown since."""
        taken = self._files.rows().sort_by("version")  # the last row of a file counts
        names = dict(zip(taken["name"].to_pylist(), taken["size"].to_pylist(), strict=True))
        return [file for file in present if names.get(shown(self._source, file.path)) != file.size]

    def take(self, files: Sequence[File], present: Sequence[File]) -> Taken:
        outputs = self._read(files)
        read = [output for output in outputs if output.kind == "read"]
        for output in outputs:
            if output.kind == "gone":
                log.warning("%s: the file is gone; it is ingested when it is back", shown(self._source, output.path))
        events = self._commit_events([output for output in outputs if output.kind == "events"])
        self._commit_quarantine([output for output in outputs if output.kind == "quarantine"], read)
        self._commit_files(read, present)
        if newer := sum(output.newer for output in read):
            log.warning("%d events have a newer schema: fields that this version does not know are left out", newer)
        newest = max((output.newest for output in read if output.newest is not None), default=None)
        lines, bad = sum(output.rows for output in read), sum(output.bad for output in read)
        return Taken(len(read), lines, events, bad, None if newest is None else newest / 1e6)

    def _read(self, files: Sequence[File]) -> list[Output]:
        shares = [[(file.path, file.size) for file in task] for task in tasks(files)]
        if not shares:
            return []
        numbers = self._spark().range(0, len(shares), 1, len(shares))
        rows = numbers.mapInArrow(partial(read_files, self._source, self._tables, shares), OUTPUT_DDL).collect()
        return [Output(*row) for row in rows]

    def _commit_events(self, written: Sequence[Output]) -> int:
        """Commit new events, if there are any; gives their number."""
        new, before = defaultdict(list), defaultdict(list)
        for output in written:
            assert output.hour is not None
            date, _, hour = output.hour.partition("T")
            partition = {"date": date, "hour": str(int(hour))}
            new[output.hour].append(DataFile(output.path, output.size, output.rows, partition))
        for file in self.events.files():
            before[file.hour].append(file)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            storage = self.events.storage
            changes = list(
                pool.map(lambda hour: event_files.without_copies(storage, before[hour], new[hour]), sorted(new))
            )
        add = [file for change in changes for file in change.add]
        remove = [file for change in changes for file in change.remove]
        if add or self.events.version < 0:
            self.events.commit(add, remove)
        return sum(change.new_events for change in changes)

    def _commit_quarantine(self, written: Sequence[Output], read: Sequence[Output]) -> None:
        """Add lines that are not events. Lines of files that were read again replace their earlier ones."""
        new = [DataFile(output.path, output.size, output.rows) for output in written]
        before, rows = self._quarantine.files(), self._quarantine.rows()
        again = pa.array([shown(self._source, output.path) for output in read], pa.string())
        kept = rows.filter(pc.invert(pc.is_in(rows["file"], value_set=again)))
        is_replaced = len(kept) < len(rows) or len(before) + len(new) > MOST_FILES
        if is_replaced and len(kept):
            new.append(self._quarantine.storage.write_parquet("", kept))
        if new or is_replaced or self._quarantine.version < 0:
            self._quarantine.commit(new, before if is_replaced else ())

    def _commit_files(self, read: Sequence[Output], present: Sequence[File]) -> None:
        if not read and self._files.version >= 0:
            return
        taken = [
            (shown(self._source, file.path), file.size, file.rows, file.events, file.bad, self.events.version)
            for file in read
        ]
        rows = pa.Table.from_pylist([dict(zip(FILES_TABLE.names, row, strict=True)) for row in taken], FILES_TABLE)
        before = self._files.files()
        is_replaced = len(before) >= MOST_FILES
        if is_replaced:  # rows of files that are gone are dropped as well
            names = pa.array([shown(self._source, file.path) for file in present], pa.string())
            earlier = self._files.rows()
            rows = pa.concat_tables([earlier.filter(pc.is_in(earlier["name"], value_set=names)), rows])
        new = [self._files.storage.write_parquet("", rows)] if len(rows) else []
        self._files.commit(new, before if is_replaced else ())
