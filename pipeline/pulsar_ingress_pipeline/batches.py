"""One batch of event files becomes staged files of `events`, the index and `quarantine`, whatever is wrong with it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline import reading, sinking
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lines import Broken, unpacked
from pulsar_ingress_pipeline.storage import SPARK_FAULTS, File, Storage, cause, encoded, literal, shown

log = logging.getLogger("pipeline")

TASK_BYTES = 256 << 20
"""Of lines that one task reads. Its files follow each other in time, so that few tasks have events of the same hour."""
_PACKED = 9
"""Lines are so many times what gzip makes of them."""
LARGE = 32 << 20
"""A file of more bytes is read line by line. Sidecars write such ones only where they neither rotate nor compress."""


@dataclass(slots=True)
class Batch:
    """What was staged of which files."""

    files: list[File]
    lines: int = 0
    bad: int = 0
    newer: int = 0
    events: int = 0
    newest: float | None = None
    staged: sinking.Staged = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Large files that cannot be read to their end, with the reason."""

    def hours(self) -> dict[str, list[File]]:
        """The new files of `events`."""
        return {hour: files for (table, hour), files in self.staged.items() if table == reading.EVENTS_TABLE}

    def others(self, table: str) -> list[File]:
        return self.staged.get((table, reading.WHOLE), [])


def stage(
    spark: SparkSession,
    events: Storage,
    files: Sequence[File],
    span: tuple[datetime, datetime] | None,
    tables: Storage,
    folder: str,
) -> Batch:
    """Write what the files have to a folder of the tables; of one that is broken what can be read is taken.

    All files are taken to be there, and large ones to be whole. Where one turns out not to be, all are looked at: one
    that is gone is left for another time.
    """
    batch = Batch(list(files))
    try:
        _write(spark, batch, span, tables, folder)
    except SPARK_FAULTS as error:
        if not _look_at(spark, events, batch):
            raise PipelineFault(f"the events cannot be read: {cause(error)}") from None
        _write(spark, batch, span, tables, folder)
    return batch


def _write(
    spark: SparkSession, batch: Batch, span: tuple[datetime, datetime] | None, tables: Storage, folder: str
) -> None:
    if not batch.files:
        return
    observation = Observation()
    micros = (_micros(span[0]), _micros(span[1])) if span is not None else None
    large = [_lines(spark, file, batch) for file in batch.files if file.size > LARGE]
    whole = [
        reading.contents(spark, [file.url for file in files]).coalesce(1)
        for files in tasks([file for file in batch.files if file.size <= LARGE])
    ]
    found = [reading.taken(reduce(DataFrame.union, parts), micros) for parts in (whole, large) if parts]
    taken = reading.watched(reduce(DataFrame.union, found), observation).select("of_table", "of_span", "content")
    if batch.broken:
        taken = taken.union(_broken_off(spark, batch))
    with sinking.settings_for(spark, sinking.size_of(batch.files), are_lines=True):
        batch.staged = sinking.write(taken, tables, folder)
    seen = reading.seen(observation)
    batch.lines, batch.bad, batch.newer = seen.lines, seen.bad + len(batch.broken), seen.newer
    batch.events, batch.newest = seen.events, seen.newest


def tasks(files: Sequence[File]) -> list[list[File]]:
    """Files in the order of their names, which begin with their time, as many as a task is to read."""
    tasks: list[list[File]] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.name, file.url)):
        more = _lines_of(file)
        if not tasks or size + more > TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += more
    return tasks


def _lines_of(file: File) -> int:
    return file.size * (_PACKED if file.name.endswith(".gz") else 1)


def _lines(spark: SparkSession, file: File, batch: Batch) -> DataFrame:
    return reading.lines(spark, [file.url], is_broken=file.url in batch.broken)


def _broken_off(spark: SparkSession, batch: Batch) -> DataFrame:
    """A row of `quarantine` for what cannot be read of each broken file."""
    rows = [(shown(file), "", reason) for file, reason in batch.broken.items()]
    table = pa.table(list(zip(*rows, strict=True)), names=reading.QUARANTINE.names)
    return spark.createDataFrame([sinking.row(reading.QUARANTINE_TABLE, reading.WHOLE, table)], sinking.FILES)


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def _look_at(spark: SparkSession, events: Storage, batch: Batch) -> bool:
    """Find the files that are gone and those that are broken; says whether there are any."""
    present = {file.url for file in events.tree()} if not events.is_file() else {file.url for file in batch.files}
    for file in batch.files:
        if file.url not in present:
            log.warning("%s: is gone; it is taken when it is back", shown(file.url))
    gone = len(batch.files)
    batch.files = [file for file in batch.files if file.url in present]
    batch.broken = broken(spark, [file.url for file in batch.files if file.size > LARGE])
    return bool(batch.broken) or len(batch.files) < gone


def broken(spark: SparkSession, files: Sequence[str]) -> dict[str, str]:
    """The files among these that cannot be read to their end, with the reason."""
    packed = [url for url in files if url.endswith(".gz")]
    if not packed:
        return {}
    whole = spark.read.format("binaryFile").load([literal(url) for url in packed])
    fault = F.udf(fault_of_gzip, useArrow=False)("content")
    found: dict[str, str | None] = dict(whole.select("_metadata.file_path", fault).collect())
    return {url: why for url in packed if (why := found.get(encoded(url)))}


def fault_of_gzip(data: bytes) -> str | None:
    """What is wrong with a gzip file; None: nothing."""
    try:
        for _ in unpacked(data):
            pass
    except Broken as fault:
        return str(fault)
    return None
