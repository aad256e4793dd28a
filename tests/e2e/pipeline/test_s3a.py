"""Events and tables in a bucket: `run`, `stream`, `report` and `maintain` as docs/pipeline.md has them."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import obstore
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyspark
import pytest
from obstore.store import S3Store as Client
from s3_store import KEY, SECRET, S3Store, s3_store
from s3a_jars import jars, named
from spark_commands import SECONDS, Folder, arguments, contents, done, pipeline, started

from pulsar_ingress_pipeline.lake.catalog import Lake
from pulsar_ingress_pipeline.tables import DERIVED

KILLS = str(Path(__file__).parent / "kills.py")
EVENTS, TABLES = "s3://bucket/events", "s3://bucket/tables"
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[S3Store]:
    async with s3_store(tmp_path / "store") as serving:
        yield serving


class Bucket:
    """A user's shell: the same event files in a local folder and in the bucket, and what signs commands in."""

    def __init__(self, store: S3Store, local: Path) -> None:
        self.local = Folder(local)
        self.variables = store.environment | {
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {':'.join(map(str, jars()))} pyspark-shell"
        }
        self._client = Client(
            "bucket", prefix="events", endpoint=store.url, access_key_id=KEY, secret_access_key=SECRET,
            region="us-east-1", client_options={"allow_http": True},
        )  # fmt: skip

    def add(self) -> None:
        self.local.add()
        file = max(self.local.path.glob("*.jsonl"))
        obstore.put(self._client, file.name, file.read_bytes())

    def command(self, name: str, *more: str) -> list[str]:
        return [name, "--events", EVENTS, "--tables", TABLES, "--master", "local[2]", *more]


def in_bucket(events: str) -> dict[str, list[str]]:
    """All rows; `quarantine` has the URL of each file."""
    lake = Lake(TABLES)
    rows = {name: lake.table(name).to_pylist() for name in ("events", "quarantine", *(one.name for one in DERIVED))}
    return {name: sorted(repr(row).replace(EVENTS, events) for row in found) for name, found in rows.items()}


def test_hadoop_aws_jar_has_the_hadoop_version_of_spark() -> None:
    (aws,) = (jar.version for jar in named() if jar.name == "hadoop-aws")
    assert (Path(pyspark.__file__).parent / f"jars/hadoop-client-api-{aws}.jar").exists()


async def test_tables_in_s3_equal_local_ones_after_a_kill_between_commits(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)

    def use() -> None:
        bucket = Bucket(store, tmp_path / "events")
        bucket.add()
        assert done(*bucket.command("run"), **bucket.variables).startswith(f"{TABLES}: 1 files, 40 events, 1 lines")
        bucket.add()
        with started([KILLS, "misses", "1", *bucket.command("stream", "--once")], **bucket.variables) as process:
            _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == -signal.SIGKILL, said
        bucket.add()
        assert done(*bucket.command("stream", "--once"), **bucket.variables).startswith(f"{TABLES}: 1 files, 40 events")
        assert pc.sum(Lake(TABLES).table("owner_changes")["lookups"]).as_py() == bucket.local.events
        done(*arguments("run", bucket.local, tmp_path / "tables"))
        assert in_bucket(str(bucket.local.path)) == contents(tmp_path / "tables")
        page = tmp_path / "report.html"
        assert done("report", "--tables", TABLES, "--out", str(page)) == f"{page}: {bucket.local.events} lookups\n"
        assert "new.example.com" in page.read_text()
        assert "events: version " in done("maintain", "--tables", TABLES)
        wrong = pipeline("report", "--tables", TABLES, "--out", str(page), AWS_SECRET_ACCESS_KEY="wrong")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        assert "of-events" not in wrong.stderr

    await asyncio.to_thread(use)
