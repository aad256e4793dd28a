"""A Spark task: reads event files, parses their lines, and writes new files of `events` and `quarantine`.

A line is not an event if it is not UTF-8 or not exactly one JSON object, if a value has another type than in the
schema, or if `id` or `time` is missing. It goes to `quarantine` with the reason. Fields that the schema does not have
are dropped, so an event of a newer schema is read as far as it is known.

Files are written to their final place and become visible with the commit. `maintain` removes those of failed tasks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import pyarrow as pa  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.ingest import event_files, parsing
from pulsar_ingress_pipeline.ingest.lines import PIECE, Block, blocks
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.schema import ROWS

QUARANTINE = pa.schema([(name, pa.string()) for name in ("file", "line_text", "reason")])


@dataclass(slots=True)
class Output:
    """What a task reports to the driver about a file that it wrote or read."""

    kind: str
    """`events`, `quarantine`, `read` or `gone`."""
    path: str
    hour: str | None = None
    size: int = 0
    rows: int = 0
    """The rows of a file that was written, or the lines of one that was read."""
    events: int = 0
    bad: int = 0
    newer: int = 0
    """Events of a newer schema than this pipeline knows."""
    newest: int | None = None
    """The time of the newest event, in microseconds since 1970."""


OUTPUT = pa.schema([(one.name, pa.string() if "str" in str(one.type) else pa.int64()) for one in fields(Output)])
OUTPUT_DDL = ", ".join(f"{one.name} {'string' if one.type == pa.string() else 'long'}" for one in OUTPUT)


_FAULT = pa.field("fault", pa.string())


def read_files(
    source: Storage, tables: Storage, tasks: Sequence[Sequence[tuple[str, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: turns rows of task numbers into rows of OUTPUT."""
    for number in _numbers(batches):
        if found := [asdict(output) for output in _Reading(source, tables).read(tasks[number])]:
            yield pa.RecordBatch.from_pylist(found, OUTPUT)


def read_events(
    source: Storage, tasks: Sequence[Sequence[str]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: turns rows of task numbers into events, and gives a row with a `fault` for a truncated file."""
    for number in _numbers(batches):
        for block in blocks((path, pieces(source, path)) for path in tasks[number]):
            rows = parsing.parse(block.lines).events.cast(ROWS).combine_chunks()
            yield from rows.append_column(_FAULT, pa.nulls(len(rows), pa.string())).to_batches()
            faults = [{"fault": f"{shown(source, file)}: {why}"} for file, why in block.broken]
            yield pa.RecordBatch.from_pylist(faults, ROWS.append(_FAULT))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def pieces(source: Storage, path: str) -> Iterator[bytes]:
    """A file's bytes; raises FileNotFoundError."""
    return source.pieces(path, PIECE if path.endswith(".gz") else 32 * PIECE)


class _Reading:
    """The state of one task. It keeps no more rows in memory than one file of `events` has."""

    def __init__(self, source: Storage, tables: Storage) -> None:
        self._source, self._tables = source, tables
        self._hours = event_files.Hours()
        self._bad: list[tuple[str, str, str]] = []
        self._bad_bytes = 0
        self._read: dict[str, Output] = {}
        self._gone: list[Output] = []

    def read(self, files: Sequence[tuple[str, int]]) -> Iterator[Output]:
        for path, size in files:
            self._read[path] = Output("read", path, size=size)
        newer, newest = 0, None
        for block in blocks((path, self._pieces(path)) for path, _ in files):
            parsed = parsing.parse(block.lines)
            rows = parsed.events
            self._count(block, parsed.bad)
            newer += parsed.newer
            newest = max(filter(None, (newest, event_files.newest_of(rows))), default=None)
            self._hours.add(rows)
            if self._hours.is_full or self._bad_bytes >= event_files.FULL:
                yield from self._written()
        yield from self._written()
        for output in self._read.values():
            output.newer, output.newest, newer = newer, newest, 0  # these are of the task, not of the file
            yield output
        yield from self._gone

    def _pieces(self, path: str) -> Iterator[bytes]:
        try:
            yield from pieces(self._source, path)
        except FileNotFoundError:  # removed after the folder was listed; it is read when it is back
            self._gone.append(Output("gone", self._read.pop(path).path))

    def _count(self, block: Block, bad: Sequence[tuple[int, str]]) -> None:
        """Count the lines of each file, and keep those that are not events."""
        for file, count in block.lines_by_file():
            if file in self._read:
                self._read[file].rows += count
                self._read[file].events += count
        texts = list(block.lines) if bad else []
        for place, why in bad:
            file = block.file_of(place)
            self._read[file].events -= 1
            if why:
                self._quarantine(file, texts[place].decode(errors="replace"), why)
        for file, why in block.broken:
            self._quarantine(file, "", why)

    def _quarantine(self, file: str, text: str, why: str) -> None:
        self._read[file].bad += 1
        self._bad.append((shown(self._source, file), text, why))
        self._bad_bytes += len(text)

    def _written(self) -> Iterator[Output]:
        for hour, rows in self._hours.packed():
            date, _, number = hour.partition("T")
            yield self._write("events", f"date={date}/hour={int(number)}/", rows, hour)
        if self._bad:
            columns = [pa.array(column, pa.string()) for column in zip(*self._bad, strict=True)]
            rows = pa.Table.from_arrays(columns, schema=QUARANTINE)
            self._bad, self._bad_bytes = [], 0
            yield self._write("quarantine", "", rows, None)

    def _write(self, table: str, folder: str, rows: pa.Table, hour: str | None) -> Output:
        file = self._tables.below(table).write_parquet(folder, rows)
        return Output(table, file.path, hour, file.size, file.rows)


def shown(source: Storage, path: str) -> str:
    """The path or URL of an event file."""
    return f"{source.url}/{path}"
