"""Tables in a bucket, as a client of Spark Connect sees them: before a store that speaks S3."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from s3_store import S3Store, s3_store

from pulsar_ingress_pipeline.object_store import ObjectStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[S3Store]:
    async with s3_store(tmp_path / "store") as serving:
        yield serving


def looked_at(folder: ObjectStore) -> tuple[list[tuple[str, int]], list[str]]:
    files, folders = folder.entries("")
    return sorted((file.url, file.size) for file in files), sorted(folders)


async def test_object_store_creates_once_replaces_lists_renames_and_removes_files(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
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
