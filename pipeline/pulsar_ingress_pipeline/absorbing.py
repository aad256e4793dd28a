"""Absorb event files into the tables: read, let each id count once, add to `events`, derive, commit.

`run` and `stream` both do this and nothing else, so equal input gives equal tables, in one batch or in many.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from pulsar_ingress_pipeline import batches, identity, reading, sinking
from pulsar_ingress_pipeline.commits import Commits, Draft
from pulsar_ingress_pipeline.deriving import Deriving
from pulsar_ingress_pipeline.hours import folder_of, hour_in
from pulsar_ingress_pipeline.storage import File, Storage, literal, shown
from pulsar_ingress_pipeline.tables import DERIVED

log = logging.getLogger("pipeline")

FILES = 8
"""An hour of `events` with more small files than that has one in their place."""
SMALL = 32
"""So many small files may the index have, and `quarantine` any files: a commit that finds more makes one of them."""
SMALL_BYTES = 16 << 20
"""What is larger is not written again to save a reader a file."""
INDEX_BYTES = 64 << 20
"""Of new ids that one task sorts."""
BATCH_BYTES = 2 << 30
BATCH_FILES = 10_000
"""A commit takes no more than that, so that what a crash costs has an end."""

Stage = Callable[[str], None]
Hours = dict[str, list[File]]
"""Files of `events` by hour."""


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What a commit brought."""

    files: int
    lines: int
    events: int
    bad: int
    hours: tuple[str, ...]
    newest: float | None = None
    """The time of the newest event that was read, in seconds since the epoch."""


def is_event_file(file: File) -> bool:
    return file.name.endswith((".jsonl", ".jsonl.gz"))


def portions(files: Sequence[File]) -> list[list[File]]:
    """Files in the order of their names, which begin with their time, as many as a commit takes."""
    portions: list[list[File]] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.name, file.url)):
        if not portions or size + file.size > BATCH_BYTES or len(portions[-1]) >= BATCH_FILES:
            portions.append([])
            size = 0
        portions[-1].append(file)
        size += file.size
    return portions


