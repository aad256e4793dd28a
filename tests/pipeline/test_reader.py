"""Delta tables as Arrow tables, and what is said where there are none."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from delta_tables import COUNT, TEXT, TEXTS, TIME, put

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.catalog import Lake

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_a_table_is_read_with_plain_arrow_types(tmp_path: Path) -> None:
    columns = {"topic": TEXT, "brokers": TEXTS, "loops": COUNT, "last_seen": TIME}
    row = ("t", ["a", "b"], 3, NOON)
    put(tmp_path / "redirect_loops", columns, [row])
    lake = Lake(str(tmp_path))
    read = lake.table("redirect_loops")
    assert {field.name: field.type for field in read.schema} == columns
    assert [tuple(found.values()) for found in read.to_pylist()] == [row]
    assert lake.table("redirect_loops", ["loops", "topic"]).column_names == ["loops", "topic"]
    assert (lake.has("redirect_loops"), lake.has("leaks")) == (True, False)


@pytest.mark.parametrize("name", ["a b", "a+b", "a=b", "a'b", "ä é", "a{b}", "a;b,c", "a&b", "a#b", "a?b", "日本"])
def test_folders_with_odd_names_can_be_read(name: str, tmp_path: Path) -> None:
    put(tmp_path / name / "misses", {"host": TEXT}, [("x",)])
    assert Lake(str(tmp_path / name)).table("misses").num_rows == 1


@pytest.mark.parametrize("name", ["a%20b", "a[1]"])
def test_folders_with_names_that_delta_rs_cannot_read_raise_a_fault(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineFault, match="Delta tables cannot be in a folder that has"):
        Lake(str(tmp_path / name)).has("misses")


def test_missing_tables_and_columns_raise_faults(tmp_path: Path) -> None:
    put(tmp_path / "misses", {"host": TEXT}, [])
    lake = Lake(str(tmp_path))
    with pytest.raises(PipelineFault, match="leaks: there is no such table; make it with `run`"):
        lake.table("leaks")
    with pytest.raises(PipelineFault, match="misses: the table has no column reason"):
        lake.table("misses", ["host", "reason"])


@pytest.mark.parametrize("folder", ["empty", "nowhere"])
def test_a_folder_without_tables_raises_a_fault(folder: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PipelineFault, match=f"{folder}: there are no tables; make them with `run`"):
        Lake(str(tmp_path / folder)).table("misses")


@pytest.mark.parametrize("file", ["_commits/0000000001.json", "listener_windows/2026-11-16T09.parquet"])
def test_tables_of_the_earlier_layout_raise_a_fault_that_says_what_to_do(file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_bytes(b"")
    with pytest.raises(PipelineFault, match=r"were written by an earlier version; run .* into an empty folder"):
        Lake(str(tmp_path)).table("misses")


def test_a_fault_of_delta_rs_is_one_line(tmp_path: Path) -> None:
    put(tmp_path / "misses", {"host": TEXT}, [("x",)])
    for file in (tmp_path / "misses").glob("*.parquet"):
        file.unlink()
    with pytest.raises(PipelineFault, match=r"misses: cannot be read: [^\n\x1b]*$"):
        Lake(str(tmp_path)).table("misses")
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineFault, match=r"file/?: [^\n\x1b]*Not a directory"):
        Lake(str(tmp_path / "file")).check()


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    put(tmp_path / "misses", {"host": TEXT, "misses": COUNT}, [])
    assert Lake(str(tmp_path)).table("misses").schema == pa.schema({"host": TEXT, "misses": COUNT})
