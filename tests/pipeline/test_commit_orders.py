"""Writers in every order of their steps, killed at any of them: with real commits, and rows that Arrow computes.

A step is opening a table or committing a version of it; nothing else that a writer does is seen by others.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from arrow_session import FUNCTIONS, TOPICS, WINDOWS, ArrowSession, query, topics_of, windows_of
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions
from made_events import event, write
from turn_taking import Actor, current

from pulsar_ingress_pipeline import runner
from pulsar_ingress_pipeline.faults import Busy
from pulsar_ingress_pipeline.lake import table as lake_table
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import SOURCE
from pulsar_ingress_pipeline.runner import Runner
from pulsar_ingress_pipeline.tables import Table, derivation
from pulsar_ingress_pipeline.tables.derivation import Derivation
from pulsar_ingress_pipeline.tables.writing import Writer

BAD = "bad"
PROGRESS: Any = SimpleNamespace(stage=lambda name: None, say=lambda line: None)
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where no commit waits for a disk."""


class Scene:
    """A folder of tables, and writers at the beginning of their work."""

    now: "Scene"

    def __init__(self, events: Path, tables: Path, writers: int = 0) -> None:
        Scene.now = self
        self.events, self.tables = events, tables
        self.commits: list[tuple[str, Actor, Any]] = []
        """The tables, who committed to them, and what it had seen before."""
        self.writers = [Actor(self.stream) for _ in range(writers)]
        for writer in self.writers:
            writer.begin()

    def stream(self) -> None:
        """As `stream` does, which looks for new files again and again, and `run`, which looks once."""
        runner = Runner(str(self.events), str(self.tables), lambda is_brief: ArrowSession(), PROGRESS)  # type: ignore[arg-type,return-value]
        runner.take_new()
        runner.take_new()

    def state(self) -> tuple[str, str]:
        """That of the tables, and of the writers. Which table is written first does not matter, nor who is who."""
        states = []
        for order in permutations(self.writers):
            commits = [(table, order.index(writer), seen) for table, writer, seen in self.commits]
            tables = repr(sorted(commits, key=lambda commit: commit[0]))
            states.append((tables, repr([(writer.next, writer.seen) for writer in order])))
        return min(states)

    def table(self, name: str, version: int | None = None) -> DeltaTable | None:
        folder = self.tables / name
        return DeltaTable(str(folder), version=version) if (folder / "_delta_log").exists() else None

    def check_tables(self) -> None:
        """What readers see at any moment."""
        events = self.table("events")
        if events is not None:
            ids = _column(events, "id")
            assert len(ids) == len(set(ids))
        for name, expected in (("windows", windows_of), ("topics", topics_of)):
            if found := self.table(name):
                source = self.table("events", found.transaction_version(SOURCE))
                assert source is not None
                rows = expected(source.to_pyarrow_table(columns=["time", "topic"]))
                assert _sorted(found.to_pyarrow_table()) == _sorted(rows), name

    def check_whole(self) -> None:
        """What is there in the end: each line once, and tables of the newest events."""
        self.check_tables()
        paths = sorted(self.events.iterdir())
        lines = {line for path in paths for line in path.read_text().splitlines()} - {BAD}
        events, quarantine, files = (self.table(name) for name in ("events", "quarantine", "files"))
        assert events is not None
        assert quarantine is not None
        assert files is not None
        assert sorted(_column(events, "id")) == sorted(json.loads(line)["id"] for line in lines)
        assert sorted(_column(quarantine, "file")) == [*map(str, paths)]
        assert set(_column(files, "name")) == {*map(str, paths)}
        derived = [found for name in ("windows", "topics") if (found := self.table(name))]
        assert {found.transaction_version(SOURCE) for found in derived} == {events.version()}


