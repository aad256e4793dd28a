"""One batch of event files becomes staged rows of `events` and `quarantine`, whatever is wrong with the files."""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline import reading
from pipeline.faults import PipelineFault
from pipeline.storage import SPARK_FAULTS, File, Storage, cause, shown

log = logging.getLogger("pipeline")

SORTED = ("kind", "ingress", "time")
"""Rows of an hour stand together that are asked for together, so that readers can skip the others."""


@dataclass(slots=True)
class Batch:
    """What was staged of which files."""

    files: list[File]
    lines: int = 0
    bad: int = 0
    newer: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read to their end, with the reason."""

    @property
    def urls(self) -> list[str]:
        return [file.url for file in self.files]


def stage(
    spark: SparkSession, events: Storage, files: Sequence[File], span: tuple[str, str] | None, to: str, aside: str
) -> Batch:
    """Write the events of the files to one folder, by hour, and what is none to another.

    All files are taken to be whole. Where one turns out not to be, all are looked at: one that is gone is left for
    another time, and of one that is broken what can be read is taken.
    """
    batch = Batch(list(files))
    try:
        _write(spark, batch, span, to, aside)
    except SPARK_FAULTS as error:
        if not _look_at(spark, events, batch):
            raise PipelineFault(f"the events cannot be read: {cause(error)}") from None
        _write(spark, batch, span, to, aside)
    return batch


def _write(spark: SparkSession, batch: Batch, span: tuple[str, str] | None, to: str, aside: str) -> None:
    if not batch.files:
        return
    observation = Observation()
    parsed = reading.parsed(_lines(spark, batch, batch.urls))
    rows = reading.events(reading.watched(parsed, observation))
    if span is not None:
        rows = rows.where((F.col("time") >= F.lit(span[0])) & (F.col("time") < F.lit(span[1])))
    by_hour(rows).write.mode("overwrite").partitionBy("date", "hour").parquet(to)
    seen = reading.seen(observation)
    batch.lines, batch.bad, batch.newer = seen.lines, seen.bad + len(batch.broken), seen.newer
    if not batch.bad:
        return
    bad = reading.broken_off(spark, list(batch.broken), list(batch.broken.values()))
    if suspects := reading.with_bad(spark, batch.urls, seen):
        bad = bad.unionByName(reading.quarantined(reading.parsed(_lines(spark, batch, suspects))))
    bad.coalesce(1).sortWithinPartitions("file").write.mode("overwrite").parquet(aside)


def _lines(spark: SparkSession, batch: Batch, urls: Sequence[str]) -> DataFrame:
    whole = [url for url in urls if url not in batch.broken]
    broken = [url for url in urls if url in batch.broken]
    if not broken:
        return reading.lines(spark, whole)
    torn = reading.lines(spark, broken, is_broken=True)
    return torn.unionByName(reading.lines(spark, whole)) if whole else torn


def by_hour(rows: DataFrame) -> DataFrame:
    """Rows as they are written: with their partitions, and sorted within each."""
    rows = rows.withColumn("date", F.date_format("time", "yyyy-MM-dd")).withColumn("hour", F.hour("time"))
    return rows.sortWithinPartitions("date", "hour", *SORTED)


def _look_at(spark: SparkSession, events: Storage, batch: Batch) -> bool:
    """Find the files that are gone and those that are broken; says whether there are any."""
    present = {file.url for file in events.tree()} if not events.is_file() else set(batch.urls)
    for file in batch.files:
        if file.url not in present:
            log.warning("%s: is gone; it is taken when it is back", shown(file.url))
    gone = len(batch.files)
    batch.files = [file for file in batch.files if file.url in present]
    packed = [file for file in batch.files if file.name.endswith(".gz")]
    if packed:
        told = spark.sparkContext.binaryFiles(",".join(_escaped(file.url) for file in packed))
        found = dict(told.mapValues(fault_of_gzip).collect())
        batch.broken = {file.url: fault for file in packed if (fault := found.get(file.url))}
    return bool(batch.broken) or len(batch.files) < gone


def _escaped(url: str) -> str:
    return "".join("\\" + character if character in "\\*?[]{}," else character for character in url)


def fault_of_gzip(data: bytes) -> str | None:
    """What is wrong with a gzip file; None: nothing."""
    while data:
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            while data and not inflate.eof:
                inflate.decompress(data, 1 << 20)
                data = inflate.unconsumed_tail or inflate.unused_data
                if not inflate.unconsumed_tail and not inflate.eof:
                    return "gzip breaks off: the rest of the file is lost"
        except zlib.error as error:
            return f"gzip is damaged: the rest of the file is lost ({error})"
    return None
