"""Absorb event files into the tables: read, let each id count once, add to `events`, derive, commit.

`run` and `stream` both do this and nothing else, so equal input gives equal tables, in one batch or in many.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark import StorageLevel
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline import batches, identity, reading
from pipeline.commits import Commits, Draft
from pipeline.deriving import Deriving
from pipeline.hours import folder_of, hour_in
from pipeline.storage import File, Storage, literal, shown
from pipeline.tables import DERIVED

log = logging.getLogger("pipeline")

FILES = 8
"""An hour of `events` in more files than that is written anew, as one."""
SMALL = 32
"""As many files may the index and `quarantine` have: a commit that finds more makes one of them."""
BATCH_BYTES = 2 << 30
BATCH_FILES = 10_000
"""A commit takes no more than that, so that what a crash costs has an end."""

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What a commit brought."""

    files: int
    lines: int
    events: int
    bad: int
    hours: tuple[str, ...]


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
        between = (span[0].isoformat(), span[1].isoformat()) if span is not None else None
        to, aside = draft.stage("events"), draft.stage("quarantine")
        batch = batches.stage(
            self._spark, self._source, files, between, self._tables.path(to), self._tables.path(aside)
        )
        new = self._by_hour(to)
        self._stage("ids")
        changed = self._settle(draft, new)
        events = self._index(draft, new)
        hours = sorted({*(hour for hour, paths in new.items() if paths), *changed})
        if span is not None:
            hours = sorted({*hours, *self._present(between)})
        else:
            self._quarantine(draft, batch, aside)
            draft.taken = batch.files
        self._stage("events")
        present = {hour: self._place(draft, hour, new.get(hour, []), changed.get(hour)) for hour in hours}
        if hours:
            everything = [path for paths in present.values() for path in paths]
            rows_of_hours = identity.read_events(self._spark, everything)
            Deriving(self._spark, self._tables, draft, self._stage).derive(rows_of_hours, hours)
        self._ensure_schemas(draft)
        absorbed = Absorbed(len(batch.files), batch.lines, events, batch.bad if span is None else 0, tuple(hours))
        draft.counts = {"files": absorbed.files, "lines": absorbed.lines, "events": events, "bad": absorbed.bad}
        if batch.newer:
            log.warning(
                "%d events are of a newer schema: what this version does not know of them is left out", batch.newer
            )
        return draft, absorbed

    def _by_hour(self, staged: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for file in self._tables.tree(staged):
            found[hour_in(self._tables.relative(file.url))].append(file.url)
        return found

    def _old(self, hour: str) -> list[str]:
        return [file.url for file in self._tables.files(f"events/{folder_of(hour)}")]

    def _present(self, between: tuple[str, str] | None) -> list[str]:
        """The hours of a span that `events` has already."""
        assert between is not None
        hours = {hour_in(self._tables.relative(file.url)) for file in self._tables.tree("events")}
        return [hour for hour in hours if between[0] <= f"{hour}:00:00+00:00" < between[1]]

    def _settle(self, draft: Draft, new: dict[str, list[str]]) -> dict[str, list[str]]:
        """Let each id count once. Changes the new hours' files; returns the old hours' that are written anew."""
        if not new:
            return {}
        rows = identity.read_events(self._spark, [path for paths in new.values() for path in paths])
        known = [file.url for file in self._tables.files("_index")]
        hashes = identity.suspects(rows, identity.read_index(self._spark, known, self._oldest(new)))
        hours = [hour for (hour,) in hashes.select("hour").distinct().collect()]
        if not hours:
            return {}
        hashes = hashes.persist(StorageLevel.MEMORY_AND_DISK)
        old_files = {hour: self._old(hour) for hour in hours if hour is not None}
        old = identity.read_events(self._spark, [path for paths in old_files.values() for path in paths])
        contest = identity.contest(hashes, rows, old)
        new.update(self._rewrite(draft, contest, new, contest.lost_new, True))
        changed = self._rewrite(draft, contest, old_files, contest.lost_old, False)
        contest.close()
        return changed

    def _oldest(self, new: dict[str, list[str]]) -> str | None:
        if self._horizon is None:
            return None
        return (datetime.fromisoformat(f"{min(new)}:00") - self._horizon).strftime("%Y-%m-%dT%H")

    def _rewrite(
        self,
        draft: Draft,
        contest: identity.Contest,
        files: dict[str, list[str]],
        lost: frozenset[str],
        is_new: bool,
    ) -> dict[str, list[str]]:
        if not lost:
            return {}
        hours = sorted(lost)
        rows = identity.read_events(self._spark, [path for hour in hours for path in files[hour]])
        staged = draft.stage("events-once" if is_new else "events-before")
        kept = batches.by_hour(contest.kept(rows, hours, is_new).repartition("time"))
        kept.write.partitionBy("date", "hour").parquet(self._tables.path(staged))
        return {hour: [] for hour in hours} | self._by_hour(staged)

    def _index(self, draft: Draft, new: dict[str, list[str]]) -> int:
        """Add the new rows' hashes to the index; returns how many rows there are."""
        files = [path for paths in new.values() for path in paths]
        if not files:
            return 0
        staged = draft.stage("index")
        count = Observation()
        rows = identity.read_events(self._spark, files).observe(count, F.count(F.lit(1)).alias("rows"))
        index = identity.index_of(rows)
        known = self._tables.files("_index")
        if len(known) >= SMALL:
            index = index.unionByName(identity.read_index(self._spark, [file.url for file in known], None))
            for file in known:
                draft.remove(f"_index/{file.name}")
        index.write.parquet(self._tables.path(staged))
        self._move_all(draft, staged, "_index")
        return int(count.get["rows"])

    def _quarantine(self, draft: Draft, batch: batches.Batch, aside: str) -> None:
        """Add what was put aside. Of a file that was taken before, with another size, what was put aside then goes."""
        before = self._tables.files("quarantine")
        again = [shown(file.url) for file in batch.files if self._commits.was_taken(file.url)]
        if before and (again or (batch.bad and len(before) > SMALL)):
            rows = self._spark.read.schema(reading.QUARANTINE).parquet(*(literal(file.url) for file in before))
            staged = draft.stage("quarantine-before")
            rows.where(~rows["file"].isin(again)).coalesce(1).write.parquet(self._tables.path(staged))
            for file in before:
                draft.remove(f"quarantine/{file.name}")
            self._move_all(draft, staged, "quarantine", "before.")
        if batch.bad:
            self._move_all(draft, aside, "quarantine")

    def _place(self, draft: Draft, hour: str, new: Sequence[str], rewritten: Sequence[str] | None) -> list[str]:
        """Add an hour's new files; returns where all its rows are now. Many files become one."""
        folder = f"events/{folder_of(hour)}"
        old = self._old(hour)
        kept = old if rewritten is None else []
        staged = [*new, *(rewritten or ())]
        if len(kept) + len(staged) > FILES:
            together = draft.stage(f"events-together/{hour}")
            rows = identity.read_events(self._spark, [*kept, *staged]).coalesce(1).sortWithinPartitions(*batches.SORTED)
            rows.write.parquet(self._tables.path(together))
            kept, staged = [], [file.url for file in self._tables.tree(together)]
        for url in old:
            if url not in kept:
                draft.remove(self._tables.relative(url))
        for place, url in enumerate(staged):
            draft.move(self._tables.relative(url), f"{folder}/{draft.number:09d}.{place:04d}.parquet")
        return [*kept, *staged]

    def _move_all(self, draft: Draft, staged: str, folder: str, prefix: str = "") -> None:
        for place, file in enumerate(self._tables.tree(staged)):
            target = f"{folder}/{prefix}{draft.number:09d}.{place:04d}.parquet"
            draft.move(self._tables.relative(file.url), target)

    def _ensure_schemas(self, draft: Draft) -> None:
        """A table without a row is still one that can be read: an empty file has its columns."""
        schemas = {"quarantine": reading.QUARANTINE} | {table.name: table.schema for table in DERIVED}
        for name, schema in schemas.items():
            present = {f"{name}/{file.name}" for file in self._tables.files(name)}
            if not draft.after(present, name):
                staged = draft.stage(f"schemas/{name}")
                self._spark.createDataFrame([], schema).coalesce(1).write.parquet(self._tables.path(staged))
                for file in self._tables.tree(staged):
                    draft.move(self._tables.relative(file.url), f"{name}/schema.parquet")