class Absorbing:
    """One commit's work."""

    def __init__(
        self,
        spark: SparkSession,
        source: Storage,
        tables: Storage,
        commits: Commits,
        stage: Stage,
        horizon: timedelta | None = None,
    ) -> None:
        self._spark, self._source, self._tables, self._commits, self._stage = spark, source, tables, commits, stage
        self._horizon = horizon

    def absorb(self, files: Sequence[File], span: tuple[datetime, datetime] | None = None) -> tuple[Draft, Absorbed]:
        """Work out the commit that takes these files; with a span, only events of it, whose hours are made anew."""
        draft = self._commits.draft()
        self._stage("read")
        batch = batches.stage(self._spark, self._source, files, span, self._tables, draft.stage("taken"))
        new = batch.hours()
        self._stage("ids")
        changed, events = self._settle(draft, batch, new)
        hours = sorted({*(hour for hour, paths in new.items() if paths), *changed})
        if span is not None:
            hours = sorted({*hours, *self._present(span)})
        else:
            self._quarantine(draft, batch)
            draft.taken = batch.files
        self._stage("events")
        present = self._place(draft, hours, new, changed)
        if hours:
            Deriving(self._spark, self._tables, draft, self._stage).derive(_all(present), hours)
        self._ensure_schemas(draft)
        bad = batch.bad if span is None else 0
        absorbed = Absorbed(len(batch.files), batch.lines, events, bad, tuple(hours), batch.newest)
        draft.counts = {"files": absorbed.files, "lines": absorbed.lines, "events": events, "bad": absorbed.bad}
        if batch.newer:
            log.warning(
                "%d events are of a newer schema: what this version does not know of them is left out", batch.newer
            )
        return draft, absorbed

    def _old(self, hour: str) -> list[File]:
        return self._tables.files(f"events/{folder_of(hour)}")

    def _present(self, span: tuple[datetime, datetime]) -> list[str]:
        """The hours of a span that `events` has already."""
        hours = {hour_in(self._tables.relative(file.url)) for file in self._tables.tree("events")}
        return [hour for hour in hours if span[0].isoformat() <= f"{hour}:00:00+00:00" < span[1].isoformat()]

    def _settle(self, draft: Draft, batch: batches.Batch, new: Hours) -> tuple[Hours, int]:
        """Let each id count once. Changes the new hours' files; returns the old hours' that are written anew.

        Also adds the new ids to the index, and returns how many there are.
        """
        if not new:
            return {}, 0
        index, known = batch.others(reading.INDEX_TABLE), self._tables.files("_index")
        with sinking.settings_for(self._spark, sinking.size_of([*index, *known])) as sized:
            indexed = sized(identity.read_index(self._spark, known, self._oldest(new))) if known else None
            tasks = sinking.size_of(index) // INDEX_BYTES + 1
            hashes = identity.suspects(sized(identity.read_index(self._spark, index)), indexed, tasks)
            hours = [hour for (hour,) in hashes.select("hour").distinct().collect()]
        if not hours:
            self._move_all(draft, index, "_index")
            self._merge_index(draft, known)
            return {}, batch.events
        hashes = hashes.distinct().persist(StorageLevel.MEMORY_AND_DISK)
        before = {hour: self._old(hour) for hour in hours if hour is not None}
        contest = identity.contest(
            hashes,
            identity.read_events(self._spark, _all(new)),
            identity.read_events(self._spark, _all(before)),
        )
        new.update(self._rewrite(draft, contest, new, contest.lost_new, True))
        changed = self._rewrite(draft, contest, before, contest.lost_old, False)
        contest.close()
        events = self._index_anew(draft, new)
        self._merge_index(draft, known)
        return changed, events

    def _oldest(self, new: Hours) -> str | None:
        if self._horizon is None:
            return None
        try:
            return (datetime.fromisoformat(f"{min(new)}:00") - self._horizon).isoformat()[: len("2026-11-16T09")]
        except OverflowError:  # before all time
            return None

    def _rewrite(
        self, draft: Draft, contest: identity.Contest, files: Hours, lost: frozenset[str], is_new: bool
    ) -> Hours:
        """The hours that lose rows, written without them."""
        if not lost:
            return {}
        hours = sorted(lost)
        rows = identity.read_events(self._spark, [file for hour in hours for file in files[hour]])
        kept = contest.kept(rows, hours, is_new).repartition(F.date_trunc("hour", "time"))
        packed = kept.mapInArrow(sinking.pack_events, sinking.FILES)
        staged = sinking.write(packed, self._tables, draft.stage("events-once" if is_new else "events-before"))
        return {hour: staged.get((reading.EVENTS_TABLE, hour), []) for hour in hours}

    def _index_anew(self, draft: Draft, new: Hours) -> int:
        """Add what is left of the new rows to the index; returns how many there are."""
        files, count = _all(new), Observation()
        if not files:
            return 0
        rows = identity.read_events(self._spark, files).observe(count, F.count(F.lit(1)).alias("rows"))
        staged = draft.stage("index")
        identity.index_of(rows).write.parquet(self._tables.path(staged))
        self._move_all(draft, self._tables.tree(staged), "_index")
        return int(count.get["rows"])

    def _merge_index(self, draft: Draft, known: Sequence[File]) -> None:
        small = [file for file in known if file.size < SMALL_BYTES]
        if len(small) < SMALL:
            return
        staged = draft.stage("index-before")
        identity.read_index(self._spark, small).coalesce(1).write.parquet(self._tables.path(staged))
        for file in small:
            draft.remove(f"_index/{file.name}")
        self._move_all(draft, self._tables.tree(staged), "_index", "before.")

    def _quarantine(self, draft: Draft, batch: batches.Batch) -> None:
        """Add what was put aside. Of a file that was taken before, with another size, what was put aside then goes."""
        before = self._tables.files("quarantine")
        again = [shown(file.url) for file in batch.files if self._commits.was_taken(file.url)]
        if before and (again or (batch.bad and len(before) > SMALL)):
            rows = self._spark.read.schema(reading.QUARANTINE).parquet(*(literal(file.url) for file in before))
            staged = draft.stage("quarantine-before")
            rows.where(~rows["file"].isin(again)).coalesce(1).write.parquet(self._tables.path(staged))
            for file in before:
                draft.remove(f"quarantine/{file.name}")
            self._move_all(draft, self._tables.tree(staged), "quarantine", "before.")
        self._move_all(draft, batch.others(reading.QUARANTINE_TABLE), "quarantine")

    def _place(self, draft: Draft, hours: Sequence[str], new: Hours, changed: Hours) -> Hours:
        """Add the hours' new files; returns where all their rows are now. Of many small files one is made."""
        old = {hour: self._old(hour) for hour in hours}
        present = {hour: [*(changed[hour] if hour in changed else old[hour]), *new.get(hour, [])] for hour in hours}
        small = {hour: [file for file in files if file.size < SMALL_BYTES] for hour, files in present.items()}
        small = {hour: files for hour, files in small.items() if len(files) > FILES}
        merged = self._merged(draft, small)
        for hour in hours:
            present[hour] = [file for file in present[hour] if file not in small.get(hour, ())] + merged.get(hour, [])
            for file in old[hour]:
                if file not in present[hour]:
                    draft.remove(self._tables.relative(file.url))
            brought = [file for file in present[hour] if file not in old[hour]]
            self._move_all(draft, brought, f"events/{folder_of(hour)}")
        return present

    def _merged(self, draft: Draft, small: Hours) -> Hours:
        """One file in the place of each hour's."""
        if not small:
            return {}
        rows = [identity.read_events(self._spark, files).coalesce(1) for files in small.values()]
        packed = reduce(DataFrame.union, rows).mapInArrow(sinking.pack_events, sinking.FILES)
        with sinking.settings_for(self._spark, sinking.size_of(_all(small))):
            staged = sinking.write(packed, self._tables, draft.stage("events-together"))
        return {hour: files for (_, hour), files in staged.items()}

    def _move_all(self, draft: Draft, files: Sequence[File], folder: str, prefix: str = "") -> None:
        for place, file in enumerate(files):
            target = f"{folder}/{prefix}{draft.number:09d}.{place:04d}.parquet"
            draft.move(self._tables.relative(file.url), target)

    def _ensure_schemas(self, draft: Draft) -> None:
        """A table without a row is still one that can be read: an empty file has its columns."""
        schemas = {"quarantine": reading.QUARANTINE} | {table.name: table.schema for table in DERIVED}
        lacking = [
            name
            for name in schemas
            if not draft.brings(name)
            and not draft.after({f"{name}/{file.name}" for file in self._tables.files(name)}, name)
        ]
        if not lacking:
            return
        rows = [
            sinking.row(name, "schema", to_arrow_schema(schemas[name], timezone="UTC").empty_table())
            for name in lacking
        ]
        files = self._spark.createDataFrame(rows, sinking.FILES).coalesce(1)
        staged = sinking.write(files, self._tables, draft.stage("schemas"))
        for (name, _), [file] in staged.items():
            draft.move(self._tables.relative(file.url), f"{name}/schema.parquet")


def _all(hours: Hours) -> list[File]:
    return [file for files in hours.values() for file in files]
