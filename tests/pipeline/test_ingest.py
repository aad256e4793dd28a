"""Event files become rows of `events`: every event once, whatever the files, their order and their number."""

import json
import logging
import zlib
from pathlib import Path

import pytest
from made_events import MISS, Tables, at, event, line, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.ingest import batches, event_files
from pulsar_ingress_pipeline.ingest.parsing import read_line
from pulsar_ingress_pipeline.lake.storage import File, Storage

GOOD = line(event()).strip()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path / "events", tmp_path / "tables")


def ids(tables: Tables) -> list[tuple[int, float]]:
    """Which events there are, by number and second."""
    return sorted((int(row["id"], 16), row["time"].timestamp() - at(0).timestamp()) for row in tables.rows("events"))


def test_run_again_changes_nothing_and_a_new_hour_leaves_other_days_untouched(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 0), event(2, 86_400, **MISS), b"bad\n"])
    tables.take()
    versions = tables.versions()
    windows = tables.files("listener_windows")
    taken, hours = tables.take()
    assert (taken.files, taken.events, hours) == (0, 0, [])
    assert tables.versions() == versions

    write(tables.events, "b.jsonl.gz", [event(3, 3700)])
    assert tables.take()[1] == ["2026-11-16T10"]
    assert len(tables.files("listener_windows") & windows) == 1
    assert ids(tables) == [(1, 0), (2, 86_400), (3, 3700)]
    assert [row["lookups"] for row in tables.rows("owner_changes")] == [3]
    assert [row["hits"] for row in tables.rows("listener_windows")] == [1, 1, 0]
    assert tables.take()[1] == []  # also tables that had nothing to gain are of the last version


def test_days_before_yesterday_have_one_share_until_a_later_event_changes_one(tables: Tables) -> None:
    """A topic moves each day, so that a day that is lost, twice or out of order changes the count."""

    def taken(number: int, seconds: float) -> set[str]:
        write(tables.events, f"{number}.jsonl", [event(number, seconds, broker=f"broker-{number}")])
        tables.take()
        expected = {"lookups": number + 1, "changes": number, "brokers": number + 1}
        assert tables.rows("owner_changes") == [{"topic": event()["topic"], **expected}]
        return {path.rpartition("-")[0] for path in tables.files("_shares/owner_changes_days")}

    days = [f"2026-11-{16 + day}" for day in range(6)]
    assert taken(0, 0) == {*days[:1]}
    assert taken(1, 1 * 86_400) == {*days[:2]}
    assert taken(2, 2 * 86_400) == {*days[:3], f"before-{days[1]}"}
    assert taken(3, 3 * 86_400) == {*days[:4], f"before-{days[2]}"}
    assert taken(4, 3 * 86_400 + 3600) == {*days[:4], f"before-{days[2]}"}
    assert taken(5, 2 * 86_400 + 7200) == {*days[:4], f"before-{days[2]}"}  # a day late
    assert taken(6, 1 * 86_400 + 3600) == {*days[:4]}  # two days late
    assert taken(7, 5 * 86_400) == {*days[:4], days[5], f"before-{days[3]}"}


def test_settings_of_a_query_do_not_outlive_it(tables: Tables, spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    write(tables.events, "a.jsonl", [event(1)])
    tables.take()
    assert dict(spark.conf.getAll) == before


def test_event_counts_once_by_id_and_time_and_the_first_one_stays(tables: Tables) -> None:
    write(tables.events, "a.jsonl", [event(1, 10, broker="first"), event(1, 10, broker="copy"), event(2, 0)])
    write(tables.events, "b.jsonl", [event(2, 0), event(3, 0)])
    assert tables.take()[0].events == 3
    write(tables.events, "c.jsonl", [event(1, 10, broker="later"), event(1, 4000), event(4, 20)])
    taken, hours = tables.take()
    assert (taken.lines, taken.events, hours) == (3, 2, ["2026-11-16T09", "2026-11-16T10"])
    assert ids(tables) == [(1, 10), (1, 4000), (2, 0), (3, 0), (4, 20)]
    assert "first" in [row["broker"] for row in tables.rows("events")]
    assert "later" not in [row["broker"] for row in tables.rows("events")]
    write(tables.events, "d.jsonl", [event(4, 20)])
    version = tables.versions()["events"]
    assert (tables.take()[0].events, tables.versions()["events"]) == (0, version)


def test_copies_in_files_of_several_tasks_count_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "TASK_BYTES", 1)
    for name in "abc":
        write(tables.events, f"{name}.jsonl", [event(number, number) for number in range(5)])
    assert tables.take_events().events == 5
    assert len(ids(tables)) == 5


