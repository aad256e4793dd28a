"""The tables that follow from `events`, for the hours that have changed and no others.

A file of a table has its span, an hour, a day or all, at the beginning of its name; a new one takes the place of those
that have the same span. Tables without a time are merged from shares of hours and days, kept under `_partial/`. Two
queries make all tables, since what a small batch costs is the number of queries: one has all that is made of events,
the other all that is made of shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline import identity, sinking
from pulsar_ingress_pipeline.commits import Draft
from pulsar_ingress_pipeline.hours import ALL, HOUR, day_of
from pulsar_ingress_pipeline.sinking import Part
from pulsar_ingress_pipeline.storage import File, Storage, literal
from pulsar_ingress_pipeline.tables import DERIVED, Table
from pulsar_ingress_pipeline.tables.table import SPAN

PARTIAL = "_partial"
_DAY = len("2026-11-16")


@dataclass(frozen=True, slots=True)
class _Replaced:
    """Files of a folder, before and after."""

    before: list[File]
    gone: list[File]
    brought: list[File]

    def after(self, *days: str) -> list[File]:
        """What there is afterwards, of some days only if any are given."""
        left = [file for file in self.before if file not in self.gone and _span(file).startswith(days or ("",))]
        return [*self.brought, *left]


class Deriving:
    """Works out every table's files for some hours, into a draft."""

    def __init__(self, spark: SparkSession, storage: Storage, draft: Draft, stage: Callable[[str], None]) -> None:
        self._spark, self._storage, self._draft, self._stage = spark, storage, draft, stage

    def derive(self, files: Sequence[File], hours: Sequence[str]) -> None:
        """The files have all events of these hours."""
        days = sorted({day_of(hour) for hour in hours})
        self._stage("tables: hours")
        shares, schemas = self._of_events(files, hours)
        self._stage("tables: days")
        changed = {name: share for name, share in shares.items() if share.brought or share.gone}
        self._of_shares(changed, schemas, days)

    def _of_events(
        self, files: Sequence[File], hours: Sequence[str]
    ) -> tuple[dict[str, _Replaced], dict[str, T.StructType]]:
        """What tables have by hour. What several are made of is worked out once."""
        parts: dict[str, Part] = {}
        with sinking.settings_for(self._spark, sinking.size_of(files)) as sized:
            events = sized(identity.read_events(self._spark, files))
            sources = {source: source(events).persist() for source in {table.source for table in DERIVED} if source}
            try:
                for table in DERIVED:
                    rows = table.of(sources[table.source] if table.source else events)
                    if table.merge is None:
                        parts[table.name] = Part(rows, f'date_format(window_start, "{HOUR}")', table.schema)
                    else:
                        parts[f"{table.name}.hour"] = Part(rows, SPAN, rows.schema)
                staged = self._write("hours", parts, sinking.size_of(files) < sinking.SMALL)
            finally:
                for source in sources.values():
                    source.unpersist()
        replaced = {label: self._replace(label, staged.get(label, []), hours) for label in parts}
        merged = [table.name for table in DERIVED if table.merge is not None]
        return {name: replaced[f"{name}.hour"] for name in merged}, {
            name: parts[f"{name}.hour"].schema for name in merged
        }

    def _of_shares(self, shares: dict[str, _Replaced], schemas: dict[str, T.StructType], days: Sequence[str]) -> None:
        """Tables that have no time: of the shares of hours, those of the days, and all of them together."""
        of_days = {name: share.after(*days) for name, share in shares.items()}
        others = {
            name: [file for file in self._storage.files(f"{PARTIAL}/{name}/day") if _span(file) not in days]
            for name in shares
            if _table(name).span == "all"
        }
        read = [file for files in (*of_days.values(), *others.values()) for file in files]
        parts: dict[str, Part] = {}
        with sinking.settings_for(self._spark, sinking.size_of(read), small=sinking.SMALL_SHARES) as sized:
            for name, files in of_days.items():
                table = _table(name)
                assert table.merge is not None
                hours = sized(self._read(files, schemas[name]))
                by_day = table.merge(hours.withColumn(SPAN, F.substring(SPAN, 1, _DAY)))
                if table.span == "day":
                    parts[name] = Part(_finished(table, by_day), SPAN, table.schema)
                    continue
                parts[f"{name}.day"] = Part(by_day, SPAN, by_day.schema)
                whole = by_day.unionByName(sized(self._read(others[name], schemas[name])))
                total = table.merge(whole.withColumn(SPAN, F.lit(ALL)))
                parts[name] = Part(_finished(table, total), SPAN, table.schema)
            staged = self._write("days", parts, sinking.size_of(read) < sinking.SMALL_SHARES) if parts else {}
        for label in parts:
            spans = days if label.endswith(".day") or _table(label).span == "day" else [ALL]
            self._replace(label, staged.get(label, []), spans)

    def _read(self, files: Sequence[File], schema: T.StructType) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(literal(file.url) for file in files))

    def _write(self, folder: str, parts: dict[str, Part], is_small: bool) -> dict[str, list[tuple[str, File]]]:
        """By label, with their spans."""
        found: dict[str, list[tuple[str, File]]] = {}
        for (label, span), files in sinking.write(
            sinking.together(parts, is_small), self._storage, self._draft.stage(folder)
        ).items():
            found.setdefault(label, []).extend((span, file) for file in files)
        return found

    def _replace(self, label: str, staged: Sequence[tuple[str, File]], spans: Sequence[str]) -> _Replaced:
        """Let new files take the place of what these spans have now."""
        name, _, level = label.partition(".")
        folder = f"{PARTIAL}/{name}/{level}" if level else name
        before = self._storage.files(folder)
        gone = [file for file in before if _span(file) in set(spans)]
        for file in gone:
            self._draft.remove(f"{folder}/{file.name}")
        for place, (span, file) in enumerate(staged):
            target = f"{folder}/{span}.{self._draft.number:09d}.{place:04d}.parquet"
            self._draft.move(self._storage.relative(file.url), target)
        return _Replaced(before, gone, [file for _, file in staged])


def _table(name: str) -> Table:
    return next(table for table in DERIVED if table.name == name)


def _finished(table: Table, merged: DataFrame) -> DataFrame:
    return table.finish(merged) if table.finish is not None else merged


def _span(file: File) -> str:
    return file.name.partition(".")[0]
