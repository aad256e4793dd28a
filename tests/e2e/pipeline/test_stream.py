"""`stream` as a process: killed with -9 at chosen moments and at random, ended by SIGTERM, and equal to `run`."""

import random
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from random_kills import PAGE, Kills, killing, page
from spark_commands import SECONDS, Folder, arguments, contents, done, expect_whole, started, table

from bench.duck import Duck

KILLS = str(Path(__file__).parent / "kills.py")
pytestmark = pytest.mark.timeout(1800)

MOMENTS = {
    "files are written, nothing is committed": "events",
    "between events and quarantine": "quarantine",
    "between quarantine and files": "files",
    "before the first table": "listener_windows",
    "between two tables": "misses",
    "among the shares": "_shares/misses_days",
}
"""By the table before whose commit it is killed."""


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
    with started([KILLS, MOMENTS[moment], "1", *command]) as process:
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, said


def test_killed_stream_resumes_beats_others_finishes_on_sigterm_and_equals_run(events: Folder, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    events.add()
    killed_when("between two tables", arguments("stream", events, tables))
    events.add()
    service = [
        "-m",
        "pulsar_ingress_pipeline",
        *arguments("stream", events, tables, "--master", "local[2]", "--pause", "0.1"),
    ]
    with started(service) as process:
        until(process, "^tables that were behind are up to date again")
        until(process, "^version 1: 1 files, 46 lines, 40 new events, 1 in quarantine")
        events.add()
        until(process, "^events")
        process.send_signal(signal.SIGTERM)
        until(process, "^version 2: 1 files, 46 lines, 40 new events")
        assert process.wait(SECONDS) == 0
    expect_whole(events, tables)
    at_once, metrics = tmp_path / "at-once", tmp_path / "pipeline.prom"
    done(*arguments("run", events, at_once, "--metrics-file", str(metrics)))
    assert contents(at_once) == contents(tables)
    for name, number in (("files", events.files), ("events", events.events), ("quarantined_lines", events.files)):
        assert f"\npulsar_ingress_pipeline_{name}_total {number}.0\n" in metrics.read_text()


def test_of_two_commands_on_the_same_tables_one_loses_and_says_so(events: Folder, tmp_path: Path) -> None:
    """Both have read the same files; the one that commits first is the only one that counts."""
    tables = tmp_path / "tables"
    events.add()
    done(*arguments("run", events, tables))
    events.add()
    both = [started(["-m", "pulsar_ingress_pipeline", *arguments("run", events, tables)]) for _ in range(2)]
    ended = [(process, *process.communicate(timeout=SECONDS)) for process in both]
    codes = sorted(process.returncode for process, _, _ in ended)
    assert codes in ([0, 3], [0, 0]), ended  # the second may have begun when the first was done
    for process, out, err in ended:
        if process.returncode == 3:
            assert "another command has committed to these tables meanwhile" in err
            assert "Traceback" not in err
        else:
            assert out.startswith(f"{tables}: ")
    done(*arguments("run", events, tables))
    expect_whole(events, tables)


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
def test_stream_neither_loses_nor_doubles_events_when_killed_between_commits(
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
def test_readers_never_see_half_a_commit_in_1000_reads_of_a_running_stream(events: Folder, tmp_path: Path) -> None:
    """Each file brings the same number of lookups, so that half a commit would show."""
    tables, reads = tmp_path / "tables", 0
    seen: set[int] = set()
    events.add()
    done(*arguments("run", events, tables))
    stream = arguments("stream", events, tables, "--master", "local[2]", "--pause", "0")
    with started(["-m", "pulsar_ingress_pipeline", *stream]) as process:
        while reads < 1000 or len(seen) < 5:
            windows = table(tables, "listener_windows")
            lookups = pc.sum(windows["hits"]).as_py() + pc.sum(windows["misses"]).as_py()
            assert lookups % events.count == 0
            assert len(table(tables, "events")) % events.count == 0
            if lookups == events.events:
                events.add()
            seen.add(lookups)
            reads += 1
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    done(*arguments("run", events, tables))
    expect_whole(events, tables)


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
def test_stream_neither_loses_nor_doubles_events_when_killed_100_times_at_random(tmp_path: Path) -> None:
    """Two at a time, as one keeps no two cores busy. What came of it is written to docs/exactly-once.md.

    The tables are held against those that DuckDB makes of the same events.
    """
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
    assert kills.at.total() == 100
    assert kills.at["between two commits"] >= 25
    for events, tables in made:
        expect_whole(events, tables)
        with closing(Duck(tables, tmp_path / f"{tables.name}-by-duckdb", threads=1)) as oracle:
            oracle.make()
            oracle.compare()
    PAGE.write_text(page(kills, made))
