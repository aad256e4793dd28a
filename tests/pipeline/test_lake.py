"""Commits: each is made once, whenever a command is killed, and none on top of a version that nobody has looked at."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from made_events import MISS, Tables, event, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.lake.catalog import export, maintain, refuse_earlier_layout
from pulsar_ingress_pipeline.lake.storage import DataFile, Storage, spark_settings
from pulsar_ingress_pipeline.lake.table import LakeTable


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path / "events", tmp_path / "tables")


def contents(tables: Tables) -> dict[str, list[dict[str, object]]]:
    """All rows, but for the version of `events` that a file was taken by."""
    return {
        name: [{key: value for key, value in row.items() if key != "version"} for row in tables.rows(name)]
        for name in tables.versions()
    }


def killed_before(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Be killed just before a commit, counted from 1."""
    commit, calls = LakeTable.commit, 0

    def counting(table: LakeTable, *rest: object, **more: object) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Killed
        commit(table, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LakeTable, "commit", counting)


def test_run_after_a_kill_before_any_commit_gives_the_tables_of_one_without(
    tables: Tables, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kills are tried on copies of the same tables."""
    write(tables.events, "a.jsonl", [event(1, 0), event(2, 3600, **MISS), b"bad\n"])
    tables.take()
    write(tables.events, "b.jsonl", [event(2, 3600, **MISS), event(3, 10), event(4, 90_000), b"worse\n"])
    whole = Tables(spark, tables.events, tmp_path / "whole")
    whole.take()
    for number in (1, 2, 3, 4, 7, 10):
        killed = Tables(spark, tables.events, tmp_path / f"killed-{number}")
        shutil.copytree(tables.folder, killed.folder)
        with monkeypatch.context() as patch:
            killed_before(patch, number)
            with pytest.raises(Killed):
                killed.take()
        killed.take()
        assert contents(killed) == contents(whole), number
        assert len(killed.read("events")) == 4


def test_second_writer_of_events_loses_and_nothing_is_counted_twice(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 0)])
    tables.take()
    write(tables.events, "b.jsonl", [event(2, 0)])
    first, second = tables.ingest(), tables.ingest()
    present = first.present()
    first.take(first.new(present), present)
    with pytest.raises(Busy, match="another command has committed to these tables meanwhile"):
        second.take(second.new(present), present)
    assert len(tables.read("events")) == 2
    tables.take()
    assert sum(row["hits"] for row in tables.rows("listener_windows")) == 2


def test_command_that_opened_older_events_derives_no_tables_that_are_newer(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 0)])
    tables.take()
    older = tables.ingest()
    write(tables.events, "b.jsonl", [event(2, 90_000)])
    tables.take()
    windows = tables.rows("listener_windows")
    with pytest.raises(Busy, match="another command has committed to these tables meanwhile"):
        tables.derive(older)
    assert tables.rows("listener_windows") == windows


def test_tables_derived_from_events_that_are_gone_are_refused(tables: Tables) -> None:
    for number in range(2):
        write(tables.events, f"{number}.jsonl", [event(number, 0)])
        tables.take()
    for name in ("events", "files"):
        shutil.rmtree(tables.folder / name)
    with pytest.raises(PipelineFault, match="there is no version 1, which other tables are derived from"):
        tables.take()


def test_second_creator_of_a_table_loses(tmp_path: Path) -> None:
    schema = pa.schema([("name", pa.string())])
    first, second = (LakeTable(Storage.of(str(tmp_path)), "t", schema) for _ in range(2))
    first.commit([])
    with pytest.raises(Busy):
        second.commit([])
    assert DeltaTable(str(tmp_path / "t")).version() == 0


def test_file_that_is_missing_or_of_another_size_is_not_committed(tmp_path: Path) -> None:
    table = LakeTable(Storage.of(str(tmp_path)), "t", pa.schema([("name", pa.string())]))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "here.parquet").write_bytes(b"1234")
    for file in (DataFile("gone.parquet", 4, 1), DataFile("here.parquet", 5, 1)):
        with pytest.raises(PipelineFault, match="is not as it was written; nothing is committed"):
            table.commit([file])
    assert table.version == -1


def another_program(folder: Path) -> None:
    write_deltalake(str(folder / "misses"), DeltaTable(str(folder / "misses")).to_pyarrow_table(), mode="append")


def another_schema(folder: Path) -> None:
    rows = DeltaTable(str(folder / "misses")).to_pyarrow_table()
    write_deltalake(str(folder / "misses"), rows.append_column("more", pa.nulls(len(rows), pa.int64())),
                    mode="append", schema_mode="merge")  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [(another_program, "was written by another program"), (another_schema, "has other columns than this version")],
)
def test_table_that_another_program_changed_is_refused(
    tables: Tables, change: Callable[[Path], None], words: str
) -> None:
    write(tables.events, "a.jsonl", [event(1, 0, **MISS)])
    tables.take()
    change(tables.folder)
    with pytest.raises(PipelineFault, match=words):
        tables.take()


def test_changed_hours_are_those_of_later_commits_and_all_where_the_log_is_gone(tables: Tables) -> None:
    for number, seconds in enumerate((0, 3600, 90_000)):
        write(tables.events, f"{number}.jsonl", [event(number, seconds)])
        tables.take_events()
    events = tables.ingest().events
    assert events.changed_hours(0) == ["2026-11-16T10", "2026-11-17T10"]
    assert events.changed_hours(2) == []
    assert events.changed_hours(None) == ["2026-11-16T09", "2026-11-16T10", "2026-11-17T10"]
    (tables.folder / "events/_delta_log/00000000000000000001.json").unlink()
    assert events.changed_hours(0) == events.changed_hours(None)
    assert events.files()[0].hour in events.changed_hours(None)


def test_maintenance_merges_small_files_removes_what_no_version_has_and_keeps_every_row(tables: Tables) -> None:
    for number in range(3):
        write(tables.events, f"{number}.jsonl", [event(number, number), b"bad\n"])
        tables.take_events()
    tables.derive(tables.ingest())
    orphan = tables.folder / "events/date=2026-11-16/hour=9/orphan.parquet"
    orphan.write_bytes(b"left by a command that was killed")
    before, storage = contents(tables), Storage.of(str(tables.folder))
    assert len(tables.files("events")) == 3
    list(maintain(storage, retain_hours=1))
    assert orphan.exists()  # it may be of a command that is at work
    told = list(maintain(storage, retain_hours=0))
    assert any(line.startswith("events: ") for line in told)
    assert not orphan.exists()
    assert len(tables.files("events")) == 1
    assert contents(tables) == before
    taken, hours = tables.take()
    assert (taken.events, hours) == (0, [])
    for log in (tables.folder / "quarantine/_delta_log").glob("*.json"):
        log.unlink()  # as Delta cleans up after 30 days; there is a checkpoint
    write(tables.events, "more.jsonl", [event(9, 9)])
    assert tables.take()[1] == ["2026-11-16T09"]


def test_export_writes_each_table_as_parquet_and_refuses_a_folder_in_use(tables: Tables, tmp_path: Path) -> None:
    write(tables.events, "a.jsonl", [event(1, 0), event(2, 0, **MISS)])
    tables.take()
    out = tmp_path / "out"
    assert "events: 2 rows of version 0" in list(export(Storage.of(str(tables.folder)), str(out)))
    assert pa.parquet.read_table(out / "misses" / "misses.parquet")["misses"].to_pylist() == [1]
    assert not (out / "_shares").exists()
    with pytest.raises(PipelineFault, match="is not empty"):
        list(export(Storage.of(str(tables.folder)), str(out)))
    with pytest.raises(PipelineFault, match="there are no tables"):
        list(export(Storage.of(str(tmp_path / "nothing")), str(tmp_path / "more")))
    for unwritable in ("/proc/nowhere", out / "misses" / "misses.parquet"):
        with pytest.raises(PipelineFault, match=f"^--out {unwritable}: cannot be written: "):
            list(export(Storage.of(str(tables.folder)), str(unwritable)))


def test_tables_of_the_earlier_layout_are_refused(tmp_path: Path) -> None:
    refuse_earlier_layout(Storage.of(str(tmp_path)))
    (tmp_path / "listener_windows").mkdir()
    with pytest.raises(PipelineFault, match="written by an earlier version"):
        refuse_earlier_layout(Storage.of(str(tmp_path)))
    (tmp_path / "events" / "_delta_log").mkdir(parents=True)  # the first run was killed before it committed the table
    refuse_earlier_layout(Storage.of(str(tmp_path)))
    (tmp_path / "_commits").mkdir()
    with pytest.raises(PipelineFault, match="written by an earlier version"):
        refuse_earlier_layout(Storage.of(str(tmp_path)))


ODD = ["a b", "a+b", "a%20b", "a=b", "a'b", "ä é", "a[1]", "a{b}", "a;b,c", "a&b", "a#b", "a?b", "日本", "a*b"]


def test_files_with_odd_names_are_listed_read_and_written(tmp_path: Path) -> None:
    storage = Storage.of(str(tmp_path))
    for name in ODD:
        storage.write(f"in {name}/{name}", name.encode())
    storage.write("_hidden/file", b"")
    storage.write(".unfinished", b"")
    assert sorted(file.path for file in storage.files()) == sorted(f"in {name}/{name}" for name in ODD)
    assert [storage.read(f"in {name}/{name}").decode() for name in ODD] == ODD
    assert (storage.size("gone"), storage.size("in a b/a b")) == (None, 3)


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file://{}/"])
def test_every_form_of_a_folder_is_the_same_folder(form: str, tmp_path: Path) -> None:
    assert Storage.of(form.format(tmp_path)).url == str(tmp_path)


def test_object_stores_are_named_for_delta_and_for_spark_and_secrets_are_not_shown() -> None:
    variables = {
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "r",
        "X": "y",
    }
    storage = Storage.of("s3a://bucket/tables/", variables)
    assert storage.url == "s3://bucket/tables"
    assert storage.spark_url("a[1].parquet") == r"s3a://bucket/tables/a\[1\].parquet"
    assert dict(storage.options) == {key: value for key, value in variables.items() if key != "X"}
    assert "secret" not in repr(storage)
    assert spark_settings(variables) == {
        "spark.hadoop.fs.s3a.endpoint": "http://store:9000",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "r",
    }
    with pytest.raises(PipelineFault, match="is neither a path nor a URL of an object store"):
        Storage.of("hdfs://name/x")


def test_log_of_a_table_names_the_version_of_events_that_it_is_derived_from(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 0)])
    tables.take()
    log = (tables.folder / "misses/_delta_log/00000000000000000000.json").read_text()
    transactions = [json.loads(line)["txn"] for line in log.splitlines() if "txn" in line]
    assert {(one["appId"], one["version"]) for one in transactions} == {
        ("pulsar-ingress-pipeline", 0), ("pulsar-ingress-pipeline/events", 0),
    }  # fmt: skip
