"""Kills of `stream` at random moments of its work, and the page that says what came of them."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from spark_commands import SECONDS, Folder, started

PAGE = Path(__file__).parents[3] / "docs/exactly-once.md"
KILLS = str(Path(__file__).parent / "kills.py")
STAGES = 7
"""As many lines as a commit says."""
STEPS = 45
"""As many calls of the storage as the first commit makes that change something; later ones make more."""
LATEST = 3.0
"""Seconds after a stage's beginning."""


@dataclass
class Kills:
    """Where it was killed."""

    at: Counter[str] = field(default_factory=Counter)

    def add(self, stage: str) -> None:
        self.at[stage] += 1


def killing(command: list[str], chance: random.Random) -> str:
    """Start it and kill it, half the time while Spark works, half the time as files are put in place; where it was."""
    if chance.random() < 0.5:
        return _in_a_stage(command, chance.randint(1, STAGES), chance.uniform(0, LATEST))
    return _among_steps(command, chance.randint(1, STEPS))


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


def _among_steps(command: list[str], call: int) -> str:
    with started([KILLS, "write,move,remove,create", "", str(call), *command]) as process:
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, said
    return stage_of(said.splitlines(keepends=True))


def stage_of(said: list[str]) -> str:
    """Where it was, by its last words; before the first of them it finishes what the one before it has left."""
    if not said:
        return "start"
    return said[-1].removesuffix(" …\n") if said[-1].endswith(" …\n") else "between two commits"


def page(kills: Kills, made: Sequence[tuple[Folder, Path]]) -> str:
    def found(what: str, table: str) -> int:
        files = [f"{tables}/{table}/**/*.parquet" for _, tables in made]
        return sum(int(duck.sql(f"select {what} from read_parquet('{file}')").fetchall()[0][0]) for file in files)

    with duckdb.connect() as duck:
        rows, ids = found("count(*)", "events"), found("count(distinct id)", "events")
        counted, bad = found("sum(hits) + sum(misses)", "listener_windows"), found("count(*)", "quarantine")
    events, files = sum(events.events for events, _ in made), sum(events.files for events, _ in made)
    stages = "\n".join(f"| {stage} | {count} |" for stage, count in sorted(kills.at.items()))
    return f"""# Exactly once

`stream` was killed with -9 at {kills.at.total()} random moments, of {len(made)} folders, with a new event file before
each. Then it was let come to its end. Five events of each file are in the one before it too, and each has one bad line.
Written by `make e2e-full`.

| | expected | found |
|---|---|---|
| rows of `events` | {events:,} | {rows:,} |
| rows whose id is there twice | 0 | {rows - ids:,} |
| lookups in `listener_windows` | {events:,} | {counted:,} |
| lines in `quarantine` | {files:,} | {bad:,} |

| killed at | times |
|---|---|
{stages}

Half of the kills come up to {LATEST:.0f} s after a stage has begun. The others are aimed at calls of the storage that
change something, up to the {STEPS}th: most are made in `commit`, where files are put in place.
"""
