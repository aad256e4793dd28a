"""Kills `stream` at random moments, and writes the page with the results."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc  # type: ignore[import-untyped]
from spark_commands import SECONDS, Folder, started, table

PAGE = Path(__file__).parents[3] / "docs/exactly-once.md"
KILLS = str(Path(__file__).parent / "kills.py")
STAGES = 4
"""Lines that a batch prints before its last one."""
COMMITS = 48
"""Commits of a batch, one for each table."""
LATEST = 3.0
"""Seconds after the start of a stage."""


@dataclass
class Kills:
    """How often it was killed in each stage."""

    at: Counter[str] = field(default_factory=Counter)

    def add(self, stage: str) -> None:
        self.at[stage] += 1


def killing(command: list[str], chance: random.Random) -> str:
    """Start it and kill it, half the time in a stage, half between two commits; returns where it was killed."""
    if chance.random() < 0.5:
        return _in_a_stage(command, chance.randint(1, STAGES), chance.uniform(0, LATEST))
    return _between_commits(command, chance.randint(1, COMMITS))


def _in_a_stage(command: list[str], lines: int, seconds: float) -> str:
    said: list[str] = []
    with started(["-m", "pulsar_ingress_pipeline", *command]) as process:
        assert process.stderr is not None
        while len(said) < lines:
            said.append(process.stderr.readline())
        threading.Timer(seconds, process.kill).start()
        said += process.stderr
    assert process.returncode == -signal.SIGKILL, said
    return stage_of(said)


def _between_commits(command: list[str], number: int) -> str:
    with started([KILLS, "any", str(number), *command]) as process:
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, said
    return "between two commits"


def stage_of(said: list[str]) -> str:
    """The stage that it was in, by the last line it printed."""
    if not said:
        return "start"
    return said[-1].removesuffix(" …\n") if said[-1].endswith(" …\n") else "between two batches"


def page(kills: Kills, made: Sequence[tuple[Folder, Path]]) -> str:
    tables = [folder for _, folder in made]
    ids = [[*table(folder, "events")["id"].to_pylist()] for folder in tables]
    rows, unique = sum(map(len, ids)), sum(len(set(one)) for one in ids)
    windows = [table(folder, "listener_windows") for folder in tables]
    counted = sum(pc.sum(one[name]).as_py() for one in windows for name in ("hits", "misses"))
    bad = sum(len(table(folder, "quarantine")) for folder in tables)
    events, files = sum(events.events for events, _ in made), sum(events.files for events, _ in made)
    stages = "\n".join(f"| {stage} | {count} |" for stage, count in sorted(kills.at.items()))
    return f"""# Exactly once

`stream` was killed with -9 at {kills.at.total()} random moments, on {len(made)} folders of tables, with a new event
file before each kill. Then it ran to its end. Five events of each file are also in the file before it, and each file
has one bad line. Written by `make e2e-full`.

| | expected | found |
|---|---|---|
| rows of `events` | {events:,} | {rows:,} |
| rows whose id is there twice | 0 | {rows - unique:,} |
| lookups in `listener_windows` | {events:,} | {counted:,} |
| lines in `quarantine` | {files:,} | {bad:,} |

| killed at | times |
|---|---|
{stages}

Half of the kills come up to {LATEST:.0f} s after the start of a stage. The others are just before one of the
{COMMITS} commits of a batch, one for each table. After the last run all tables were equal to those that DuckDB
computes from the same events.
"""
