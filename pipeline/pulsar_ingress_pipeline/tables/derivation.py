"""The tables that follow from a version of `events`, for the hours that have changed and no others.

A file of a table has the rows of one day, which is at the beginning of its name, or of all days. Tables without a time
are merged from shares of hours and days, tables of their own below `_shares/`. Two queries make all tables, since the
number of queries is what a small batch costs: one of events, the other of shares.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.changes import changed_hours, hour_of
from pulsar_ingress_pipeline.lake.layout import SHARES
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import DataFile, LakeTable
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_pipeline.tables.table import SPAN, Table
from pulsar_ingress_pipeline.tables.writing import Part, Writer, arrow_schema, together

_DAY = len("2026-11-16")
_ALL = "all"

SMALL_EVENTS, SMALL_SHARES = 2 << 20, 64 << 20
"""Bytes of Parquet that are sooner worked on than a query for many is compiled."""
PARTITION = 8 << 20
"""Bytes of Parquet for each partition of a shuffle; each of its tasks has a file for each."""
PARTITIONS = 1000
_RULES = "org.apache.spark.sql.catalyst.optimizer."
_ALWAYS = {
    # Spark would plan all of a query again whenever a part of it is done, and ours are large.
    "spark.sql.adaptive.enabled": "false",
    # Inputs of one partition each, put together, would be one task's.
    "spark.sql.unionOutputPartitioning": "false",
    # It would ask after each row how large all columns are by now: half of what all tables cost.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # The first `lower` would have ICU look at all of Unicode, which takes seconds.
    "spark.sql.icu.caseMappings.enabled": "false",
}
_FOR_SMALL = {
    # Compiling a query costs more than running it on a few rows,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # and so does finding out what could be left out of it.
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
        """The files of these days that there were."""
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
        self._targets = {table.name: LakeTable(tables, table.name, arrow_schema(table.schema)) for table in derived}
        for table in derived:
            for name in _shares(table):
                self._targets[name] = LakeTable(tables, name)

    def derive(self, events: LakeTable) -> list[str]:
        """Derive what is behind; gives the hours that were."""
        versions = [self._targets[name].derived_from for name in self._expected(events)]
        if all(version == events.version for version in versions):
            return []
        known = [version for version in versions if version is not None]
        hours = changed_hours(events, min(known) if len(known) == len(versions) else None)
        targets = {name: _Target(table, _days_in(table)) for name, table in self._targets.items()}
        if hours:
            self._stage("tables: hours")
            changed = set(hours)
            files = [file for file in events.files() if hour_of(file) in changed]
            schemas = self._of_events(events, files, hours, targets)
            self._stage("tables: days")
            self._of_shares(sorted({hour[:_DAY] for hour in hours}), targets, schemas)
        self._stage("commit")
        for target in targets.values():
            if target.table.has_schema and target.table.derived_from != events.version:
                target.table.commit(target.add, target.remove, source=events.version)
        return hours

    def _expected(self, events: LakeTable) -> Iterator[str]:
        """The tables that should be there: all but shares that have had no rows."""
        for table in self._derived:
            yield table.name
            for before, name in pairwise((events.name, *_shares(table))):
                if (events if before == events.name else self._targets[before]).files():
                    yield name

    def _of_events(
        self, events: LakeTable, files: Sequence[DataFile], hours: Sequence[str], targets: Mapping[str, _Target]
    ) -> dict[str, T.StructType]:
        """What tables have by hour; gives their schemas. What several are made of is worked out once."""
        size = sum(file.size for file in files)
        days = sorted({hour[:_DAY] for hour in hours})
        parts: dict[str, Part] = {}
        replaced: dict[tuple[str, str], list[str]] = defaultdict(list)
        with _settings(self._spark(), size, size < SMALL_EVENTS) as sized:
            rows = sized(self._read(events.storage, files, EVENTS))
            sources = {source: source(rows).persist() for source in {one.source for one in self._derived} if source}
            try:
                for table in self._derived:
                    made = table.of(sources[table.source] if table.source else rows)
                    if table.merge is None:
                        name, day, schema = table.name, "date_format(window_start, 'yyyy-MM-dd')", table.schema
                    else:
                        name, day, schema = _hours(table), f"left({SPAN}, {_DAY})", _nullable(made.schema)
                    parts[name] = Part(made, day, schema)
                    for file in targets[name].of_days(days):
                        replaced[name, file.path[:_DAY]].append(file.path)
                self._write(parts, targets, days, size < SMALL_EVENTS, replaced, hours)
            finally:
                for source in sources.values():
                    source.unpersist()
        return {name: part.schema for name, part in parts.items()}

    def _of_shares(
        self, days: Sequence[str], targets: Mapping[str, _Target], schemas: Mapping[str, T.StructType]
    ) -> None:
        """Tables that have no time: of the shares of hours, those of the days, and all of them together."""
        merged = [
            table for table in self._derived
            if table.merge is not None and (targets[_hours(table)].add or targets[_hours(table)].remove)
        ]  # fmt: skip
        others = {
            table.name: [file for file in targets[_days(table)].before if file.path[:_DAY] not in days]
            for table in merged
            if table.span == "all"
        }
        read = (*(targets[_hours(table)].add for table in merged), *others.values())
        size = sum(file.size for files in read for file in files)
        parts: dict[str, Part] = {}
        with _settings(self._spark(), size, size < SMALL_SHARES) as sized:
            for table in merged:
                assert table.merge is not None
                of_hours = targets[_hours(table)]
                shares = sized(self._read(of_hours.table.storage, of_hours.add, schemas[_hours(table)]))
                by_day = table.merge(shares.withColumn(SPAN, F.substring(SPAN, 1, _DAY)))
                if table.span == "day":
                    parts[table.name] = Part(table.finish(by_day), SPAN, table.schema)
                    continue
                name = _days(table)
                parts[name] = Part(by_day, SPAN, _nullable(by_day.schema))
                rest = sized(self._read(targets[name].table.storage, others[table.name], parts[name].schema))
                total = table.merge(by_day.unionByName(rest).withColumn(SPAN, F.lit(_ALL)))
                parts[table.name] = Part(table.finish(total), SPAN, table.schema)
            self._write(parts, targets, days, size < SMALL_SHARES)

    def _write(
        self,
        parts: Mapping[str, Part],
        targets: Mapping[str, _Target],
        days: Sequence[str],
        is_small: bool,
        replaced: Mapping[tuple[str, str], Sequence[str]] = MappingProxyType({}),
        changed: Sequence[str] = (),
    ) -> None:
        """Write the parts, in the place of what their tables have of these days, or of all."""
        if not parts:
            return
        schemas = {name: arrow_schema(part.schema) for name, part in parts.items()}
        for name, schema in schemas.items():
            targets[name].table.expect(schema)
        writer = Writer(self._tables, schemas, dict(replaced), changed)
        written = {(row[0], row[1]): tuple(row[2:]) for row in together(parts, writer, is_small).collect()}
        of_all = {table.name for table in self._derived if table.merge is not None and table.span == "all"}
        for name in parts:
            target, is_of_all = targets[name], name in of_all
            target.remove += target.before if is_of_all else target.of_days(days)
            for span in [_ALL] if is_of_all else days:
                file = written.get((name, span))
                if file is None and (name, span) in replaced:
                    # A day whose new hours have no rows was not written, and may have others.
                    file = writer.write(name, span, [])
                target.add += [DataFile(*file)] if file is not None else []

    def _read(self, storage: Storage, files: Sequence[DataFile], schema: T.StructType) -> DataFrame:
        if not files:
            return self._spark().createDataFrame([], schema)
        return self._spark().read.schema(schema).parquet(*(storage.spark_url(file.path) for file in files))


def _shares(table: Table) -> tuple[str, ...]:
    """The tables that it is merged from."""
    if table.merge is None:
        return ()
    return (_hours(table),) if table.span == "day" else (_hours(table), _days(table))


def _hours(table: Table) -> str:
    return f"{SHARES}/{table.name}_hours"


def _days(table: Table) -> str:
    return f"{SHARES}/{table.name}_days"


def _nullable(schema: T.StructType) -> T.StructType:
    """What is never null in a query may be so in a file."""
    return T.StructType([T.StructField(field.name, _nullable_type(field.dataType)) for field in schema])


def _nullable_type(type_: T.DataType) -> T.DataType:
    if isinstance(type_, T.StructType):
        return _nullable(type_)
    return T.ArrayType(_nullable_type(type_.elementType)) if isinstance(type_, T.ArrayType) else type_


def _days_in(table: LakeTable) -> list[DataFile]:
    """Its files. One that does not say which day it has was written by another program."""
    files = table.files()
    for file in files:
        if not re.match(r"\d{4}-\d\d-\d\d-|all-", file.path):
            raise PipelineFault(
                f"{table.storage.url}/{file.path}: another program has merged the files of this table. Delete the "
                "table's folder, and it is made again"
            )
    return files


@contextmanager
def _settings(spark: SparkSession, size: int, is_small: bool) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Plans for so many bytes of Parquet; gives what is to be done to each input: little is read by one task.

    Of one partition Spark can group, sort and join without a shuffle.
    """
    partitions = {"spark.sql.shuffle.partitions": str(min(max(size // PARTITION, 1), PARTITIONS))}
    settings = partitions | _ALWAYS | (_FOR_SMALL if is_small else {})
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield lambda rows: rows.coalesce(1) if is_small else rows
    finally:
        for key, was in before.items():
            if was is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, was)
