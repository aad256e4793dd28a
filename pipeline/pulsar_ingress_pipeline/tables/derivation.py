"""Derives all tables from a version of `events`, only for the hours that have changed.

A file of a table has the rows of one day, with which its name begins, or of all days. Tables without a time are merged
from shares of hours and days, which are tables of their own below `_shares/`. Two queries compute all tables, one over
events and one over shares: a small batch costs what planning its queries costs.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.catalog import SHARES
from pulsar_ingress_pipeline.lake.storage import DataFile, Storage
from pulsar_ingress_pipeline.lake.table import LakeTable
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_pipeline.tables.sources import each_event
from pulsar_ingress_pipeline.tables.table import SPAN, Table
from pulsar_ingress_pipeline.tables.writing import Writer, arrow_schema

_DAY = len("2026-11-16")
_ALL = "all"

SMALL_EVENTS, SMALL_SHARES = 2 << 20, 64 << 20
"""Bytes of Parquet; for less, running a query is faster than compiling it."""
PARTITION = 8 << 20
"""Bytes of Parquet for each partition of a shuffle; each task of it writes a file for each partition."""
PARTITIONS = 1000
_RULES = "org.apache.spark.sql.catalyst.optimizer."
_ALWAYS = {
    # Spark would plan a query again after each of its stages, and ours are large.
    "spark.sql.adaptive.enabled": "false",
    # The union of inputs with one partition each would be a single task.
    "spark.sql.unionOutputPartitioning": "false",
    # Spark would compute the size of all columns after each row: half of the cost of all tables.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # The first `lower` would make ICU load all of Unicode, which takes seconds.
    "spark.sql.icu.caseMappings.enabled": "false",
}
FOR_SMALL = {
    # Compiling a query costs more than running it on a few rows,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # and so does optimizing it.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        _RULES + rule
        for rule in (
            "FoldablePropagation", "PruneFilters", "ConstantFolding", "RemoveRedundantAliases", "OptimizeIn",
            "InferFiltersFromConstraints", "OptimizeOneRowRelationSubquery", "CombineConcats",
        )
    ),
}  # fmt: skip


@dataclass(slots=True)
class _Target:
    """A table that is being derived."""

    table: LakeTable
    before: list[DataFile]
    add: list[DataFile] = field(default_factory=list)
    remove: list[DataFile] = field(default_factory=list)

    def of_days(self, days: Sequence[str]) -> list[DataFile]:
        """The files of these days that existed before."""
        return [file for file in self.before if file.path[:_DAY] in days]


class Derivation:
    """Brings all derived tables to the version that `events` has."""

    def __init__(
        self,
        tables: Storage,
        spark: Callable[[], SparkSession],
        stage: Callable[[str], None],
        derived: Sequence[Table] = DERIVED,
    ) -> None:
        self._tables, self._spark, self._stage, self._derived = tables, spark, stage, derived
        self._schemas: dict[str, T.StructType] = {}
        for table in derived:
            self._schemas[table.name] = table.schema
            if table.span != "hour":
                self._schemas[_shares(table, "hours")] = table.share_schema
            if table.span == "all":
                self._schemas[_shares(table, "days")] = table.share_schema
        self._of = {name: LakeTable(tables, name, arrow_schema(schema)) for name, schema in self._schemas.items()}

    def derive(self, events: LakeTable) -> list[str]:
        """Derive the tables that are behind `events`; gives the hours that were."""
        versions = [table.derived_from for table in self._of.values()]
        if all(version == events.version for version in versions):
            return []
        known = [version for version in versions if version is not None]
        hours = events.changed_hours(min(known) if len(known) == len(versions) else None)
        targets = {name: _Target(table, _days_in(table)) for name, table in self._of.items()}
        if hours:
            self._stage("tables: hours")
            self._of_events(events, hours, targets)
            self._stage("tables: days")
            self._of_shares(sorted({hour[:_DAY] for hour in hours}), targets)
        self._stage("commit")
        for target in targets.values():
            if target.table.derived_from != events.version:
                target.table.commit(target.add, target.remove, source=events.version)
        return hours

    def _of_events(self, events: LakeTable, hours: Sequence[str], targets: Mapping[str, _Target]) -> None:
        """Compute the rows and shares of hours. A source that several tables have is computed once."""
        changed = set(hours)
        files = [file for file in events.files() if file.hour in changed]
        size = sum(file.size for file in files)
        days = sorted({hour[:_DAY] for hour in hours})
        parts: dict[str, tuple[DataFrame, str]] = {}
        replaced: dict[tuple[str, str], list[str]] = defaultdict(list)
        is_small = size < SMALL_EVENTS
        _configure(self._spark(), size, is_small)
        rows = self._read(events.storage, files, EVENTS, is_small)
        sources = {source: source(rows) for source in {table.source for table in self._derived}}
        kept = [made.persist() for source, made in sources.items() if source is not each_event]
        try:
            for table in self._derived:
                is_final = table.span == "hour"
                name = table.name if is_final else _shares(table, "hours")
                day = "date_format(window_start, 'yyyy-MM-dd')" if is_final else f"left({SPAN}, {_DAY})"
                parts[name] = table.rows(sources[table.source]), day
                for file in targets[name].of_days(days):
                    replaced[name, file.path[:_DAY]].append(file.path)
            self._write(parts, targets, days, is_small, replaced, hours)
        finally:
            for made in kept:
                made.unpersist()

    def _of_shares(self, days: Sequence[str], targets: Mapping[str, _Target]) -> None:
        """Merge the shares of hours into those of days, and these into tables of all time."""
        with_shares = {table: targets[_shares(table, "hours")] for table in self._derived if table.span != "hour"}
        merged = [table for table, of_hours in with_shares.items() if of_hours.add or of_hours.remove]
        others = {
            table.name: [file for file in targets[_shares(table, "days")].before if file.path[:_DAY] not in days]
            for table in merged
            if table.span == "all"
        }
        read = (*(with_shares[table].add for table in merged), *others.values())
        size = sum(file.size for files in read for file in files)
        parts: dict[str, tuple[DataFrame, str]] = {}
        is_small = size < SMALL_SHARES
        _configure(self._spark(), size, is_small)
        for table in merged:
            of_hours = with_shares[table]
            shares = self._read(of_hours.table.storage, of_hours.add, table.share_schema, is_small)
            by_day = table.merge(shares.withColumn(SPAN, F.substring(SPAN, 1, _DAY)))
            if table.span == "day":
                parts[table.name] = table.finish(by_day), SPAN
                continue
            name = _shares(table, "days")
            parts[name] = by_day, SPAN
            rest = self._read(targets[name].table.storage, others[table.name], table.share_schema, is_small)
            total = table.merge(by_day.unionByName(rest).withColumn(SPAN, F.lit(_ALL)))
            parts[table.name] = table.finish(total), SPAN
        self._write(parts, targets, days, is_small)

    def _write(
        self,
        parts: Mapping[str, tuple[DataFrame, str]],
        targets: Mapping[str, _Target],
        days: Sequence[str],
        is_small: bool,
        replaced: Mapping[tuple[str, str], Sequence[str]] = MappingProxyType({}),
        changed: Sequence[str] = (),
    ) -> None:
        """Write the parts: they replace what their tables have of these days, or of all time."""
        if not parts:
            return
        writer = Writer(self._tables, {name: self._schemas[name] for name in parts}, dict(replaced), changed)
        found = writer.query(parts, is_small).collect()
        written = {(table, span): DataFile(*file) for table, span, *file in found}
        of_all = {table.name for table in self._derived if table.span == "all"}
        for name in parts:
            target, is_of_all = targets[name], name in of_all
            target.remove += target.before if is_of_all else target.of_days(days)
            for span in [_ALL] if is_of_all else days:
                file = written.get((name, span))
                if file is None and (name, span) in replaced:
                    # The changed hours of this day have no rows, so Spark wrote no file; its other hours may have rows.
                    file = writer.write(name, span, [])
                target.add += [file] if file is not None else []

    def _read(self, storage: Storage, files: Sequence[DataFile], schema: T.StructType, is_small: bool) -> DataFrame:
        """Small input is read by one task: Spark groups, sorts and joins a single partition without a shuffle."""
        if files:
            rows = self._spark().read.schema(schema).parquet(*(storage.spark_url(file.path) for file in files))
        else:
            rows = self._spark().createDataFrame([], schema)
        return rows.coalesce(1) if is_small else rows


def _shares(table: Table, span: str) -> str:
    return f"{SHARES}/{table.name}_{span}"


def _days_in(table: LakeTable) -> list[DataFile]:
    """The files of a table. One without a day in its name was written by another program."""
    files = table.files()
    for file in files:
        if not re.match(r"\d{4}-\d\d-\d\d-|all-", file.path):
            raise PipelineFault(
                f"{table.storage.url}/{file.path}: another program has merged the files of this table. Delete the "
                "table's folder, and it is made again"
            )
    return files


def _configure(spark: SparkSession, size: int, is_small: bool) -> None:
    """Set what queries over this many bytes of Parquet need."""
    partitions = str(min(max(size // PARTITION, 1), PARTITIONS))
    for key, value in (_ALWAYS | {"spark.sql.shuffle.partitions": partitions}).items():
        spark.conf.set(key, value)
    for key, value in FOR_SMALL.items():
        if is_small:
            spark.conf.set(key, value)
        else:
            spark.conf.unset(key)
