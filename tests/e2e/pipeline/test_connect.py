"""The commands through a real Spark Connect server: the tables, the report and the advice of a session of one's own."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from spark_commands import Folder, arguments, contents, done, expect_whole, pipeline
from spark_processes import connect_server

pytestmark = pytest.mark.timeout(1800)

NO_JAVA = {"JAVA_HOME": "/nowhere"}
CONFIG = {
    "bindAddresses": ["http://0.0.0.0:8443"],
    "brokers": {"webServiceUrl": ["http://b0:8080"]},
    "ingresses": [{"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}],
    "advertisedListeners": [{"broker": "b0", "listeners": "internal:http://b0:8080,external:https://b0.example.com"}],
}


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    with connect_server(tmp_path / "server") as url:
        yield url


@pytest.fixture
def events(tmp_path: Path) -> Folder:
    """With a file whose gzip breaks off, for which Python runs on the server's side."""
    made = Folder(tmp_path / "events of [two] ingresses")
    made.add()
    made.add()
    return made


def test_all_commands_work_through_spark_connect_without_local_java(
    remote: str, events: Folder, tmp_path: Path
) -> None:
    tables, alone = tmp_path / "tables", tmp_path / "alone"
    there = ("--remote", remote)
    assert "2 files, 80 events, 2 lines in quarantine" in done(*arguments("run", events, tables, *there), **NO_JAVA)
    expect_whole(events, tables)
    events.add()
    torn = gzip.compress((events.path / "000002.jsonl").read_bytes())[:-20]
    (events.path / "000003.jsonl.gz").write_bytes(torn)
    streamed = done(*arguments("stream", events, tables, "--once", *there), **NO_JAVA)
    assert "2 files, 40 events" in streamed
    done(*arguments("run", events, alone))
    assert contents(tables) == contents(alone)

    report = tmp_path / "report.html"
    printed = done("report", "--tables", str(tables), "--out", str(report), **NO_JAVA)
    assert printed == f"{report}: {events.events} lookups\n"
    assert "new.example.com" in report.read_text()
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    advice = yaml.safe_load(done("suggest", "--tables", str(tables), "--config", str(config), **NO_JAVA))
    assert [ingress["hosts"] for ingress in advice["ingresses"]] == [["new.example.com"]]
    config.write_text(yaml.safe_dump(CONFIG | {"ingresses": []}))
    lost = pipeline("replay", "--events", str(events.path), "--config", str(config), *there, **NO_JAVA)
    assert lost.returncode == 1, lost.stderr
    assert "102 hits would become misses" in lost.stdout


def test_unreachable_remote_is_reported_in_one_line_and_exits_2(events: Folder, tmp_path: Path) -> None:
    refused = pipeline(*arguments("run", events, tmp_path / "tables", "--remote", "sc://127.0.0.1:1"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines() == [
        "events …",
        "--remote sc://127.0.0.1:1: cannot connect: Connection refused",
    ]
