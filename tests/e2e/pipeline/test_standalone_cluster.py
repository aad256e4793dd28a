"""The commands on a real standalone cluster: a master and two workers, one of which is killed with its executors."""

import re
from pathlib import Path

import pytest
from spark_commands import Folder, arguments, contents, done, expect_whole, started
from spark_processes import standalone

pytestmark = pytest.mark.timeout(1800)

FILES, EVENTS = 8, 4000
SMALL = "--conf spark.executor.memory=700m --conf spark.driver.memory=900m pyspark-shell"


@pytest.fixture
def events(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "events", EVENTS)
    for _ in range(FILES):
        made.add()
    return made


def test_run_survives_a_killed_worker_and_its_tables_equal_a_local_run(events: Folder, tmp_path: Path) -> None:
    tables, there = tmp_path / "tables", {"PYSPARK_SUBMIT_ARGS": SMALL, "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    with standalone(tmp_path / "spark", workers=2) as cluster:
        run = ["-m", "pulsar_ingress_pipeline", *arguments("run", events, tables, "--master", cluster.url)]
        with started(run, **there) as process:
            victim = cluster.worker_amid_tasks(lambda: process.poll() is None)
            victim.kill()
            said, words = process.communicate()
        assert process.returncode == 0, words
        assert said == f"{tables}: {FILES} files, {events.events:,} events, {FILES} lines in quarantine\n"
        (other,) = (worker for worker in cluster.workers if worker is not victim)
        assert re.search(r"Running task \d+\.1 in stage", other.executors), "what the dead one was at is done again"
        expect_whole(events, tables)
        events.add()
        on_cluster = ("--master", cluster.url)
        assert "1 files" in done(*arguments("stream", events, tables, *on_cluster, "--once"), **there)
        report = tmp_path / "report.html"
        done("report", "--tables", str(tables), "--out", str(report), **there)
        assert report.read_text().startswith("<!DOCTYPE html>")
    alone = tmp_path / "alone"
    done(*arguments("run", events, alone))
    assert contents(tables) == contents(alone)
