"""A folder through Hadoop and without it is the same folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.hadoop_store import HadoopStore, listed
from pulsar_ingress_pipeline.local_store import LocalStore
from pulsar_ingress_pipeline.storage import File, Storage, Store, encoded

ODD = ["a b", "a+b", "a%20b", "a=b", "a'b", "ä é", "a[1]", "a{b}", "a;b,c", "a&b", "a#b", "a?b", "a\u2003b", "日本"]

Make = Callable[[str], Store]


@pytest.fixture(params=["hadoop", "local"])
def make(request: pytest.FixtureRequest, spark: SparkSession) -> Make:
    return (lambda url: HadoopStore(spark, url)) if request.param == "hadoop" else LocalStore


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file:{}"])
def test_every_form_of_a_folder_path_gives_the_same_url(make: Make, tmp_path: Path, form: str) -> None:
    assert make(form.format(tmp_path)).url == f"file:{tmp_path}"


def test_entries_lists_files_and_folders_with_odd_names(make: Make, tmp_path: Path) -> None:
    for name in ODD:
        (tmp_path / name).write_text("12345")
        (tmp_path / f"in {name}").mkdir()
    files, folders = make(str(tmp_path)).entries("")
    assert {(file.url, file.size) for file in files} == {(f"file:{tmp_path}/{name}", 5) for name in ODD}
    assert {file.modified for file in files} == {(tmp_path / name).stat().st_mtime_ns // 1_000_000 for name in ODD}
    assert {*folders} == {f"in {name}" for name in ODD}
    assert make(str(tmp_path)).entries("gone") == ([], [])


REST = "access_time=0; owner=root; group=root; permission=rw-rw-rw-; isSymlink=false; hasAcl=false; isEncrypted=true"


def test_listing_parses_every_file_status_or_raises() -> None:
    """S3A puts an ETag behind each status, and Azure's store a status around each."""
    file = "path={}; isDirectory=false; length=5; replication=1; blocksize=32; modification_time=7; " + REST
    folder = "path={}; isDirectory=true; modification_time=0; " + REST
    told = ",".join(
        [
            "S3AFileStatus{" + file.format("s3a://b/a,b}.json") + '} isEmptyDirectory=FALSE eTag="a1" versionId=null',
            "S3AFileStatus{" + folder.format("s3a://b/c") + "} isEmptyDirectory=UNKNOWN eTag=null versionId=null",
            "VersionedFileStatus{VersionedFileStatus{" + file.format("abfs://b/d") + "}; version='1'}",
        ]
    )
    assert listed(f"{{{told}}}", 3) == ([File("s3a://b/a,b}.json", 5, 7), File("abfs://b/d", 5, 7)], ["c"])
    assert listed("{}", 0) == ([], [])
    with pytest.raises(OSError, match="has 1 entries, of which 0 can be read"):
        listed("{Other[file s3a://b/a]}", 1)


def test_store_creates_once_replaces_renames_and_removes_files(make: Make, tmp_path: Path) -> None:
    store = make(str(tmp_path))
    assert store.create("a/lock", "one")
    assert not store.create("a/lock", "two")
    assert (store.read("a/lock"), store.is_file("a/lock"), store.is_file("a")) == ("one", True, False)
    store.write("a/lock", "twö")
    assert (tmp_path / "a/lock").read_text() == "twö"
    store.write("over", "old")
    store.rename("a/lock", "over")
    store.rename("over", "b/c/d")
    assert store.read("b/c/d") == "twö"
    assert store.modified("b/c/d") == (tmp_path / "b/c/d").stat().st_mtime_ns // 1_000_000
    assert not store.exists("over")
    assert store.modified("over") is None
    store.remove("b")
    store.remove("b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("name", ODD)
def test_file_names_are_encoded_as_hadoop_encodes_them(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("one\n")
    (file,) = Storage(spark, str(tmp_path)).tree()
    jvm: Any = spark.sparkContext._jvm
    assert encoded(file.url) == jvm.org.apache.hadoop.fs.Path(file.url).toUri().toString()
