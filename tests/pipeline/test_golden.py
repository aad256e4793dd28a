"""From committed events, with the real commands, to the tables, the report's words and the config that are committed.

`python tests/pipeline/golden_files.py` writes what is expected anew.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_files import CONFIG, EVENTS, GOLDEN, NAMES, OTHER, TABLES, one_session, printed, rows, words
from made_events import event, write
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def ours(spark: SparkSession) -> Iterator[None]:
    with one_session(spark):
        yield


@pytest.fixture(scope="module")
def tables(ours: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "tables"
    code, out, _ = printed("run", "--events", EVENTS, "--tables", folder)
    assert code == 0
    assert "3 files, " in out
    return folder


def test_run_writes_the_golden_tables(tables: Path) -> None:
    assert {path.stem for path in TABLES.iterdir()} == set(NAMES)
    for name in NAMES:
        expected = (TABLES / f"{name}.jsonl").read_text()
        assert rows(tables, name, EVENTS).splitlines() == expected.splitlines(), name
        assert expected, f"{name}: the events have nothing for it"


def test_report_has_the_golden_text(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    code, said, _ = printed("report", "--tables", tables, "--out", out, "--config", CONFIG)
    assert code == 0
    assert said.startswith(f"{out}: ")
    assert words(out.read_text(), tables).splitlines() == (GOLDEN / "report.txt").read_text().splitlines()


def test_suggest_prints_the_golden_config_and_exits_2_on_bad_input(tables: Path, tmp_path: Path) -> None:
    assert printed("suggest", "--tables", tables, "--config", CONFIG)[:2] == (0, (GOLDEN / "suggest.yaml").read_text())
    assert printed("suggest", "--tables", tables, "--support", "1000")[1].splitlines()[-1] == "{}"
    code, _, err = printed("suggest", "--tables", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "there are no tables; make them with `run`" in err
    (tmp_path / "bad.yaml").write_text("ingreses: []\n")
    assert printed("suggest", "--tables", tables, "--config", tmp_path / "bad.yaml")[0] == 2


def test_replay_exits_1_when_a_hit_is_lost_and_reports_unreadable_files(tmp_path: Path) -> None:
    code, out, err = printed("replay", "--events", EVENTS, "--config", OTHER)
    assert (code, out) == (1, (GOLDEN / "replay.txt").read_text())
    assert err == f"{EVENTS}/torn.jsonl.gz: gzip breaks off: the rest of the file is lost\n"
    assert "hits would become misses" in out

    write(tmp_path, "calm.jsonl", [event(1), event(2, kind="admin")])
    code, out, err = printed("replay", "--events", tmp_path, "--config", CONFIG)
    assert (code, out, err) == (0, "2 requests, 2 decided as they were, 0 differently\n", "")
    (tmp_path / "calm.jsonl").unlink()
    code, out, err = printed("replay", "--events", tmp_path, "--config", CONFIG)
    assert (code, out) == (2, "")
    assert "there are no event files" in err
