"""A commit is done once, whenever it is interrupted; and only one command works on the tables."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_events import MISS, Tables, event, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import commits, lock
from pulsar_ingress_pipeline.commits import Commits
from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.lock import Lock
from pulsar_ingress_pipeline.storage import Storage

pytestmark = pytest.mark.usefixtures("few_tables")


class Killed(BaseException):
    """As if the process had ended here."""


def contents(folder: Path) -> dict[str, bytes]:
    """All that readers see, and the pipeline's own, but for the journals, which have a time."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if "_commits" not in name.parts}


def killing(monkeypatch: pytest.MonkeyPatch, method: str, moment: Callable[[str, int], bool]) -> None:
    """Be killed just before a call of the storage."""
    whole, calls = getattr(Storage, method), 0

    def called(storage: Storage, path: str, *rest: str) -> object:
        nonlocal calls
        calls += 1
        if moment(path, calls):
            raise Killed
        return whole(storage, path, *rest)

    monkeypatch.setattr(Storage, method, called)


MOMENTS: list[tuple[str, str, Callable[[str, int], bool]]] = [
    ("journalled", "move", lambda _, call: call == 1),
    ("half moved", "move", lambda _, call: call == 5),
    ("removed, not moved", "remove", lambda path, _: path.startswith("misses/")),
    ("moved, not marked as done", "write", lambda path, _: path.endswith("2.json")),
    ("marked as done, still pending", "remove", lambda path, _: path.endswith(".pending.json")),
    ("still staged", "remove", lambda path, _: path.startswith("_staging")),
]


def test_commit_killed_at_any_step_is_finished_or_discarded_on_recovery(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    write(tables.events, "a.jsonl", [event(1, 0, **MISS), event(2, 10)])
    tables.absorb()
    before = contents(tables.folder)
    write(tables.events, "b.jsonl", [event(2, 5), event(3, 20, **MISS), b"bad\n"])
    draft, present = tables.draft()

    def copy(name: str) -> Storage:
        subprocess.run(["cp", "-r", tables.folder, tmp_path / name], check=True)
        return Storage(spark, str(tmp_path / name))

    whole = copy("whole")
    Commits(whole).commit(draft, present)
    expected = contents(tmp_path / "whole")
    assert expected.keys() - before.keys()
    assert before.keys() - expected.keys()
    for name, method, moment in MOMENTS:
        storage = copy(name)
        with monkeypatch.context() as patched:
            killing(patched, method, moment)
            with pytest.raises(Killed):
                Commits(storage).commit(draft, present)
        after = Commits(storage)
        assert after.recover() is (name != "still staged"), name
        assert after.new(present) == [], name
        assert contents(tmp_path / name) == expected, name

    undecided = copy("staged, not journalled")
    after = Commits(undecided)
    assert not after.recover()
    assert [file.name for file in after.new(present)] == ["b.jsonl"]
    assert contents(tmp_path / "staged, not journalled") == before


def test_journals_are_folded_and_deleted_event_files_are_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_FOLD", 3)
    storage, events = Storage(spark, str(tmp_path / "tables")), tmp_path / "events"
    log = Commits(storage)
    log.recover()
    for number in range(5):
        write(events, f"{number}.jsonl", [event(number)])
        if number == 3:
            (events / "0.jsonl").unlink()
        present = Storage(spark, str(events)).tree()
        draft = log.draft()
        draft.taken = log.new(present)
        assert len(draft.taken) == 1
        log.commit(draft, present)
    assert [file.name for file in storage.files("_commits")] == ["000000004.json", "000000005.json"]
    again = Commits(storage)
    again.recover()
    assert again.new(Storage(spark, str(events)).tree()) == []
    assert not again.was_taken(f"file:{events}/0.jsonl")
    assert again.draft().number == 6


def test_second_command_is_refused_and_the_error_names_the_lock_owner(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(spark, str(tmp_path))
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with Lock(storage, "stream") as held:
        before = (tmp_path / "_lock").stat().st_ino
        while (tmp_path / "_lock").stat().st_ino == before:
            time.sleep(0.01)
        with (
            pytest.raises(Busy, match=rf"`stream` \(.*, process {os.getpid()}, since .*\) works on these tables"),
            Lock(storage, "run"),
        ):
            pass
        held.hold()
    with Lock(storage, "run"):
        pass
    assert not (tmp_path / "_lock").exists()


def test_lock_is_acquired_when_its_creation_is_retried_after_a_lost_answer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of a store that hears nothing asks again, and hears that the file is there."""
    make = Storage.create
    monkeypatch.setattr(Storage, "create", lambda *asked: make(*asked) and make(*asked))
    with Lock(Storage(spark, str(tmp_path)), "run") as held:
        held.hold()
    assert not (tmp_path / "_lock").exists()


def test_lock_of_a_dead_or_stale_owner_is_taken_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(spark, str(tmp_path))
    with Lock(storage, "run"):
        owner = json.loads((tmp_path / "_lock").read_text())
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "_lock").write_text(json.dumps(owner | {"process": dead.pid, "token": "dead"}))
    with Lock(storage, "run"):
        pass
    (tmp_path / "_lock").write_text(json.dumps(owner | {"host": "elsewhere", "token": "far"}))
    with pytest.raises(Busy, match="elsewhere"), Lock(storage, "run"):
        pass
    monkeypatch.setattr(lock, "STALE", -1.0)
    with Lock(storage, "run") as taken:
        assert json.loads((tmp_path / "_lock").read_text())["token"] != "far"
        (tmp_path / "_lock").write_text(json.dumps(owner | {"token": "thief"}))
        with pytest.raises(PipelineFault, match="another command has taken over"):
            taken.hold()
    assert json.loads((tmp_path / "_lock").read_text())["token"] == "thief"
