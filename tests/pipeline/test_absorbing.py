"""Whatever the files, their order and their number: the same tables, once, and nothing touched without need."""

import io
from pathlib import Path

import pytest
from made_events import MISS, Tables, at, event, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import absorbing
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.storage import File
from pulsar_ingress_pipeline.working import Work, run

pytestmark = pytest.mark.usefixtures("few_tables")


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path / "events", tmp_path / "tables")


def ids(tables: Tables) -> list[tuple[int, float]]:
    """Which events there are, by number and second."""
    return sorted((int(row.id, 16), row.time.timestamp() - at(0).timestamp()) for row in tables.rows("events"))


def test_ingest_again_changes_nothing_and_a_new_hour_leaves_others_untouched(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 0), event(2, 3600, **MISS), b"bad\n"])
    tables.absorb()
    contents = {name: tables.rows(name) for name in ("events", "listener_windows", "quarantine", "owner_changes")}
    listing = tables.listing()
    again = tables.absorb()
    assert (again.files, again.events, again.hours) == (0, 0, ())
    assert tables.listing() == listing
    assert {name: tables.rows(name) for name in contents} == contents

    write(tables.events, "b.jsonl.gz", [event(3, 3700)])
    assert tables.absorb().hours == ("2026-11-16T10",)
    kept = {path: node for path, node in listing.items() if "2026-11-16T09" in path or "hour=9" in path}
    assert len(kept) > 3
    assert kept.items() <= tables.listing().items()
    assert ids(tables) == [(1, 0), (2, 3600), (3, 3700)]
    assert [row.lookups for row in tables.rows("owner_changes")] == [3]

    before = tables.listing()
    tables.absorb((at(3600), at(7200)))
    assert ids(tables) == [(1, 0), (2, 3600), (3, 3700)]
    untouched = {
        path: node for path, node in before.items() if "T09" in path or path.startswith(("events", "quarantine"))
    }
    assert untouched.items() <= tables.listing().items()


def test_duplicate_event_id_is_counted_once_at_its_earliest_time(tables: Tables) -> None:
    late, early = event(1, 4000, broker="late"), event(1, 10, broker="early")
    write(tables.events, "a.jsonl", [late, event(2, 0, tenant="b"), event(2, 0, tenant="a"), event(3, 0), event(3, 0)])
    tables.absorb()
    assert ids(tables) == [(1, 4000), (2, 0), (3, 0)]
    assert [row.tenant for row in tables.rows("events") if row.id.endswith("2")] == ["a"]
    write(tables.events, "b.jsonl", [early, event(3, 7000), event(4, 20)])
    absorbed = tables.absorb()
    assert ids(tables) == [(1, 10), (2, 0), (3, 0), (4, 20)]
    assert absorbed.hours == ("2026-11-16T09", "2026-11-16T10")
    assert sum(row.hits for row in tables.rows("listener_windows")) == 4
    assert [(row.lookups, row.brokers) for row in tables.rows("owner_changes")] == [(4, 2)]


def test_small_event_files_of_an_hour_are_compacted_into_one(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absorbing, "FILES", 1)
    for number in (1, 2):
        write(tables.events, f"{number}.jsonl", [event(number, -number)])
        tables.absorb()
    assert ids(tables) == [(1, -1), (2, -2)]
    [path] = list(tables.listing("events"))
    assert path == "date=2026-11-16/hour=8/000000002.0000.parquet"


def test_ingest_batches_go_by_file_name_and_are_bounded_by_bytes_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absorbing, "BATCH_BYTES", 10)
    monkeypatch.setattr(absorbing, "BATCH_FILES", 3)
    files = [File(f"file:/x/{name}", size, 0) for name, size in zip("fbacde", (1, 6, 5, 1, 1, 1), strict=True)]
    portions = [[file.name for file in portion] for portion in absorbing.portions(files)]
    assert portions == [["a"], ["b", "c", "d"], ["e", "f"]]


def test_only_the_first_poll_commits_when_there_are_no_events(spark: SparkSession, tables: Tables) -> None:
    said = io.StringIO()
    with (
        Work.on(spark, str(tables.events), str(tables.folder), "stream", None) as work,
        Progress(spark, said) as progress,
    ):
        assert [work.take_new(progress) for _ in range(3)] == [False, False, False]
        assert work.total.commits == 1
    assert said.getvalue().count("commit 1: 0 files") == 1
    for name in ("quarantine", "listener_windows", "misses", "owner_changes"):
        assert tables.rows(name) == []
        assert tables.read(name).columns
    with Work.on(spark, str(tables.events), str(tables.folder), "run", None) as work:
        run(work, Progress(spark, said), None)
        assert work.total.commits == 0