def _column(table: DeltaTable, name: str) -> list[Any]:
    return list(table.to_pyarrow_table(columns=[name])[name].to_pylist())


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(str([*row.values()]) for row in rows.to_pylist())


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes writers wait before each step."""
    opened = lake_table.opened

    def open_in_turn(storage: Storage) -> DeltaTable | None:
        writer = current()
        if writer is not None:
            writer.wait(f"open {Path(storage.url).name}")
        found = opened(storage)
        if writer is not None:
            writer.seen += (found.version() if found is not None else -1,)
        return found

    def commit_in_turn(commit: Callable[..., None], table: Any, *rest: Any, **more: Any) -> None:
        writer = current()
        if writer is None:
            commit(table, *rest, **more)
            return
        name = Path(table.table_uri if isinstance(table, DeltaTable) else table).name
        writer.wait(f"commit {name}")
        before, writer.seen = writer.seen, (*writer.seen, "lost")
        commit(table, *rest, **more)
        writer.seen = (*before, "won")
        Scene.now.commits.append((name, writer, before))

    create, append = create_table_with_add_actions, DeltaTable.create_write_transaction
    monkeypatch.setattr(lake_table, "opened", open_in_turn)
    monkeypatch.setattr(lake_table, "create_table_with_add_actions", partial(commit_in_turn, create))
    monkeypatch.setattr(
        DeltaTable, "create_write_transaction", lambda *rest, **more: commit_in_turn(append, *rest, **more)
    )
    monkeypatch.setattr(Writer, "query", query)
    monkeypatch.setattr(derivation, "F", FUNCTIONS)


@contextmanager
def _copied(tables: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        copy = Path(folder) / "tables"
        if tables.exists():
            shutil.copytree(tables, copy)
        yield copy


class Explorer:
    """Plays the steps of writers in every order. Orders that lead to the same state go on together from there."""

    def __init__(self, folder: Path, writers: int) -> None:
        self._folder, self._writers = folder, writers
        self._known: dict[tuple[str, str], list[tuple[str, str]]] = {}
        """The states, and those that follow."""
        self._restarted: set[str] = set()

    def explore(self) -> None:
        paths: list[list[int]] = [[]]
        while paths:
            with _copied(self._folder / "tables") as tables:
                scene = Scene(self._folder / "events", tables, self._writers)
                try:
                    paths += self._follow(scene, paths.pop())
                finally:
                    for writer in scene.writers:
                        writer.kill()

    def _follow(self, scene: Scene, path: list[int]) -> list[list[int]]:
        """Go along a path, and on with the first writer until a known state; gives the paths that branch off."""
        branches: list[list[int]] = []
        for number in path[:-1]:
            scene.writers[number].advance()
        last = scene.state() if path else None
        for number in path[-1:]:
            scene.writers[number].advance()
        while True:
            state = scene.state()
            is_known = state in self._known
            self._known.setdefault(state, [])
            if last is not None:
                self._known[last].append(state)
            if is_known:
                return branches
            self._check(scene, state[0])
            able = [number for number, writer in enumerate(scene.writers) if writer.next is not None]
            if not able:
                self._check_ends(scene)
                return branches
            branches += [[*path, number] for number in able[1:]]
            path, last = [*path, able[0]], state
            scene.writers[able[0]].advance()

    def _check(self, scene: Scene, tables: str) -> None:
        """Kill all writers here, and run another one."""
        if tables in self._restarted:
            return
        self._restarted.add(tables)
        scene.check_tables()
        with _copied(scene.tables) as copy:
            restarted = Scene(scene.events, copy)
            restarted.stream()
            restarted.check_whole()
        Scene.now = scene

    def _check_ends(self, scene: Scene) -> None:
        """A writer that met a commit of another has said so. Each may have met one of the other."""
        errors = [writer.error for writer in scene.writers if writer.error is not None]
        assert all(isinstance(error, Busy) for error in errors), errors

    def orders(self) -> int:
        """How many there are."""

        @cache
        def after(state: tuple[str, str]) -> int:
            return sum(map(after, self._known[state])) or 1

        return after(next(iter(self._known)))


@pytest.mark.parametrize(("writers", "derived", "orders"), [(1, (WINDOWS, TOPICS), 1), (2, (WINDOWS,), 45_000)])
@pytest.mark.parametrize("is_first", [True, False], ids=["new tables", "more events"])
@pytest.mark.usefixtures("stepwise")
def test_writers_killed_at_any_step_in_any_order_lose_and_repeat_nothing(
    writers: int, derived: Sequence[Table], orders: int, is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two have 47,758 orders with new tables, and 45,628 with tables that are there already."""
    monkeypatch.setattr(runner, "Derivation", partial(Derivation, derived=derived))
    write(tmp_path / "events", "a.jsonl", [event(1, 0), event(2, 3600, topic="other"), BAD.encode() + b"\n"])
    if not is_first:
        Scene(tmp_path / "events", tmp_path / "tables").stream()
        write(tmp_path / "events", "b.jsonl", [event(1, 0), event(3, 90_000), event(4, 10), BAD.encode() + b"\n"])
    explorer = Explorer(tmp_path, writers)
    explorer.explore()
    assert explorer.orders() >= orders