def test_file_that_has_grown_is_read_again_and_its_quarantined_lines_are_replaced(tables: Tables) -> None:
    torn = line(event(2, 1))
    write(tables.events, "a.jsonl", [event(1, 0), torn[:40]])
    tables.take_events()
    assert [row["line_text"] for row in tables.rows("quarantine")] == [torn[:40].decode()]
    write(tables.events, "a.jsonl", [event(1, 0), torn, b"bad\n"])
    assert tables.take_events().events == 1
    assert ids(tables) == [(1, 0), (2, 1)]
    assert [row["line_text"] for row in tables.rows("quarantine")] == ["bad"]
    [last] = [row for row in tables.rows("files") if row["version"] == 1]
    assert (last["lines"], last["events"], last["bad"]) == (3, 2, 1)


def test_small_event_files_of_an_hour_are_merged_into_one(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "MOST_FILES", 2)
    for number in range(1, 5):
        write(tables.events, f"{number}.jsonl", [event(number, -number)])
        tables.take_events()
        assert len(tables.files("events")) <= 2
    assert ids(tables) == [(1, -1), (2, -2), (3, -3), (4, -4)]


def test_files_table_stays_small_and_forgets_event_files_that_are_gone(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 2)
    for number in range(1, 6):
        for old in tables.events.glob(f"{number - 3}.jsonl"):
            old.unlink()
        write(tables.events, f"{number}.jsonl", [event(number, number), b"bad\n"])
        tables.take_events()
        assert len(tables.files("files")) <= 2
        assert len(tables.files("quarantine")) <= 2
    assert [Path(row["name"]).name for row in tables.rows("files")] == ["3.jsonl", "4.jsonl", "5.jsonl"]
    assert len(tables.rows("quarantine")) == 5


def test_batches_follow_file_names_and_are_bounded_by_bytes_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 10)
    monkeypatch.setattr(batches, "BATCH_FILES", 3)
    files = [File(name, size) for name, size in zip("abcdef", (5, 6, 1, 1, 1, 1), strict=True)]
    assert [[file.name for file in batch] for batch in batches.batches(files)] == [["a"], ["b", "c", "d"], ["e", "f"]]


def test_bad_line_is_quarantined_with_its_file_and_reason(tables: Tables) -> None:
    write(tables.events, "a b.jsonl", [event(1), b"rubbish\n", b"\n", event(2)])
    write(tables.events, "deeper/good[1]{x}+%20.jsonl.gz", [event(3)])
    write(tables.events, ".unfinished.jsonl", [event(4)])
    write(tables.events, "other.txt", [event(5)])
    write(tables.events, "bytes.jsonl", [GOOD.replace(b"acme", b"ac\xffme") + b"\n", event(6)])
    taken = tables.take_events()
    assert (taken.files, taken.lines, taken.events, taken.bad) == (3, 7, 4, 2)
    assert [tuple(row.values()) for row in tables.rows("quarantine")] == [
        (str(tables.events / "a b.jsonl"), "rubbish", "not a JSON object"),
        (str(tables.events / "bytes.jsonl"), GOOD.decode().replace("acme", "ac�me"), "not UTF-8"),
    ]


def test_event_values_are_kept_as_they_were_written(tables: Tables) -> None:
    odd = {"userAgent": "ünïcode \U0001f600 \x01", "tenant": "\ud800", "status": None, "durationMs": 0.1 + 0.2}
    write(tables.events, "a.jsonl", [event(1, 0.123456, **odd)])
    tables.take_events()
    [row] = tables.rows("events")
    assert row["time"].timestamp() == 1794819600.123456
    assert (row["id"], row["status"], row["hit"], row["duration_ms"]) == (f"{1:032x}", None, True, 0.1 + 0.2)
    assert (row["user_agent"], row["tenant"]) == ("ünïcode \U0001f600 \x01", "?")
    assert (str(row["date"]), row["hour"]) == ("2026-11-16", 9)


