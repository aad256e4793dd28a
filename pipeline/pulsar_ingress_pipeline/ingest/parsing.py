"""Parses blocks of JSON lines into Arrow tables. Spark's executors run this, but it does not use Spark.

`read_line` defines what a valid line is: it is a strict parser of a single line, and takes 30 µs for each. So blocks of
lines are parsed at once where the result is certain to be the same: by their columns (`columns`), or else by Arrow's
JSON parser. A block that contains anything unusual is split in halves until few lines are left, which are then parsed
one by one.
"""

import json
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.ingest import columns as by_columns
from pulsar_ingress_pipeline.ingest.lines import Lines
from pulsar_ingress_pipeline.schema import ROWS, TIME, TYPES
from pulsar_ingress_proxy.observability.event_schema import FIELDS, SCHEMA_VERSION

NOT_TEXT, NOT_OBJECT, MORE = "not UTF-8", "not a JSON object", "more than one JSON object"
OTHER_TYPE, NO_ID, NO_TIME = "a value of another type than the schema's", "no id", "no time"
NO_MOMENT = "time is not RFC 3339"

_JSON = pa.schema([(field.name, TYPES[field.type]) for field in FIELDS])
CODED = pa.dictionary(pa.int32(), pa.string())
EVENTS = pa.schema(
    [(field.name, CODED if field.type == pa.string() and field.name != "id" else field.type) for field in ROWS]
)
"""A row of `events`. Texts repeat often, so all but ids are dictionary-encoded."""

_ALONE = 16
"""A block of this many lines is parsed line by line instead of split."""
_DEEP = 200
"""The deepest nesting that is valid: the parsers have different limits of their own."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
# RFC 3339 5.6.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):\d\d)", re.ASCII)
_USUAL = b"0000-00-00T00:00:00.000000Z"
_MARKS = [place for place, mark in enumerate(_USUAL) if mark != ord("0")]
_HALVES = (b"\\ud", b"\\uD")
"""Possibly half of a surrogate pair, which Arrow accepts."""
_NUMBERS = [field.name for field in FIELDS if field.type == "number"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = range(-(1 << 63), 1 << 63)

Row = dict[str, Any]


@dataclass(slots=True)
class Parsed:
    """The events of lines, in their order, and the lines that are not events."""

    pieces: list[pa.Table] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Positions of lines that are not events, with the reason. It is empty for a blank line, which is ignored."""

    @property
    def events(self) -> pa.Table:
        return pa.concat_tables(self.pieces) if self.pieces else EVENTS.empty_table()

    @property
    def newer(self) -> int:
        """How many events have a newer schema than this pipeline knows."""
        return sum(int(pc.sum(pc.greater(piece["schema"], SCHEMA_VERSION)).as_py() or 0) for piece in self.pieces)


def parse(lines: Lines, start: int = 0) -> Parsed:
    """`start` is the position of the first line."""
    if not lines.data:
        return Parsed()
    if (table := _at_once(lines)) is not None:
        return Parsed([table])
    if len(lines) <= _ALONE:
        return _one_by_one(lines, start)
    first, second = lines.halves()
    one, other = parse(first, start), parse(second, start + len(first))
    return Parsed(one.pieces + other.pieces, one.bad + other.bad)


