"""`stream` as a process: killed with -9 at chosen moments and at random, ended by SIGTERM, and equal to `run`."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.tables import DERIVED

KILLS = str(Path(__file__).parent / "kills.py")
SECONDS = 600
pytestmark = pytest.mark.timeout(1800)

TABLES = [table.name for table in DERIVED]


def event(number: int) -> dict[str, Any]:
    """Events of three hours; every seventh is a miss, every fifth a redirect, and brokers change now and then."""
    is_miss, second = number % 7 == 0, number * 11 % 10_800
    return {
        "schema": 1,
        "time": f"2026-11-16T{9 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{number:06d}Z",
        "id": f"{number:032x}", "cluster": "pulsar", "sidecar": "s", "generation": 1, "protocol": "http",
        "kind": "lookup", "ingress": None if is_miss else "public", "host": "pulsar.example.com",
        "rule": "none" if is_miss else "ingress", "listener": None if is_miss else "external", "hit": not is_miss,
        "missReason": "no-rule" if is_miss else None,
        "tenant": f"t{number % 3}", "namespace": "n", "topic": f"persistent://t/n/{number % 10}",
        "broker": f"b{number // 50 % 3}", "status": 200, "hops": 0, "durationMs": number % 100 / 4,
        "redirectFrom": "http://b9:8080/x" if number % 5 == 0 else None, "requestBytes": 0, "responseBytes": 1,
    }  # fmt: skip


class Folder:
    """Event files that come one after the other, some events in two of them, and a bad line in each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir()
        self.files = 0

    def add(self, count: int = 40) -> None:
        start = self.files * count
        lines = [json.dumps(event(number)) for number in range(max(start - 5, 0), start + count)]
        unfinished = self.path / f".{self.files}.jsonl"
        unfinished.write_text("\n".join([*lines, f"bad {self.files}"]) + "\n")
        unfinished.rename(self.path / f"{self.files:06d}.jsonl")
        self.files += 1

    @property
    def events(self) -> int:
        return self.files * 40


def arguments(command: str, events: Folder, tables: Path, *more: str) -> list[str]:
    return [command, "--events", str(events.path), "--tables", str(tables), "--master", "local[2]", *more]


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def rows(tables: Path, name: str) -> list[str]:
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        found = duck.sql(f"select * from read_parquet('{tables}/{name}/**/*.parquet', hive_partitioning = false)")
        return sorted(map(repr, found.fetchall()))


def contents(tables: Path) -> dict[str, list[str]]:
    return {name: rows(tables, name) for name in ("events", "quarantine", *TABLES)}


def expect_whole(events: Folder, tables: Path) -> None:
    """Nothing lost, nothing doubled."""
    with duckdb.connect() as duck:
        read = f"select count(*), count(distinct id) from read_parquet('{tables}/events/*/*/*.parquet')"
        assert duck.sql(read).fetchall() == [(events.events, events.events)]
        read = f"select sum(hits) + sum(misses) from read_parquet('{tables}/listener_windows/*.parquet')"
        assert duck.sql(read).fetchall() == [(events.events,)]
        read = f"select sum(lookups) from read_parquet('{tables}/owner_changes/*.parquet')"
        assert duck.sql(read).fetchall() == [(events.events,)]
        read = f"select count(*), count(distinct line_text) from read_parquet('{tables}/quarantine/*.parquet')"
        assert duck.sql(read).fetchall() == [(events.files, events.files)]


@pytest.fixture
def events(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "events")


MOMENTS = [
    ("write", r"\.pending\.json$", 2),  # staged
    ("move", r"^_staging", 1),  # journalled
    ("move", r"^_staging", 4),  # half moved
    ("write", r"_commits/\d+\.json$", 1),  # moved
]


def test_killed_at_chosen_moments_it_goes_on_where_it_was_and_equals_a_run(events: Folder, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    for method, pattern, call in MOMENTS:
        events.add()
        command = [sys.executable, KILLS, method, pattern, str(call), *arguments("stream", events, tables, "--once")]
        if method == "write" and call == 2:
            assert pipeline(*arguments("stream", events, tables, "--once")).returncode == 0
            events.add()
            command[4] = "1"
        killed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = pipeline(*arguments("stream", events, tables, "--once"))
    assert ended.returncode == 0, ended.stderr
    expect_whole(events, tables)
    again = pipeline(*arguments("run", events, tables))
    assert (again.returncode, again.stdout) == (0, f"{tables}: nothing new\n")
    at_once = tmp_path / "at-once"
    assert pipeline(*arguments("run", events, at_once)).returncode == 0
    assert contents(at_once) == contents(tables)


@pytest.fixture
def service(events: Folder, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    events.add()
    command = [sys.executable, "-m", "pipeline", *arguments("stream", events, tmp_path / "tables", "--pause", "0.1")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def until(process: subprocess.Popen[str], pattern: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it ended with {process.wait()} and never said {pattern}")


def test_a_service_takes_what_comes_refuses_others_and_ends_after_its_batch(
    events: Folder, service: subprocess.Popen[str], tmp_path: Path
) -> None:
    until(service, "^commit 1: 1 files, 41 lines, 40 new events, 1 in quarantine")
    refused = pipeline(*arguments("run", events, tmp_path / "tables"))
    assert refused.returncode == 3
    assert f"process {service.pid}" in refused.stderr
    assert "Traceback" not in refused.stderr
    events.add()
    until(service, "^read")
    service.send_signal(signal.SIGTERM)
    until(service, "^commit 2: 1 files, 46 lines, 40 new events")
    assert service.wait(SECONDS) == 0
    expect_whole(events, tmp_path / "tables")
    assert not (tmp_path / "tables" / "_lock").exists()


def kill_at_random(events: Folder, tables: Path, kills: int) -> None:
    """Kill it again and again at a random moment of its work, with new files each time; then let it end."""
    chance = random.Random(7)
    for _ in range(kills):
        events.add()
        command = [sys.executable, "-m", "pipeline", *arguments("stream", events, tables, "--once")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            assert process.stderr is not None
            for _ in range(chance.randrange(1, 9)):  # each stage is a line
                process.stderr.readline()
            os.kill(process.pid, signal.SIGKILL)
    ended = pipeline(*arguments("stream", events, tables, "--once"))
    assert ended.returncode == 0, ended.stderr
    expect_whole(events, tables)


def test_killed_at_random(events: Folder, tmp_path: Path) -> None:
    kill_at_random(events, tmp_path / "tables", 2)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_killed_at_random_a_hundred_times(events: Folder, tmp_path: Path) -> None:
    kill_at_random(events, tmp_path / "tables", 100)
