"""Tables in a bucket: the client's side over Spark Connect, and all of it by s3a://, before rclone's S3."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from s3_store import KEY, SECRET, S3Store, s3_store
from spark_commands import Folder, contents, done
from store_jars import jars

from pipeline.object_store import ObjectStore

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[S3Store]:
    async with s3_store(tmp_path / "store") as serving:
        yield serving


def looked_at(folder: ObjectStore) -> tuple[list[tuple[str, int]], list[str]]:
    files, folders = folder.entries("")
    return sorted((file.url, file.size) for file in files), sorted(folders)


async def test_a_bucket_as_a_client_of_connect_sees_it(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)

    def use() -> None:
        bucket = ObjectStore("s3a://bucket/tables/")
        assert bucket.url == "s3a://bucket/tables"
        assert bucket.entries("") == ([], [])
        assert bucket.create("_lock", "one")
        assert not bucket.create("_lock", "two")
        assert bucket.read("_lock") == "one"
        bucket.write("_lock", "twö")
        bucket.write("a/b c+d.json", "12345")
        assert looked_at(bucket) == ([("s3a://bucket/tables/_lock", 4)], ["a"])
        assert (store.folder / "bucket/tables/_lock").read_text() == "twö"
        bucket.rename("a/b c+d.json", "c/d.json")
        bucket.rename("_lock", "c/d.json")
        assert bucket.read("c/d.json") == "twö"
        assert not bucket.exists("a/b c+d.json")
        assert bucket.is_file("c/d.json")
        written = (store.folder / "bucket/tables/c/d.json").stat().st_mtime
        assert abs((bucket.modified("c/d.json") or 0) / 1000 - written) < 1
        assert bucket.modified("_lock") is None
        bucket.remove("c")
        bucket.remove("c")
        assert not bucket.exists("c/d.json")

    await asyncio.to_thread(use)


@pytest.mark.full
@pytest.mark.timeout(3600)  # a first run fetches 690 MB
async def test_run_and_stream_in_a_bucket(store: S3Store, tmp_path: Path) -> None:
    events = Folder(store.folder / "bucket/events")
    settings = {
        "endpoint": store.url,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": KEY,
        "secret.key": SECRET,
    }
    conf = " ".join(f"--conf spark.hadoop.fs.s3a.{name}={value}" for name, value in settings.items())
    there = {"PYSPARK_SUBMIT_ARGS": f"--jars {','.join(map(str, jars()))} {conf} pyspark-shell"}
    places = ("--events", "s3a://bucket/events", "--tables", "s3a://bucket/tables", "--master", "local[2]")

    async def does(*words: str) -> str:
        return await asyncio.to_thread(lambda: done(*words, *places, **there))

    events.add()
    assert "1 files, 40 events" in await does("run")
    for _ in range(2):
        events.add()
        assert "1 files, 40 events" in await does("stream", "--once")
    assert await does("run") == "s3a://bucket/tables: nothing new\n"
    assert not (store.folder / "bucket/tables/_lock").exists()
    alone = tmp_path / "alone"
    await asyncio.to_thread(
        lambda: done("run", "--events", str(events.path), "--tables", str(alone), "--master", "local[2]")
    )
    in_bucket = contents(store.folder / "bucket/tables")
    in_bucket["quarantine"] = [row.replace("s3a://bucket", str(events.path.parent)) for row in in_bucket["quarantine"]]
    assert in_bucket == contents(alone)
