"""What is an event and what is not, line by line and file by file."""

import gzip
import json
import logging
import zlib
from pathlib import Path

import pytest
from made_events import Tables, event, line, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import batches, reading
from pulsar_ingress_pipeline.batches import fault_of_gzip
from pulsar_ingress_pipeline.storage import Storage

pytestmark = pytest.mark.usefixtures("few_tables")

GOOD = line(event()).strip()


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


def test_each_line_is_an_event_or_has_a_reason_why_not(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [text + b"\n" for text, _ in LINES])
    parsed = reading.parsed(reading.lines(spark, [f"file:{tmp_path}/a.jsonl"])).select("reason").collect()
    shown = [(text, reason) for (text, _), (reason,) in zip(LINES, parsed, strict=True)]
    assert shown == LINES


def test_event_values_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    odd = {"userAgent": "ünïcode \U0001f600 \x01", "tenant": "\ud800", "status": None, "durationMs": 0.1 + 0.2}
    write(tmp_path, "a b+%20[1]{x}.jsonl.gz", [event(1, 0.123456, **odd)])
    files = [file.url for file in Storage(spark, str(tmp_path)).tree()]
    [row] = reading.events(reading.parsed(reading.lines(spark, files))).collect()
    assert row.time.timestamp() == 1794819600.123456
    assert (row.id, row.status, row.hit, row.duration_ms) == (f"{1:032x}", None, True, 0.1 + 0.2)
    assert (row.user_agent, row.tenant) == ("ünïcode \U0001f600 \x01", "?")


def test_bad_line_is_quarantined_with_its_file_and_reason(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    write(tables.events, "a b.jsonl", [event(1), b"rubbish\n", b"\n", event(2)])
    write(tables.events, "deeper/good.jsonl.gz", [event(3)])
    write(tables.events, ".unfinished.jsonl", [event(4)])
    write(tables.events, "other.txt", [event(5)])
    write(tables.events, "bytes.jsonl", [GOOD.replace(b"acme", b"ac\xffme") + b"\n", event(6)])
    absorbed = tables.absorb()
    assert (absorbed.files, absorbed.lines, absorbed.events, absorbed.bad) == (3, 7, 4, 2)
    assert [tuple(row) for row in tables.rows("quarantine")] == [
        (str(tables.events / "a b.jsonl"), "rubbish", "not a JSON object"),
        (str(tables.events / "bytes.jsonl"), GOOD.decode().replace("acme", "ac�me"), "not UTF-8"),
    ]


def torn(folder: Path, name: str, count: int) -> int:
    """A gzip file of which half is there; returns how many of its lines are whole."""
    data = write(folder, name, (event(number) for number in range(count))).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    return zlib.decompressobj(31).decompress(data[: len(data) // 2]).count(b"\n")


def test_truncated_files_give_their_whole_lines_and_are_quarantined(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    whole = torn(tables.events, "torn.jsonl.gz", 3000)
    large = torn(tables.events, "large.jsonl.gz", 30_000) - whole  # of which the first are the same
    monkeypatch.setattr(batches, "LARGE", 100_000)
    write(tables.events, "good.jsonl.gz", [event(90_000)])
    (tables.events / "rubbish.jsonl.gz").write_bytes(b"this is no gzip\n")
    (tables.events / "empty.jsonl.gz").write_bytes(b"")
    write(tables.events, "gone.jsonl", [event(20_000)])
    listed = Storage.tree

    def vanishing(storage: Storage, relative: str = "") -> object:
        found = listed(storage, relative)
        if storage.url.endswith("/events") and not relative:
            (tables.events / "gone.jsonl").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Storage, "tree", vanishing)
    with caplog.at_level(logging.WARNING, "pipeline"):
        absorbed = tables.absorb()
    assert 0 < whole < 3000 < large
    assert absorbed.events == whole + large + 1
    assert absorbed.files == 5
    assert f"{tables.events}/gone.jsonl: is gone; it is taken when it is back" in caplog.messages
    reasons = {Path(row.file).name: row.reason for row in tables.rows("quarantine") if not row.line_text}
    assert set(reasons) == {"torn.jsonl.gz", "large.jsonl.gz", "rubbish.jsonl.gz"}
    assert reasons["torn.jsonl.gz"] == reasons["large.jsonl.gz"] == "gzip breaks off: the rest of the file is lost"
    monkeypatch.undo()
    write(tables.events, "gone.jsonl", [event(20_000)])
    assert tables.absorb().events == 1


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", None),
        (gzip.compress(b"x" * 10_000_000), None),
        (gzip.compress(b"one\n") + gzip.compress(b"two\n"), None),
        (gzip.compress(b"one\n")[:-1], "gzip breaks off"),
        (gzip.compress(b"one\n") + gzip.compress(b"two\n")[:9], "gzip breaks off"),
        (b"plain", "gzip is damaged"),
        (gzip.compress(b"one\n")[:-8] + b"12345678", "gzip is damaged"),
    ],
)
def test_truncated_and_damaged_gzip_data_is_recognized(data: bytes, fault: str | None) -> None:
    found = fault_of_gzip(data)
    assert (found is None) if fault is None else (found is not None and found.startswith(fault))
