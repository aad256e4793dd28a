"""An `id` counts once: the earliest event has it, and of several at the same moment the smallest row.

So it does not matter in which file, order or batch they came. An index of hashes, `_index/`, says which ids are there
and in which hour: only where a hash is met again are rows themselves compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.hours import hour_of
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_pipeline.storage import File, literal

INDEX = T.StructType([T.StructField("hour", T.StringType()), T.StructField("hash", T.LongType())])


def hash_of_id() -> Column:
    return F.xxhash64("id")


def index_of(events: DataFrame) -> DataFrame:
    return events.select(hour_of(F.col("time")).alias("hour"), hash_of_id().alias("hash")).sortWithinPartitions("hour")


@dataclass(frozen=True, slots=True)
class Contest:
    """Rows whose id may be there twice, new ones and old ones, and which of them stay."""

    hashes: DataFrame
    ranked: DataFrame
    """The rows with `is_new`, `hour`, and `rank`: 1 stays."""
    lost_new: frozenset[str]
    """Hours in which a new row goes."""
    lost_old: frozenset[str]
    """Hours in which an old row goes."""

    def kept(self, rows: DataFrame, hours: Sequence[str], is_new: bool) -> DataFrame:
        """What is left of these rows, which are those of whole hours."""
        undisputed = rows.withColumn("hash", hash_of_id()).join(self.hashes, "hash", "left_anti")
        winners = self.ranked.where(
            (F.col("rank") == 1) & (F.col("is_new") == is_new) & F.col("hour").isin(list(hours))
        )
        return undisputed.select(EVENTS.names).unionByName(winners.select(EVENTS.names))

    def close(self) -> None:
        self.ranked.unpersist()
        self.hashes.unpersist()


def suspects(new: DataFrame, index: DataFrame | None, tasks: int = 1) -> DataFrame:
    """The hashes that are there twice: among the new (`hour` is null), or in the index, with the hour it has.

    Both are rows of an index. The new ones are so few that each task can read them all and sort its share: that costs
    an eighth of a shuffle.
    """
    shares = [new.select("hash").where(F.pmod("hash", F.lit(tasks)) == share).coalesce(1) for share in range(tasks)]
    repeated = reduce(DataFrame.union, shares).mapInArrow(_repeated, "hash long")
    twice = repeated.select("hash", F.lit(None).cast("string").alias("hour"))
    if index is None:
        return twice
    return twice.union(index.join(new, "hash", "left_semi").select("hash", "hour"))


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is among the values more than once."""
    values = np.sort(np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in batches)]))
    yield pa.RecordBatch.from_arrays([pa.array(np.unique(values[1:][values[1:] == values[:-1]]))], names=["hash"])


def contest(hashes: DataFrame, new: DataFrame, old: DataFrame) -> Contest:
    """Rank the rows of the hashes. Equal rows: the old one stays, so that its files do."""
    rows = new.withColumn("is_new", F.lit(True)).unionByName(old.withColumn("is_new", F.lit(False)))
    rows = rows.withColumn("hash", hash_of_id()).join(hashes.select("hash").distinct(), "hash", "left_semi")
    others = [name for name in EVENTS.names if name not in ("id", "time")]
    order = Window.partitionBy("id").orderBy("time", F.struct(*others), "is_new")
    ranked = rows.withColumn("rank", F.row_number().over(order)).withColumn("hour", hour_of(F.col("time")))
    ranked = ranked.persist(StorageLevel.MEMORY_AND_DISK)
    lost = ranked.where("rank > 1").select("hour", "is_new").distinct().collect()
    return Contest(
        hashes,
        ranked,
        frozenset(hour for hour, is_new in lost if is_new),
        frozenset(hour for hour, is_new in lost if not is_new),
    )


def read_events(spark: SparkSession, files: Sequence[File]) -> DataFrame:
    """The rows of these files of `events`."""
    return _read(spark, files, EVENTS)


def read_index(spark: SparkSession, files: Sequence[File], oldest: str | None = None) -> DataFrame:
    """The index, from an hour on if one is given."""
    index = _read(spark, files, INDEX)
    return index if oldest is None else index.where(F.col("hour") >= oldest)


def _read(spark: SparkSession, files: Sequence[File], schema: T.StructType) -> DataFrame:
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(literal(file.url) for file in files))
