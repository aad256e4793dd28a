"""One batch of event files becomes a version of `events`: read on Spark, each event once, committed.

`files` says which event files were taken, and is committed last. A crash before that has them read again, and nothing
new is found in them.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.ingest import deduplication, event_files
from pulsar_ingress_pipeline.ingest.reading import OUTPUT_DDL, QUARANTINE, Output, ReadTask, shown, write_parquet
from pulsar_ingress_pipeline.lake.storage import File, Storage
from pulsar_ingress_pipeline.lake.table import DataFile, LakeTable

log = logging.getLogger("pipeline")

BATCH_BYTES, BATCH_FILES = 2 << 30, 10_000
"""A commit takes no more than that, so that what a crash costs is bounded."""
TASK_BYTES = 256 << 20
"""Of lines that one task reads. Its files follow each other in time, so that few tasks have events of the same hour."""
MOST_FILES = 32
"""Parquet files that `files` and `quarantine` may have: a commit that finds more writes one in their place."""
_PACKED = 9
"""Lines are so many times what gzip makes of them."""

PARTITIONS = ("date", "hour")
EVENTS_TABLE = pa.schema([*event_files.PLAIN, ("date", pa.date32()), ("hour", pa.int32())])
FILES_TABLE = pa.schema(
    [("name", pa.string()), *((name, pa.int64()) for name in ("size", "lines", "events", "bad", "version"))]
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a batch brought."""

    files: int
    lines: int
    events: int
    """Those that were new."""
    bad: int
    newest: float | None
    """The time of the newest event that was read, in seconds since the epoch."""


def event_files_in(source: Storage) -> list[File]:
    """Finished event files, in the order of their names."""
    return source.files((".jsonl", ".jsonl.gz"))


def batches(files: Sequence[File]) -> list[list[File]]:
    """Files in the order of their names, which begin with their time, as many as a commit takes."""
    found: list[list[File]] = []
    size = 0
    for file in files:
        if not found or size + file.size > BATCH_BYTES or len(found[-1]) >= BATCH_FILES:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size
    return found


def lines_in(file: File) -> int:
    """Bytes, about."""
    return file.size * (_PACKED if file.name.endswith(".gz") else 1)


def tasks(files: Sequence[File]) -> list[list[File]]:
    """As many files as a task is to read."""
    found: list[list[File]] = []
    size = 0
    for file in files:
        lines = lines_in(file)
        if not found or size + lines > TASK_BYTES:
            found.append([])
            size = 0
        found[-1].append(file)
        size += lines
    return found


