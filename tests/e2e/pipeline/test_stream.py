"""`stream` as a process: killed with -9 at chosen moments and at random, ended by SIGTERM, and equal to `run`."""

import random
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from random_kills import PAGE, Kills, killing, page
from spark_commands import SECONDS, Folder, arguments, contents, done, expect_whole, pipeline, started

KILLS = str(Path(__file__).parent / "kills.py")
pytestmark = pytest.mark.timeout(1800)

MOMENTS = {
    "all is staged": ("write", r"\.pending\.json$", 1),
    "the journal is written": ("move", r"^_staging", 1),
    "half is moved": ("move", r"^_staging", 4),
    "all is moved": ("write", r"_commits/\d+\.json$", 1),
}


@pytest.fixture
def events(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "events")


def until(process: subprocess.Popen[str], pattern: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it ended with {process.wait()} and never said {pattern}")


def killed_when(moment: str, command: list[str]) -> None:
    """With the moves of a commit half done no table is whole, and the next command must finish it."""
    method, pattern, call = MOMENTS[moment]
    with started([KILLS, method, pattern, str(call), *command]) as process:
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, said


def test_killed_stream_resumes_refuses_others_finishes_on_sigterm_and_equals_run(
    events: Folder, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    events.add()
    killed_when("half is moved", arguments("stream", events, tables))
    events.add()
    with started(["-m", "pulsar_ingress_pipeline", *arguments("stream", events, tables)]) as process:
        until(process, "^a commit that was interrupted has been finished")
        until(process, "^tables: hours")
        process.kill()
    service = [
        "-m",
        "pulsar_ingress_pipeline",
        *arguments("stream", events, tables, "--master", "local[2]", "--pause", "0.1"),
    ]
    with started(service) as process:
        until(process, "^commit 2: 1 files, 46 lines, 40 new events, 1 in quarantine")
        refused = pipeline(*arguments("run", events, tables))
        assert refused.returncode == 3
        assert f"process {process.pid}" in refused.stderr
        assert "Traceback" not in refused.stderr
        events.add()
        until(process, "^read")
        process.send_signal(signal.SIGTERM)
        until(process, "^commit 3: 1 files, 46 lines, 40 new events")
        assert process.wait(SECONDS) == 0
    assert not (tables / "_lock").exists()
    expect_whole(events, tables)
    at_once, metrics = tmp_path / "at-once", tmp_path / "pipeline.prom"
    done(*arguments("run", events, at_once, "--metrics-file", str(metrics)))
    assert contents(at_once) == contents(tables)
    for name, number in (("files", events.files), ("events", events.events), ("quarantined_lines", events.files)):
        assert f"\npulsar_ingress_pipeline_{name}_total {number}.0\n" in metrics.read_text()


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
def test_stream_neither_loses_nor_doubles_events_when_killed_during_a_commit(
    events: Folder, tmp_path: Path, moment: str
) -> None:
    """In its first commit and in a later one."""
    tables = tmp_path / "tables"
    for _ in range(2):
        events.add()
        killed_when(moment, arguments("stream", events, tables))
        events.add()
        done(*arguments("stream", events, tables, "--master", "local[2]", "--once"))
    expect_whole(events, tables)


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
def test_stream_neither_loses_nor_doubles_events_when_killed_100_times_at_random(tmp_path: Path) -> None:
    """Two at a time, as one keeps no two cores busy. What came of it is written to docs/exactly-once.md."""
    made = [(Folder(tmp_path / f"events-{number}"), tmp_path / f"tables-{number}") for number in range(2)]
    kills = Kills()

    def kill(number: int) -> None:
        (events, tables), chance = made[number], random.Random(number)
        for _ in range(50):
            events.add()
            kills.add(killing(arguments("stream", events, tables), chance))
        done(*arguments("stream", events, tables, "--master", "local[2]", "--once"))

    with ThreadPoolExecutor(len(made)) as both:
        list(both.map(kill, range(len(made))))
    PAGE.write_text(page(kills, made))
    for events, tables in made:
        expect_whole(events, tables)
