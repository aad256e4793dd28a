"""Lines exactly as this version's sidecars write them, read by their columns: a third of what parsing JSON costs.

Such a line has all fields of the schema in its order, nothing between them, and no escapes. So commas divide a block of
lines into columns, whose values all begin with the same name. What is in a column is then held to JSON's grammar, each
text once however often it comes. Anything else, a comma in a text too, is left to whoever parses JSON.
"""

import re

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pv  # type: ignore[import-untyped]

from proxy.observe.schema import FIELDS, Field

_CODED = pa.dictionary(pa.int32(), pa.string())
_TEXT = r'"[^"\x00-\x1f]*"'
_WORDS = {
    "string": _TEXT,
    "integer": r"-?(?:0|[1-9][0-9]{0,17})",
    "number": r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?",
    "boolean": "true|false",
}
_QUOTE = ord('"')
_TYPES = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def _head(place: int, field: Field) -> str:
    return f'{"" if place else "{"}"{field.name}":'


_HEADS = {field.name: _head(place, field) for place, field in enumerate(FIELDS)}
_END = {FIELDS[-1].name: "}"}
_GRAMMARS = {
    field.name: f"^{re.escape(_HEADS[field.name])}(?:{_WORDS[field.type]}"
    f"{'' if field.name in ('id', 'time') else '|null'}){re.escape(_END.get(field.name, ''))}$"
    for field in FIELDS
}
_ALONE = {field.name for field in FIELDS if field.name in ("id", "time") or field.type == "number"}
"""Fields whose values hardly come twice."""

_READ = pv.ConvertOptions(
    column_types={field.name: pa.string() if field.name in _ALONE else _CODED for field in FIELDS},
    strings_can_be_null=False,
    check_utf8=False,
)
_PARSE = pv.ParseOptions(quote_char=False, escape_char=False)
BLOCK = 1 << 20
"""Bytes that Arrow cuts into columns at once: what a processor's cache holds takes half the time."""


def columns(data: bytes, count: int) -> list[pa.Array] | None:
    """The fields of a block of lines of UTF-8, `time` as text; None where a line is not exactly as a sidecar's."""
    # Arrow takes \r for the end of a line, too, and leaves out a mark of UTF-8 at the beginning.
    if b"\\" in data or b"\r" in data or not data.startswith(b"{"):
        return None
    options = pv.ReadOptions(column_names=list(_HEADS), use_threads=False, block_size=BLOCK)
    try:
        table = pv.read_csv(pa.BufferReader(data), read_options=options, parse_options=_PARSE, convert_options=_READ)
    except pa.ArrowInvalid:
        return None
    if len(table) != count:
        return None
    found = []
    for field in FIELDS:
        column = table[field.name].combine_chunks()
        made = _alone(column, field) if field.name in _ALONE else _coded(column, field)
        if made is None:
            return None
        found.append(made)
    return found


def _coded(column: pa.DictionaryArray, field: Field) -> pa.Array | None:
    head, end, words = _HEADS[field.name], _END.get(field.name, ""), column.dictionary
    if not pc.all(pc.match_substring_regex(words, _GRAMMARS[field.name])).as_py():
        return None
    if field.type == "string":
        texts = pc.utf8_slice_codeunits(words, len(head) + 1, -1 - len(end))
        return _without(pc.index(words, f"{head}null{end}").as_py(), column.indices, texts)
    return _or_null(pc.utf8_slice_codeunits(words, len(head), -len(end) or None), field).take(column.indices)


def _without(place: int, indices: pa.Array, texts: pa.StringArray) -> pa.DictionaryArray:
    """With null for the text of a place, if it is any, which then is none of the dictionary's."""
    if place < 0:
        return pa.DictionaryArray.from_arrays(indices, texts)
    found = indices.to_numpy()
    shifted = np.where(found > place, found - 1, found).astype(np.int32)
    others = pa.concat_arrays([texts[:place], texts[place + 1 :]])
    return pa.DictionaryArray.from_arrays(pa.array(shifted, mask=found == place), others)


def _alone(column: pa.StringArray, field: Field) -> pa.Array | None:
    head = _HEADS[field.name]
    if field.type == "string" and (found := _alike(column, head.encode() + b'"')) is not None:
        return found
    if not pc.all(pc.match_substring_regex(column, _GRAMMARS[field.name])).as_py():
        return None
    quote = 0 if field.type == "number" else 1
    values = pc.utf8_slice_codeunits(column, len(head) + quote, -quote or None)
    return values if field.type != "number" else _or_null(values, field)


def _alike(column: pa.StringArray, head: bytes) -> pa.StringArray | None:
    """The texts of a column whose values are all of one length, as ids and times are; None where these are not."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    first, size = int(offsets[0]), int(offsets[1] - offsets[0])
    if size <= len(head) or (np.diff(offsets) != size).any():
        return None
    rows = np.frombuffer(data, np.uint8)[first : first + size * len(column)].reshape(-1, size)
    texts = np.ascontiguousarray(rows[:, len(head) : -1])
    is_good = (rows[:, : len(head)] == np.frombuffer(head, np.uint8)).all() and (rows[:, -1] == _QUOTE).all()
    if not is_good or (texts == _QUOTE).any() or (texts < ord(" ")).any():
        return None
    places = np.arange(len(column) + 1, dtype=np.int32) * np.int32(texts.shape[1])
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(places), pa.py_buffer(texts))


def _or_null(words: pa.StringArray, field: Field) -> pa.Array:
    return pc.if_else(pc.equal(words, "null"), pa.scalar(None, pa.string()), words).cast(_TYPES[field.type])
