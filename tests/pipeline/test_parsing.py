"""Blocks are read as their lines are, one by one; rows are packed by hour, sorted, each event once."""

import json
import sys

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_events import Event, event, line

from pulsar_ingress_pipeline.ingest import columns, event_files, parsing
from pulsar_ingress_pipeline.ingest.lines import Lines
from pulsar_ingress_pipeline.ingest.parsing import Parsed, parse, read_line
from pulsar_ingress_pipeline.lake.storage import as_parquet
from pulsar_ingress_pipeline.schema import ROWS, snake
from pulsar_ingress_proxy.observability.event_schema import FIELDS

GOOD = line(event()).strip()

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["2026-11-16T09:00:00.123456Z", "2026-11-16T09:00:00+02:00", "1969-12-31T23:59:59.000000Z"]),
    st.sampled_from(["2026-02-30T09:00:00.000000Z", "2026-11-16 09:00:00.000000Z", "\ud800", "ünï\U0001f600"]),
    st.recursive(st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner), max_leaves=4),
)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """An event with a few fields changed, dropped or added, written in one of several ways."""
    made: Event = event(draw(st.integers(0, 99)))
    names = st.sampled_from([*made, "newField"])
    made |= draw(st.dictionaries(names, values, max_size=2))
    for name in draw(st.lists(names, max_size=1)):
        made.pop(name, None)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(made, separators=separators, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


odd = st.sampled_from(
    [
        b"", b"  ", b"{}", b"[]", b"null", b"{", b"}", b"{}{}", b'{"id":1}', b"\xff", GOOD + b"\r", b" " + GOOD,
        GOOD + GOOD, GOOD[:-1], GOOD[1:], GOOD[:40], b"}" + GOOD, GOOD + b"{", GOOD.replace(b"1.5", b"1e999"),
        GOOD.replace(b"1.5", b"-0"), GOOD.replace(b"1.5", b"01"), GOOD.replace(b"1.5", b"NaN"),
        GOOD.replace(b'"status":200', b'"status":2e2'), GOOD.replace(b'"status":200', b'"status":-0'),
        GOOD.replace(b'"status"', b'"id":"b","status"'), GOOD.replace(b'"id"', b'"\\u0069d"'),
        GOOD.replace(b"acme", b"a\\udc00e"), GOOD.replace(b"acme", b"a\\ud83d\\ude00e"), GOOD.replace(b"acme", b"a\te"),
        GOOD.replace(b"acme", b"a\\u0000e"), GOOD.replace(b"}", b',"deep":' + b"[" * 300 + b"]" * 300 + b"}"),
        GOOD.replace(b"}", b',"deep":' + b"[" * 99_999), GOOD.replace(b":200", b":" + b"9" * 5000),
        GOOD.replace(b"}", b',"newer":[-Infinity]}'), b"\xef\xbb\xbf" + GOOD,
    ]
)  # fmt: skip


def lines_of(lines: list[bytes]) -> Lines:
    return Lines(b"".join(text + b"\n" for text in lines))


def rows(parsed: Parsed) -> list[dict[str, object]]:
    table = parsed.events
    micros = table.set_column(1, "time", table["time"].cast(pa.int64()))
    found: list[dict[str, object]] = micros.to_pylist()
    return found


@settings(max_examples=150)
@given(st.lists(st.one_of(st.just(GOOD), changed(), odd), min_size=1, max_size=60))
@example([GOOD] * 100)
@example([GOOD.replace(b"acme", b"\xc3\x28")])
def test_block_parses_to_the_same_events_as_its_single_lines(lines: list[bytes]) -> None:
    parsed = parse(lines_of(lines))
    alone = [read_line(line) for line in lines]
    assert parsed.bad == [(place, read) for place, read in enumerate(alone) if isinstance(read, str)]
    nothing = {snake(field.name): None for field in FIELDS}
    expected = [
        nothing | {snake(key): value for key, value in read.items()} for read in alone if isinstance(read, dict)
    ]
    assert rows(parsed) == expected
    for piece in parsed.pieces:
        piece.validate(full=True)


def test_usual_lines_are_parsed_in_bulk_without_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand lines with a few bad ones: nearly all of them without the slow parser."""
    lines = [line(event(number)).strip() for number in range(1000)]
    lines[100], lines[500] = b"rubbish", GOOD.replace(b"acme", b"\xff")
    slowly: list[bytes] = []

    def counted(line: bytes) -> object:
        slowly.append(line)
        return read_line(line)

    monkeypatch.setattr(parsing, "read_line", counted)
    parsed = parse(lines_of(lines))
    assert [place for place, _ in parsed.bad] == [100, 500]
    assert len(parsed.events) == 998
    assert len(slowly) <= 32


def test_block_scanned_in_several_pieces_parses_to_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separators are looked for in one piece after the other."""
    monkeypatch.setattr(columns, "PIECE", 100)
    lines = [line(event(number, topic=f"topic-{number // 2}")).strip() for number in range(100)]
    lines[50] = lines[50].replace(b'"acme"', b"null")
    parsed = parse(lines_of(lines))
    [piece] = parsed.pieces
    piece.validate(full=True)
    assert [row["topic"] for row in rows(parsed)] == [f"topic-{number // 2}" for number in range(100)]
    assert [row["tenant"] for row in rows(parsed)].count(None) == 1


def test_nesting_beyond_the_recursion_limit_is_not_an_event() -> None:
    deep = GOOD.replace(b"}", b',"deep":' + b"[" * 150 + b"]" * 150 + b"}")
    assert parse(lines_of([deep] * 40)).bad == []
    deeper = GOOD.replace(b"}", b',"deep":' + b"[" * sys.getrecursionlimit() + b"]" * sys.getrecursionlimit() + b"}")
    assert parse(lines_of([GOOD, deeper])).bad == [(1, parsing.NOT_OBJECT)]


def test_rows_are_packed_by_hour_and_sorted() -> None:
    made = [
        event(number, seconds, kind=kind, ingress=ingress)
        for number, (seconds, kind, ingress) in enumerate(
            [
                (3600, "lookup", "b"), (2, "lookup", "b"), (1, "lookup", "b"), (3, "lookup", None), (4, "admin", "z"),
                (3599.999999, "lookup", "a"), (-1, "lookup", "a"),
            ]
        )
    ]  # fmt: skip
    hours = event_files.Hours()
    for place in range(0, len(made), 2):
        hours.add(parse(Lines(b"".join(line(one) for one in made[place : place + 2]))).events)
    files = {hour: pq.read_table(pa.BufferReader(as_parquet(rows))) for hour, rows in hours.packed()}
    ids = {hour: [int(id_, 16) for id_ in rows["id"].to_pylist()] for hour, rows in files.items()}
    assert ids == {"2026-11-16T08": [6], "2026-11-16T09": [4, 3, 5, 2, 1], "2026-11-16T10": [0]}
    assert list(hours.packed()) == []
    assert all(rows.schema.equals(ROWS) for rows in files.values())


def test_of_rows_with_the_same_id_and_time_the_first_is_kept() -> None:
    made = [event(1, 5, broker="first"), event(2, 5), event(1, 5, broker="copy"), event(1, 6, broker="later")]
    hours = event_files.Hours()
    hours.add(parse(Lines(b"".join(map(line, made)))).events)
    [(_, rows)] = list(hours.packed())
    assert sorted(zip(rows["id"].to_pylist(), rows["broker"].to_pylist(), strict=True)) == [
        (f"{1:032x}", "first"), (f"{1:032x}", "later"), (f"{2:032x}", "broker-0:8080"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (GOOD.replace(b"1.5", b"1e999"), parsing.OTHER_TYPE),
        (GOOD.replace(b"1.25", b"-1" + b"0" * 400), parsing.OTHER_TYPE),
        (line(event(time="9999-12-31T23:59:59-05:00")), parsing.NO_MOMENT),
        (line(event(time="0001-01-01T00:00:00+05:00")), parsing.NO_MOMENT),
    ],
)
def test_numbers_and_times_out_of_range_are_not_events(line: bytes, why: str) -> None:
    assert read_line(line) == why
