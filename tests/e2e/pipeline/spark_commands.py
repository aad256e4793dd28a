"""The pipeline's commands as processes, over event files made for the tests, and what they left in the tables."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import DeltaTable

from pulsar_ingress_pipeline.tables import DERIVED

SECONDS = 600
START, PER_DAY = datetime(2026, 11, 16, 9, tzinfo=UTC), 700
"""50 files have events of three days. DuckDB would find anomalies in more: its query has lower limits, for tests."""
TABLES = [table.name for table in DERIVED]
# Most of the time of a command over a few events is Java's compiler: the quick one is enough.
QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"}


def event(number: int) -> dict[str, Any]:
    """Events of three hours a day; every seventh is a miss, every fifth a redirect, and brokers change now and then."""
    is_miss, time = number % 7 == 0, START + timedelta(days=number // PER_DAY, seconds=number * 11 % 10_800)
    return {
        "schema": 1,
        "time": f"{time:%Y-%m-%dT%H:%M:%S}.{number:06d}Z",
        "id": f"{number:032x}", "cluster": "pulsar", "sidecar": f"s{number % 2}", "generation": 1, "protocol": "http",
        "kind": "lookup", "scheme": "https", "bind": "0.0.0.0:8443", "ingress": None if is_miss else "public",
        "host": "new.example.com" if is_miss else "pulsar.example.com", "rule": "none" if is_miss else "ingress",
        "listener": None if is_miss else "external", "hit": not is_miss, "missReason": "no-rule" if is_miss else None,
        "tenant": f"t{number % 3}", "namespace": "n", "topic": f"persistent://t/n/{number % 10}",
        "broker": f"b{number // 50 % 3}", "status": 200, "hops": 0, "durationMs": number % 100 / 4,
        "redirectFrom": "http://b9:8080/x" if number % 5 == 0 else None, "requestBytes": 0, "responseBytes": 1,
    }  # fmt: skip


class Folder:
    """Event files that come one after the other, some events in two of them, and a bad line in each."""

    def __init__(self, path: Path, count: int = 40) -> None:
        self.path, self.count = path, count
        self.path.mkdir()
        self.files = 0

    def add(self) -> None:
        start = self.files * self.count
        lines = [json.dumps(event(number)) for number in range(max(start - 5, 0), start + self.count)]
        unfinished = self.path / f".{self.files}.jsonl"
        unfinished.write_text("\n".join([*lines, f"bad {self.files}"]) + "\n")
        unfinished.rename(self.path / f"{self.files:06d}.jsonl")
        self.files += 1

    @property
    def events(self) -> int:
        return self.files * self.count


def arguments(command: str, events: Folder, tables: Path, *more: str) -> list[str]:
    return [command, "--events", str(events.path), "--tables", str(tables), *(more or ("--master", "local[2]"))]


def environment(**more: str) -> dict[str, str]:
    return os.environ | QUICK | more


def started(program: Iterable[str], **variables: str) -> subprocess.Popen[str]:
    """A command whose stderr is read as it goes."""
    return subprocess.Popen(
        [sys.executable, *program],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(**variables),
    )  # fmt: skip


def pipeline(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_ingress_pipeline", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment(**variables)
    )


def done(*arguments: str, **variables: str) -> str:
    """What a command that goes well has printed."""
    ended = pipeline(*arguments, **variables)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def table(tables: Path, name: str) -> pa.Table:
    return DeltaTable(str(tables / name)).to_pyarrow_table()


def rows(tables: Path, name: str) -> list[str]:
    return sorted(map(repr, table(tables, name).to_pylist()))


def contents(tables: Path) -> dict[str, list[str]]:
    return {name: rows(tables, name) for name in ("events", "quarantine", *TABLES)}


def expect_whole(events: Folder, tables: Path) -> None:
    """Nothing lost, nothing doubled."""
    ids = table(tables, "events")["id"].to_pylist()
    assert (len(ids), len(set(ids))) == (events.events, events.events)
    windows = table(tables, "listener_windows")
    assert pc.sum(windows["hits"]).as_py() + pc.sum(windows["misses"]).as_py() == events.events
    assert pc.sum(table(tables, "owner_changes")["lookups"]).as_py() == events.events
    lines = table(tables, "quarantine")["line_text"].to_pylist()
    assert (len(lines), len(set(lines))) == (events.files, events.files)