def torn(folder: Path, name: str, count: int) -> int:
    """A gzip file of which half is there; returns how many of its lines are whole."""
    data = write(folder, name, (event(number) for number in range(count))).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    return zlib.decompressobj(31).decompress(data[: len(data) // 2]).count(b"\n")


def test_truncated_files_give_their_whole_lines_and_missing_files_are_taken_later(
    tables: Tables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torn(tables.events, "torn.jsonl.gz", 3000)
    write(tables.events, "good.jsonl.gz", [event(90_000)])
    (tables.events / "rubbish.jsonl.gz").write_bytes(b"this is no gzip\n")
    (tables.events / "empty.jsonl.gz").write_bytes(b"")
    write(tables.events, "gone.jsonl", [event(20_000)])
    listed = Storage.files

    def vanishing(storage: Storage, endings: tuple[str, ...] = ("",)) -> list[File]:
        found = listed(storage, endings)
        (tables.events / "gone.jsonl").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Storage, "files", vanishing)
    with caplog.at_level(logging.WARNING, "pipeline"):
        taken = tables.take_events()
    assert 0 < whole < 3000
    assert (taken.files, taken.events) == (4, whole + 1)
    assert f"{tables.events}/gone.jsonl: the file is gone; it is ingested when it is back" in caplog.messages
    reasons = {Path(row["file"]).name: row["reason"] for row in tables.rows("quarantine") if not row["line_text"]}
    assert set(reasons) == {"torn.jsonl.gz", "rubbish.jsonl.gz"}
    assert reasons["torn.jsonl.gz"] == "gzip breaks off: the rest of the file is lost"
    monkeypatch.undo()
    write(tables.events, "gone.jsonl", [event(20_000)])
    assert tables.take_events().events == 1


def changed(**changes: object) -> bytes:
    return line(event(**changes)).strip()  # type: ignore[arg-type]


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in event().items() if key != name}).encode()


OTHER_TYPE = "a value of another type than the schema's"

LINES: list[tuple[bytes, str | None]] = [
    (GOOD, None),
    (json.dumps(event(), indent=None, separators=(", ", ": ")).encode(), None),
    (GOOD + b"\r", None),
    (b"  " + GOOD + b"  ", None),
    (changed(schema=2, newField={"nested": ["}{"]}), None),
    (changed(userAgent='quoted "time": 7, {braces} \\ and }{'), None),
    (changed(host="[::1]:8080"), None),
    (changed(id="12345"), None),
    (changed(host="10.0.0.1", tenant="true", namespace="{}"), None),
    (changed(durationMs=3), None),
    (changed(time="2026-11-16T11:00:00+02:00"), None),
    (changed(time="2026-11-16T09:00:00Z"), None),
    (without("schema"), None),
    (without("kind"), None),
    (b"", ""),
    (b"   ", ""),
    (without("id"), "no id"),
    (without("time"), "no time"),
    (changed(id=None), "no id"),
    (changed(time="yesterday"), "time is not RFC 3339"),
    (changed(time="2026"), "time is not RFC 3339"),
    (changed(time="2026-11-16"), "time is not RFC 3339"),
    (changed(time="2026-02-30T09:00:00Z"), "time is not RFC 3339"),
    (changed(time="2026-11-16T09:00:00"), "time is not RFC 3339"),
    (changed(id=7), OTHER_TYPE),
    (changed(host={"a": 1}), OTHER_TYPE),
    (changed(tenant=True), OTHER_TYPE),
    (changed(topic=["a"]), OTHER_TYPE),
    (changed(status="200"), OTHER_TYPE),
    (changed(status=1.5), OTHER_TYPE),
    (changed(hit="true"), OTHER_TYPE),
    (changed(hops=10**20), OTHER_TYPE),
    (changed(durationMs="NaN"), OTHER_TYPE),
    (GOOD[:-20], "not a JSON object"),
    (b"not JSON", "not a JSON object"),
    (b"[" + GOOD + b"]", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b"5", "not a JSON object"),
    (GOOD.replace(b'"', b"'"), "not a JSON object"),
    (GOOD.replace(b":1.5", b":NaN"), "not a JSON object"),
    (GOOD.replace(b"acme", b"ac\x00me"), "not a JSON object"),
    (GOOD + GOOD, "more than one JSON object"),
    (GOOD + b" rubbish", "more than one JSON object"),
    (GOOD.replace(b"acme", b"ac\xff\xfeme"), "not UTF-8"),
    (b"\x80\x81\x82", "not UTF-8"),
]


@pytest.mark.parametrize(("text", "reason"), LINES)
def test_line_is_an_event_or_has_a_reason_why_not(text: bytes, reason: str | None) -> None:
    read = read_line(text)
    assert (read if isinstance(read, str) else None) == reason
