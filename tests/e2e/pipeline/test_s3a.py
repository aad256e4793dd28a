"""Events and tables in a bucket, by Hadoop's S3A: `run`, `stream` and `report` as docs/pipeline.md has them."""

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import obstore
import pyspark
import pytest
from obstore.store import S3Store as Client
from s3_store import KEY, SECRET, S3Store
from s3a_jars import jars, named
from spark_commands import SECONDS, Folder, arguments, contents, done, expect_whole, pipeline, started
from versity_store import versity_store

HERE = Path(__file__).parent
HALF_MOVED = [str(HERE / "kills.py"), "move", "^_staging", "4"]
EVENTS, TABLES = "s3a://bucket/events", "s3a://bucket/tables"
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[S3Store]:
    async with versity_store(tmp_path / "store") as serving:
        yield serving


class Bucket:
    """A user's shell: the same event files in a local folder and in the bucket, and what signs commands in."""

    def __init__(self, store: S3Store, local: Path) -> None:
        self.local = Folder(local)
        self.tables = store.folder / "bucket/tables"
        self.variables = store.environment | {
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {':'.join(map(str, jars()))}"
            " --conf spark.hadoop.fs.s3a.endpoint.region=us-east-1"
            " --conf spark.hadoop.fs.s3a.path.style.access=true pyspark-shell",
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


def until(process: subprocess.Popen[str], pattern: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(pattern, line):
            return
    raise AssertionError(f"it ended with {process.wait()} and never said {pattern}")


def without_places(tables: dict[str, list[str]], events: str) -> dict[str, list[str]]:
    """`quarantine` has the URL of each file."""
    return {name: [row.replace(events, "EVENTS") for row in rows] for name, rows in tables.items()}


def test_hadoop_aws_jar_has_the_hadoop_version_of_spark() -> None:
    (aws,) = (jar.version for jar in named() if jar.name == "hadoop-aws")
    assert (Path(pyspark.__file__).parent / f"jars/hadoop-client-api-{aws}.jar").exists()


async def test_tables_in_s3_equal_local_ones_after_a_kill_and_a_second_command_is_refused(
    store: S3Store, tmp_path: Path
) -> None:
    def use() -> None:
        bucket = Bucket(store, tmp_path / "events")
        bucket.add()
        assert done(*bucket.command("run"), **bucket.variables).startswith(f"{TABLES}: 1 files, 40 events, 1 lines")
        bucket.add()
        assert done(*bucket.command("run"), **bucket.variables).startswith(f"{TABLES}: 1 files, 40 events, 1 lines")
        bucket.add()
        with started([*HALF_MOVED, *bucket.command("stream", "--once")], **bucket.variables) as process:
            _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == -signal.SIGKILL, said
        bucket.add()
        service = ["-m", "pulsar_ingress_pipeline", *bucket.command("stream", "--pause", "0.1")]
        with started(service, **bucket.variables) as process:
            until(process, "^a commit that was interrupted has been finished")
            until(process, "^commit 4: 1 files, 46 lines, 40 new events, 1 in quarantine")
            refused = pipeline(*bucket.command("run"), **bucket.variables)
            assert (refused.returncode, refused.stdout) == (3, "")
            assert f"{TABLES}: `stream` (" in refused.stderr
            assert f"process {process.pid}" in refused.stderr
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0
        assert not (bucket.tables / "_lock").exists()
        expect_whole(bucket.local, bucket.tables)
        done(*arguments("run", bucket.local, tmp_path / "tables"))
        expected = without_places(contents(tmp_path / "tables"), str(bucket.local.path))
        assert without_places(contents(bucket.tables), EVENTS) == expected
        page = tmp_path / "report.html"
        told = done(
            "report", "--tables", TABLES, "--out", str(page), "--master", "local[2]", **bucket.variables
        )  # fmt: skip
        assert told == f"{page}: {bucket.local.events} lookups\n"
        assert "new.example.com" in page.read_text()

    await asyncio.to_thread(use)


async def test_command_is_refused_when_another_takes_the_lock_at_the_same_moment(
    store: S3Store, tmp_path: Path
) -> None:
    def use() -> None:
        bucket = Bucket(store, tmp_path / "events")
        bucket.add()
        with started([str(HERE / "outrun.py"), *bucket.command("run")], **bucket.variables) as process:
            _, said = process.communicate(timeout=SECONDS)
        assert (process.returncode, "`stream` (elsewhere, process 1, since" in said) == (3, True), said
        assert [path.name for path in bucket.tables.iterdir()] == ["_lock"]

    await asyncio.to_thread(use)