class Ingest:
    """Takes event files into `events`, `quarantine` and `files`."""

    def __init__(self, source: Storage, tables: Storage, spark: Callable[[], SparkSession]) -> None:
        self._source, self._tables, self._spark = source, tables, spark
        self.events = LakeTable(tables, "events", EVENTS_TABLE, PARTITIONS)
        self._quarantine = LakeTable(tables, "quarantine", QUARANTINE)
        self._files = LakeTable(tables, "files", FILES_TABLE)

    def last_commit(self) -> datetime:
        return self.events.last_commit()

    def newest(self) -> float | None:
        """The time of the newest event, in seconds since the epoch."""
        files = self.events.files()
        newest = max((file.hour for file in files), default=None)
        if newest is None:
            return None
        paths = [file.path for file in files if file.hour == newest]
        micros = event_files.newest_of(self.events.storage.parquet(paths, ["time"]))
        return None if micros is None else micros / 1e6

    def present(self) -> list[File]:
        """The event files that are there."""
        return event_files_in(self._source)

    def new(self, present: Sequence[File]) -> list[File]:
        """Those that were not taken, or have grown since."""
        taken = self._taken()
        names = dict(zip(taken["name"].to_pylist(), taken["size"].to_pylist(), strict=True))
        return [file for file in present if names.get(shown(self._source, file.path)) != file.size]

    def take(self, files: Sequence[File], present: Sequence[File]) -> Taken:
        outputs = self._read(files)
        read = [output for output in outputs if output.kind == "read"]
        for output in outputs:
            if output.kind == "gone":
                log.warning("%s: is gone; it is taken when it is back", shown(self._source, output.path))
        events = self._commit_events([output for output in outputs if output.kind == "events"])
        self._commit_quarantine([output for output in outputs if output.kind == "quarantine"], read)
        self._commit_files(read, present)
        if newer := sum(output.newer for output in read):
            log.warning("%d events are of a newer schema: fields that this version does not know are left out", newer)
        newest = max((output.newest for output in read if output.newest is not None), default=None)
        return Taken(
            len(read),
            sum(output.rows for output in read),
            events,
            sum(output.bad for output in read),
            None if newest is None else newest / 1e6,
        )

    def _read(self, files: Sequence[File]) -> list[Output]:
        shares = [[(file.path, file.size) for file in task] for task in tasks(files)]
        if not shares:
            return []
        numbers = self._spark().range(0, len(shares), 1, len(shares))
        rows = numbers.mapInArrow(ReadTask(self._source, self._tables, shares), OUTPUT_DDL).collect()
        return [Output(*row) for row in rows]

    def _commit_events(self, written: Sequence[Output]) -> int:
        """A new version, if there is anything new; gives how many events are."""
        new, before = defaultdict(list), defaultdict(list)
        for output in written:
            assert output.hour is not None
            date, _, hour = output.hour.partition("T")
            partition = {"date": date, "hour": str(int(hour))}
            new[output.hour].append(DataFile(output.path, output.size, output.rows, partition))
        for file in self.events.files():
            before[file.hour].append(file)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            settled = list(
                pool.map(lambda hour: deduplication.settle(self.events.storage, before[hour], new[hour]), sorted(new))
            )
        add = [file for hour in settled for file in hour.add]
        remove = [file for hour in settled for file in hour.remove]
        if add or self.events.version < 0:
            self.events.commit(add, remove)
        return sum(hour.rows for hour in settled)

    def _commit_quarantine(self, written: Sequence[Output], read: Sequence[Output]) -> None:
        """Add lines that are not events; those that files had before which were read again are replaced."""
        new = [DataFile(output.path, output.size, output.rows) for output in written]
        before = self._quarantine.files()
        storage = self._quarantine.storage
        again = pa.array([shown(self._source, output.path) for output in read], pa.string())
        remove: list[DataFile] = []
        if before:
            rows = storage.parquet([file.path for file in before])
            is_again = pc.is_in(rows["file"], value_set=again)
            if pc.any(is_again).as_py() or len(before) + len(new) > MOST_FILES:
                remove, kept = before, rows.filter(pc.invert(is_again))
                if len(kept):
                    new.append(DataFile(*write_parquet(storage, "", kept), len(kept)))
        if new or remove or self._quarantine.version < 0:
            self._quarantine.commit(new, remove)

    def _commit_files(self, read: Sequence[Output], present: Sequence[File]) -> None:
        if not read and self._files.version >= 0:
            return
        rows = pa.Table.from_pydict(
            {
                "name": [shown(self._source, output.path) for output in read],
                "size": [output.size for output in read],
                "lines": [output.rows for output in read],
                "events": [output.events for output in read],
                "bad": [output.bad for output in read],
                "version": [self.events.version] * len(read),
            },
            schema=FILES_TABLE,
        )
        before, storage, remove = self._files.files(), self._files.storage, []
        if len(before) >= MOST_FILES:  # also forgets files that are gone
            names = pa.array([shown(self._source, file.path) for file in present], pa.string())
            taken = self._taken()
            rows = pa.concat_tables([taken.filter(pc.is_in(taken["name"], value_set=names)), rows])
            remove = before
        add = [DataFile(*write_parquet(storage, "", rows), len(rows))] if len(rows) else []
        self._files.commit(add, remove)

    def _taken(self) -> pa.Table:
        """The rows of `files`; of a file that was taken twice the last counts."""
        paths = [file.path for file in self._files.files()]
        if not paths:
            return FILES_TABLE.empty_table()
        return self._files.storage.parquet(paths).sort_by("version")