def _at_once(lines: Lines) -> pa.Table | None:
    """The rows of a block, one for each line; None unless every line is an event as sidecars write it."""
    data = lines.data
    if not (data.isascii() or is_text(data)):
        return None
    found = by_columns.columns(data) or _by_json(lines)
    if found is None:
        return None
    fields = dict(zip(_JSON.names, found, strict=True))
    if fields["id"].null_count or fields["time"].null_count:
        return None
    times = _moments(fields["time"])
    if times is None or not all(pc.all(pc.is_finite(fields[name])).as_py() is not False for name in _NUMBERS):
        return None
    columns = [
        times if name == "time" else column.dictionary_encode() if type_ == CODED else column
        for (name, column), type_ in zip(fields.items(), EVENTS.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS)


def _by_json(lines: Lines) -> list[pa.Array] | None:
    """The fields as parsed by Arrow's JSON parser; None if it cannot, or may accept what `read_line` rejects."""
    data, count = lines.data, len(lines)
    if not lines.are_braced or any(half in data for half in _HALVES):
        return None
    table = _read(data, "error")
    # A field of a newer schema is ignored, and must not be NaN, Infinity, or nested too deep.
    if table is None and not (b"NaN" in data or b"Inf" in data or data.count(b"{") + data.count(b"[") > count + _DEEP):
        table = _read(data, "ignore")
    return [column.combine_chunks() for column in table.columns] if table is not None and len(table) == count else None


def _read(data: bytes, unknown: str) -> pa.Table | None:
    try:
        return pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=_JSON, unexpected_field_behavior=unknown),
        )
    except pa.ArrowInvalid:
        return None


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _moments(times: pa.StringArray) -> pa.Array | None:
    """Times in the format that sidecars write; None if any is in another format or invalid."""
    _, _, data = times.buffers()
    size = len(_USUAL)
    if pc.min_max(pc.binary_length(times)).as_py() != {"min": size, "max": size}:
        return None
    first = times.offset * size
    marks = np.frombuffer(data, np.uint8)[first : first + len(times) * size].reshape(-1, size)[:, _MARKS]
    if (marks != np.frombuffer(_USUAL, np.uint8)[_MARKS]).any():
        return None
    try:
        moments = times.cast(TIME)
    except pa.ArrowInvalid:
        return None
    return moments if pc.min(moments).as_py() >= _EPOCH else None


def _one_by_one(lines: Lines, start: int) -> Parsed:
    read = [read_line(line) for line in lines]
    rows = [row for row in read if not isinstance(row, str)]
    arrays = [
        pa.array([row.get(field.name) for row in rows], pa.string() if type_ == CODED else type_).cast(type_)
        for field, type_ in zip(FIELDS, EVENTS.types, strict=True)
    ]
    bad = [(place, reason) for place, reason in enumerate(read, start) if isinstance(reason, str)]
    return Parsed([pa.Table.from_arrays(arrays, schema=EVENTS)] if rows else [], bad)


def read_line(line: bytes) -> Row | str:
    """An event by the schema's field names, with its time in microseconds since 1970; or why it is not an event."""
    line = line.strip(b" \t\r\n")
    if not line:
        return ""
    if not is_text(line):
        return NOT_TEXT
    text = line.decode()
    if _is_too_deep(text):
        return NOT_OBJECT
    try:
        found, end = _DECODER.raw_decode(text)
    except ValueError:
        return NOT_OBJECT
    if not isinstance(found, dict):
        return NOT_OBJECT
    if text[end:].strip(" \t\r"):
        return MORE
    return _typed(found)


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEEP:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1 if bracket in "]}" else 0
        if depth > _DEEP:
            return True
    return False


def _typed(found: Row) -> Row | str:
    row: Row = {}
    for field_ in FIELDS:
        value = found.get(field_.name)
        if value is None:
            continue
        match field_.type:
            case "string" if isinstance(value, str):
                row[field_.name] = value.encode("utf-8", "replace").decode()
            case "boolean" if isinstance(value, bool):
                row[field_.name] = value
            case "integer" if isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS:
                row[field_.name] = value
            case "number" if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                row[field_.name] = float(value)
            case _:
                return OTHER_TYPE
    if "id" not in row:
        return NO_ID
    if "time" not in row:
        return NO_TIME
    moment = _moment(row["time"])
    return NO_MOMENT if moment is None else row | {"time": moment}


def _moment(text: str) -> int | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        # Its year in UTC may be out of range.
        return (datetime.fromisoformat(text).astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _integer(digits: str) -> int | float:
    """Python refuses to parse integers of thousands of digits, and no field of the schema has such values."""
    return int(digits) if len(digits) < 300 else float(digits)


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_int=_integer)
