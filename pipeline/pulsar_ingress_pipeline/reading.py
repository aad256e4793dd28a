"""From event files to rows: Python makes of lines what they are, where they are read.

Files come as they are, several to a block; one that is too large for that comes line by line, so that tasks can share
it and none has to hold it.

A line is no event where its bytes are no UTF-8, where it is no JSON object or more than one, where a value has another
type than the schema's, or where `id` or `time` is missing. It goes to `quarantine` with the reason. A field that the
schema does not have is dropped, and an event of a newer schema is read as far as it is known.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline import packing, parsing, sinking
from pulsar_ingress_pipeline.lines import Block, Lines, blocks
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_pipeline.storage import literal

QUARANTINE = T.StructType([T.StructField(name, T.StringType()) for name in ("file", "line_text", "reason")])

EVENTS_TABLE, QUARANTINE_TABLE, INDEX_TABLE = "events", "quarantine", "index"
WHOLE = "all"
"""The span of what is not by hour."""

_COUNTS = ("lines", "bad", "newer", "events", "newest")
_TAKEN = ", ".join([sinking.FILES, *(f"{name} long" for name in _COUNTS)])
_TAKEN_ARROW = pa.schema(
    [(sinking.TABLE, pa.string()), (sinking.SPAN, pa.string()), ("content", pa.binary())]
    + [(name, pa.int64()) for name in _COUNTS]
)
_PARSED = T.StructType([*EVENTS.fields, T.StructField("reason", T.StringType())])


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen while the events were taken."""

    lines: int
    bad: int
    newer: int
    """Events of a schema that is newer than this pipeline's."""
    events: int
    newest: float | None
    """The time of the newest event, in seconds since the epoch."""


def lines(spark: SparkSession, files: Sequence[str], is_broken: bool = False) -> DataFrame:
    """Lines with their file, as in a URL: %20 for a space. Of a broken file those before the break, and no error."""
    reader = spark.read.option("lineSep", "\n").option("ignoreCorruptFiles", str(is_broken).lower())
    return reader.text([literal(file) for file in files]).select("value", F.col("_metadata.file_path").alias("file"))


def contents(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Whole files, as they are, with their name as in a URL."""
    found = spark.read.format("binaryFile").load([literal(file) for file in files])
    return found.select("content", F.col("_metadata.file_path").alias("file"))


def parsed(lines: DataFrame) -> DataFrame:
    """A row for each line: its event, or the reason why it is none, which is empty for a blank line."""
    return lines.select(F.col("value").cast("binary")).mapInArrow(_each_line, _PARSED)


def events(parsed: DataFrame) -> DataFrame:
    """The rows of `events` that the lines are."""
    return parsed.where(F.col("reason").isNull()).select(EVENTS.names)


def _each_line(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = parsing.parse(Lines.of(batch.column("value")))
        reasons = dict(found.bad)
        place, places = 0, []
        for line in range(len(batch)):
            places.append(None if line in reasons else place)
            place += line not in reasons
        rows = packing.plain(found.events.take(pa.array(places, pa.int32())))
        reason = pa.array([reasons.get(line) for line in range(len(batch))], pa.string())
        yield from rows.append_column("reason", reason).combine_chunks().to_batches()


def taken(found: DataFrame, span: tuple[int, int] | None) -> DataFrame:
    """Files of `events`, by hour, of the index and of `quarantine` that contents or lines are, with counts.

    With a span, from and to in microseconds since the epoch, only events of it.
    """
    value = F.col("value").cast("binary") if "value" in found.columns else F.col("content")
    return found.select(value, "file").mapInArrow(_Taking(span), _TAKEN)


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """Of contents or of lines, whichever they are."""
    first = next(batches, None)
    if first is None:
        return
    batches = chain([first], batches)
    if "content" in first.schema.names:
        whole = (row for batch in batches for row in zip(batch["file"], batch["content"], strict=True))
        yield from blocks((file.as_py(), content.as_py()) for file, content in whole)
        return
    for batch in batches:
        ends = np.cumsum(pc.add(pc.binary_length(batch["value"]), 1).to_numpy())
        yield Block(Lines.of(batch["value"]), batch["file"].to_pylist(), [0, *ends.tolist()])


class _Taking:
    """What a task makes of its lines. It holds no more of them than one file is to have."""

    def __init__(self, span: tuple[int, int] | None) -> None:
        self._span = span

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._hours, self._bad_bytes = packing.Hours(), 0
        self._index: list[pa.Table] = []
        self._bad: list[tuple[str, str, str]] = []
        counts = dict.fromkeys(_COUNTS, 0)
        newest = None
        for block in _blocks(batches):
            found = parsing.parse(block.lines)
            read = found.events
            counts["bad"] += self._put_aside(block, found.bad)
            events = self._within(read)
            counts["lines"] += len(read) + len(found.bad)
            counts["newer"] += found.newer
            counts["events"] += len(events)
            newest = max(filter(None, (newest, packing.newest_of(read))), default=None)
            self._hours.add(events)
            if self._hours.is_full or self._bad_bytes >= packing.FULL:
                yield from self._files(is_end=False)
        yield from self._files(is_end=True)
        yield from sinking.as_batches([(None, None, None, *(counts | {"newest": newest}).values())], _TAKEN_ARROW)

    def _put_aside(self, block: Block, bad: Sequence[tuple[int, str]]) -> int:
        """Keep what is no event, and say how much that is."""
        texts = list(block.lines) if bad else []
        aside = [(block.file_of(place), texts[place].decode(errors="replace"), why) for place, why in bad if why]
        aside += [(file, "", why) for file, why in block.broken]
        self._bad += [(shown(file), text, why) for file, text, why in aside]
        self._bad_bytes += sum(len(text) for _, text, _ in aside)
        return len(aside)

    def _within(self, events: pa.Table) -> pa.Table:
        if self._span is None:
            return events
        micros = events["time"].cast(pa.int64())
        start, end = self._span
        return events.filter(pc.and_(pc.greater_equal(micros, start), pc.less(micros, end)))

    def _files(self, is_end: bool) -> Iterator[pa.RecordBatch]:
        nothing = (None,) * len(_COUNTS)
        for hour, rows in self._hours.packed():
            self._index.append(packing.index_of(hour, rows))
            yield from sinking.as_batches([(*sinking.row(EVENTS_TABLE, hour, rows), *nothing)], _TAKEN_ARROW)
        if self._bad:
            rows = pa.table(list(zip(*self._bad, strict=True)), names=QUARANTINE.names)
            self._bad, self._bad_bytes = [], 0
            yield from sinking.as_batches([(*sinking.row(QUARANTINE_TABLE, WHOLE, rows), *nothing)], _TAKEN_ARROW)
        if is_end and self._index:
            rows = pa.concat_tables(self._index)
            yield from sinking.as_batches([(*sinking.row(INDEX_TABLE, WHOLE, rows), *nothing)], _TAKEN_ARROW)


def shown(file: str) -> str:
    """A file as people write it, of what Spark calls it."""
    return re.sub("^file:/+", "/", unquote(file))


def watched(taken: DataFrame, observation: Observation) -> DataFrame:
    """The same files; what they are of is counted as they go by."""
    sums = [F.sum(name).alias(name) for name in _COUNTS if name != "newest"]
    return taken.observe(observation, *sums, F.max("newest").alias("newest"))


def seen(observation: Observation) -> Seen:
    found = observation.get
    newest = found["newest"] / 1e6 if found["newest"] is not None else None
    lines, bad, newer, events = (int(found[name] or 0) for name in _COUNTS if name != "newest")
    return Seen(lines, bad, newer, events, newest)
