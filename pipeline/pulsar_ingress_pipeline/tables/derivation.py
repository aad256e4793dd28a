"""Derives all tables from a version of `events`, only for the hours that have changed.

A file of a table has the rows of one day, with which its name begins, or of all days. Tables without a time are merged
from shares of hours and days, which are tables of their own below `_shares/`. The days before yesterday have one share
together, so a new hour costs no more on a long history. Two queries compute all tables, one over events and one over
shares: a small batch costs what planning its queries costs.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
_ALL, _BEFORE = "all", "before-"
"""Spans besides days: all time, and all days before one, as in `before-2026-11-16`."""

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
        return [file for file in self.before if _span(file) in days]

    def replace_days(self, days: Sequence[str]) -> tuple[list[DataFile], list[DataFile], str]:
        """Gives the shares of all other days, those of them that should become one, and its span.

        The last day before these stays separate, as late events may change it. Later ones make all be merged again.
        """
        kept = [file for file in self.before if _BEFORE < _span(file) <= _BEFORE + days[0]]
        end = _span(kept[0]).removeprefix(_BEFORE) if kept else ""
        apart = [file for file in self.before if end <= _span(file) < _BEFORE and _span(file) not in days]
        last = max((_span(file) for file in apart if _span(file) < days[0]), default="")
        past = [file for file in apart if _span(file) < last]
        replaced = [file for file in self.before if _span(file) > _BEFORE and (past or file not in kept)]
        self.remove = self.of_days(days) + replaced
        return kept + apart, kept + past if past else [], _BEFORE + last


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
        # Another command may have committed to `events` and to these tables between our opening of both.
        events.expect(max(known, default=-1))
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
        with _configured(self._spark(), size, is_small), ExitStack() as stack:
            rows = self._read(events.storage, files, EVENTS, is_small)
            sources = {source: source(rows) for source in {table.source for table in self._derived}}
            for source, made in sources.items():
                if source is not each_event:
                    stack.callback(made.persist().unpersist)
            for table in self._derived:
                is_final = table.span == "hour"
                name = table.name if is_final else _shares(table, "hours")
                day = "date_format(window_start, 'yyyy-MM-dd')" if is_final else f"left({SPAN}, {_DAY})"
                parts[name] = table.rows(sources[table.source]), day
                targets[name].remove = targets[name].of_days(days)
                for file in targets[name].remove:
                    replaced[name, _span(file)].append(file.path)
            self._write(parts, targets, is_small, replaced, hours)

    def _of_shares(self, days: Sequence[str], targets: Mapping[str, _Target]) -> None:
        """Merge the shares of hours into those of days, and these into tables of all time."""
        with_shares = {table: targets[_shares(table, "hours")] for table in self._derived if table.span != "hour"}
        merged = [table for table, of_hours in with_shares.items() if of_hours.add or of_hours.remove]
        unchanged = {
            table: targets[_shares(table, "days")].replace_days(days) for table in merged if table.span == "all"
        }
        read = (*(with_shares[table].add for table in merged), *(others for others, _, _ in unchanged.values()))
        size = sum(file.size for files in read for file in files)
        parts: dict[str, tuple[DataFrame, str]] = {}
        is_small = size < SMALL_SHARES
        with _configured(self._spark(), size, is_small):
            for table in merged:
                of_hours, target, schema = with_shares[table], targets[table.name], table.share_schema
                shares = self._read(of_hours.table.storage, of_hours.add, schema, is_small)
                by_day = table.merge(shares.withColumn(SPAN, F.substring(SPAN, 1, _DAY)))
                if table.span == "day":
                    parts[table.name], target.remove = (table.finish(by_day), SPAN), target.of_days(days)
                    continue
                name, (others, past, before) = _shares(table, "days"), unchanged[table]
                storage = targets[name].table.storage
                whole = by_day.unionByName(self._read(storage, others, schema, is_small))
                total = table.merge((whole.coalesce(1) if is_small else whole).withColumn(SPAN, F.lit(_ALL)))
                parts[table.name], target.remove = (table.finish(total), SPAN), target.before
                if past:
                    earlier = self._read(storage, past, schema, is_small).withColumn(SPAN, F.lit(before))
                    by_day = by_day.unionByName(table.merge(earlier))
                parts[name] = by_day, SPAN
            self._write(parts, targets, is_small)

    def _write(
        self,
        parts: Mapping[str, tuple[DataFrame, str]],
        targets: Mapping[str, _Target],
        is_small: bool,
        replaced: Mapping[tuple[str, str], Sequence[str]] = MappingProxyType({}),
        changed: Sequence[str] = (),
    ) -> None:
        """Write the parts: they replace the files that their tables remove."""
        if not parts:
            return
        writer = Writer(self._tables, {name: self._schemas[name] for name in parts}, dict(replaced), changed)
        found = writer.query(parts, is_small).collect()
        written = {(table, span): DataFile(*file) for table, span, *file in found}
        for name, span in replaced.keys() - written.keys():
            # The changed hours of this day have no rows, so Spark wrote no file; its other hours may have rows.
            if (file := writer.write(name, span, [])) is not None:
                written[name, span] = file
        for (name, _), file in written.items():
            targets[name].add.append(file)

    def _read(self, storage: Storage, files: Sequence[DataFile], schema: T.StructType, is_small: bool) -> DataFrame:
        """Small input has one partition, which Spark groups, sorts and joins without a shuffle."""
        if files:
            rows = self._spark().read.schema(schema).parquet(*(storage.spark_url(file.path) for file in files))
        else:
            rows = self._spark().createDataFrame([], schema)
        return rows.coalesce(1) if is_small else rows


def _shares(table: Table, span: str) -> str:
    return f"{SHARES}/{table.name}_{span}"


def _span(file: DataFile) -> str:
    """The day, `all` or `before-` a day, with which the name of a file begins."""
    return file.path.rpartition("-")[0]


def _days_in(table: LakeTable) -> list[DataFile]:
    """The files of a table. One without a day in its name was written by another program."""
    files = table.files()
    for file in files:
        if not re.match(r"(before-)?\d{4}-\d\d-\d\d-|all-", file.path):
            raise PipelineFault(
                f"{table.storage.url}/{file.path}: another program has merged the files of this table. Delete the "
                "table's folder, and it is made again"
            )
    return files


@contextmanager
def _configured(spark: SparkSession, size: int, is_small: bool) -> Iterator[None]:
    """Gives the session what a query over this many bytes of Parquet needs, and takes it away again."""
    partitions = {"spark.sql.shuffle.partitions": str(min(max(size // PARTITION, 1), PARTITIONS))}
    needed = _ALWAYS | partitions | (FOR_SMALL if is_small else {})
    before = {key: spark.conf.get(key, None) for key in needed}
    try:
        for key, value in needed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
