"""The tables that follow from `events`, for the hours that have changed and no others.

A file of a table has its span, an hour, a day or all, at the beginning of its name; a new one takes the place of those
that have the same span. Tables without a time are merged from shares of hours and days, kept under `_partial/`, which
are written for all such tables at once: what a small batch costs is the number of Spark's queries.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.commits import Draft
from pipeline.hours import ALL, day_of, hour_of
from pipeline.storage import Storage, literal
from pipeline.tables import DERIVED, Table
from pipeline.tables.table import SPAN

PARTIAL = "_partial"
_TABLE, _KEY = "of_table", "of_span"
_AT_ONCE = 4

Shares = dict[str, list[str]]
"""Files of shares, by table."""


class Deriving:
    """Works out every table's files for some hours, into a draft."""

    def __init__(self, spark: SparkSession, storage: Storage, draft: Draft, stage: Callable[[str], None]) -> None:
        self._spark, self._storage, self._draft, self._stage = spark, storage, draft, stage

    def derive(self, events: DataFrame, hours: Sequence[str]) -> None:
        """`events` has all rows of these hours."""
        days = sorted({day_of(hour) for hour in hours})
        merged = [table for table in DERIVED if table.merge is not None]
        self._stage("tables: hours")
        parts = {table.name: table.part(events) for table in merged}
        changed = self._keep("hour", parts, hours, days)
        self._stage("tables: days")
        by_day = {
            table.name: self._merged(
                table, parts[table.name], changed[table.name], F.substring(SPAN, 1, len("2026-11-16"))
            )
            for table in merged
            if changed[table.name]
        }
        whole = self._keep("day", {name: by_day[name] for name in by_day if _table(name).span == "all"}, days, [""])
        self._stage("tables: all")
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # most of the time of a small query is spent waiting
            waiting = [
                pool.submit(self._derive_hours, table, events, hours) for table in DERIVED if table.merge is None
            ]
            for name, share in by_day.items():
                table = _table(name)
                if table.span == "day":
                    waiting.append(pool.submit(self._place, name, self._finished(table, share), days))
                else:
                    total = self._merged(table, share, whole[name], F.lit(ALL))
                    waiting.append(pool.submit(self._place, name, self._finished(table, total), [ALL]))
            for done in waiting:
                done.result()

    def _derive_hours(self, table: Table, events: DataFrame, hours: Sequence[str]) -> None:
        made = table.exactly(table.part(events))
        self._place(table.name, made.withColumn(_KEY, hour_of(F.col("window_start"))), hours)

    def _merged(self, table: Table, like: DataFrame, files: Sequence[str], span: Column) -> DataFrame:
        assert table.merge is not None
        shares = self._spark.read.schema(like.schema).parquet(*(literal(file) for file in files))
        return table.merge(shares.withColumn(SPAN, span))

    def _finished(self, table: Table, merged: DataFrame) -> DataFrame:
        finished = table.finish(merged) if table.finish is not None else merged
        columns = [finished[field.name].cast(field.type).alias(field.name) for field in table.fields]
        return finished.select(*columns, finished[SPAN].alias(_KEY))

    def _keep(self, level: str, shares: dict[str, DataFrame], spans: Sequence[str], prefixes: Sequence[str]) -> Shares:
        """Write shares of these spans; returns, for tables that they change, all files of spans that begin so.

        A table that has none in these spans, and had none, is not changed.
        """
        if not shares:
            return {}
        staged = self._draft.stage(f"{PARTIAL}-{level}")
        labelled = [made.withColumn(_TABLE, F.lit(name)).withColumn(_KEY, F.col(SPAN)) for name, made in shares.items()]
        together = functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), labelled)
        together.write.partitionBy(_TABLE, _KEY).parquet(self._storage.path(staged))
        new: Shares = defaultdict(list)
        for file in self._storage.tree(staged):
            new[_value(file.url, _TABLE)].append(file.url)
        found: Shares = {}
        for name in shares:
            folder = f"{PARTIAL}/{name}/{level}"
            before = [file for file in self._storage.files(folder) if file.name.startswith(tuple(prefixes))]
            gone = [file for file in before if file.name.partition(".")[0] in set(spans)]
            self._replace(folder, [file.name for file in gone], new[name])
            is_changed = bool(gone or new[name])
            found[name] = [*new[name], *(file.url for file in before if file not in gone)] if is_changed else []
        return found

    def _place(self, name: str, made: DataFrame, spans: Sequence[str]) -> None:
        """Write a table's rows by span, to take the place of what these spans have now."""
        staged = self._draft.stage(name)
        made.write.partitionBy(_KEY).parquet(self._storage.path(staged))
        gone = [file.name for file in self._storage.files(name) if file.name.partition(".")[0] in set(spans)]
        self._replace(name, gone, [file.url for file in self._storage.tree(staged)])

    def _replace(self, folder: str, gone: Sequence[str], staged: Sequence[str]) -> None:
        for file in gone:
            self._draft.remove(f"{folder}/{file}")
        for place, url in enumerate(staged):
            target = f"{folder}/{_value(url, _KEY)}.{self._draft.number:09d}.{place:04d}.parquet"
            self._draft.move(self._storage.relative(url), target)


def _table(name: str) -> Table:
    return next(table for table in DERIVED if table.name == name)


def _value(url: str, key: str) -> str:
    """The value of a partition in a path."""
    return url.partition(f"/{key}=")[2].partition("/")[0]
