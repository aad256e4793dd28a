"""What one task does: read event files, parse their lines, write new files of `events` and `quarantine`.

A line is not an event where its bytes are not UTF-8, where it is not exactly one JSON object, where a value has another
type than the schema's, or where `id` or `time` is missing. It goes to `quarantine` with the reason. A field that the
schema does not have is dropped, and an event of a newer schema is read as far as it is known.

Files are written to their final place. Nobody sees them before they are committed, and what a task leaves behind that
failed is removed by `maintain`.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import pyarrow as pa  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.ingest import event_files, parsing
from pulsar_ingress_pipeline.ingest.lines import PIECE, Block, blocks
from pulsar_ingress_pipeline.lake.storage import Storage

QUARANTINE = pa.schema([(name, pa.string()) for name in ("file", "line_text", "reason")])


@dataclass(slots=True)
class Output:
    """What a task tells the driver: of a file that it wrote, or of one that it read."""

    kind: str
    """`events`, `quarantine`, `read` or `gone`."""
    path: str
    hour: str | None = None
    size: int = 0
    rows: int = 0
    """Of a written file; of one that was read its lines."""
    events: int = 0
    bad: int = 0
    newer: int = 0
    """Events of a schema that is newer than this pipeline's."""
    newest: int | None = None
    """The time of the newest event, in microseconds since the epoch."""


OUTPUT = pa.schema([(one.name, pa.string() if "str" in str(one.type) else pa.int64()) for one in fields(Output)])
OUTPUT_DDL = ", ".join(f"{one.name} {'string' if one.type == pa.string() else 'long'}" for one in OUTPUT)


class ReadTask:
    """For `mapInArrow`: rows of task numbers become rows of OUTPUT."""

    def __init__(self, source: Storage, tables: Storage, tasks: Sequence[Sequence[tuple[str, int]]]) -> None:
        self._source, self._tables, self._tasks = source, tables, tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = [asdict(output) for output in _Reading(self._source, self._tables).read(self._tasks[number])]
                if found:
                    yield pa.RecordBatch.from_pylist(found, OUTPUT)


class EventTask:
    """For `mapInArrow`: rows of task numbers become events; a file that breaks off gives a row with a `fault`."""

    def __init__(self, source: Storage, tasks: Sequence[Sequence[str]]) -> None:
        self._source, self._tasks = source, tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                files = ((path, pieces(self._source, path)) for path in self._tasks[number])
                for block in blocks(files):
                    yield from _parsed(event_files.plain(parsing.parse(block.lines).events), None)
                    for file, why in block.broken:
                        yield from _parsed(_NOTHING, f"{shown(self._source, file)}: {why}")


_NOTHING = pa.Table.from_arrays([pa.nulls(1, kind) for kind in event_files.PLAIN.types], schema=event_files.PLAIN)


def _parsed(rows: pa.Table, fault: str | None) -> Iterator[pa.RecordBatch]:
    whole: pa.Table = rows.append_column("fault", pa.array([fault] * len(rows), pa.string())).combine_chunks()
    yield from whole.to_batches()


def pieces(source: Storage, path: str) -> Iterator[bytes]:
    """A file's bytes; raises FileNotFoundError."""
    return source.pieces(path, PIECE if path.endswith(".gz") else 32 * PIECE)


class _Reading:
    """One task at work. It holds no more rows than one file of `events` is to have."""

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
            output.newer, output.newest, newer = newer, newest, 0  # of the task, not of the file
            yield output
        yield from self._gone

    def _pieces(self, path: str) -> Iterator[bytes]:
        try:
            yield from pieces(self._source, path)
        except FileNotFoundError:  # since the folder was listed: it is read when it is back
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
                self._put_aside(file, texts[place].decode(errors="replace"), why)
        for file, why in block.broken:
            self._put_aside(file, "", why)

    def _put_aside(self, file: str, text: str, why: str) -> None:
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
        path, size = write_parquet(self._tables.below(table), folder, rows)
        return Output(table, path, hour, size, len(rows))


def write_parquet(table: Storage, prefix: str, rows: pa.Table) -> tuple[str, int]:
    """A new file of a table; gives its path and size."""
    path, data = f"{prefix}{uuid.uuid4().hex}.parquet", event_files.as_parquet(rows)
    table.write(path, data)
    return path, len(data)


def shown(source: Storage, path: str) -> str:
    """A file as people write it."""
    return f"{source.url}/{path}"
