"""Small Delta tables: of rows, and of the golden tables, for tests of commands that only read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import write_deltalake

GOLDEN = Path(__file__).parent / "golden"
TEXT, COUNT, NUMBER, TIME, TEXTS = (
    pa.string(),
    pa.int64(),
    pa.float64(),
    pa.timestamp("us", tz="UTC"),
    pa.list_(pa.string()),
)
SEEN = {"first_seen": TIME, "last_seen": TIME}


def texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, TEXT)


def counts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, COUNT)


def put(folder: Path, columns: Mapping[str, pa.DataType], rows: Iterable[Sequence[Any]]) -> None:
    """A table with these rows."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(list(value), kind) for value, kind in zip(values, columns.values(), strict=True)]
    write_deltalake(str(folder), pa.table(arrays, names=list(columns)))


def put_golden(root: Path) -> None:
    """The golden tables."""
    for file in (GOLDEN / "tables").glob("*.jsonl"):
        put_records(root / file.stem, [json.loads(line) for line in file.read_text().splitlines()])


def put_records(folder: Path, records: Sequence[Mapping[str, Any]]) -> None:
    columns = {name: _kind(name, [record[name] for record in records]) for name in records[0]}
    put(folder, columns, [[_value(value, columns[name]) for name, value in record.items()] for record in records])


def _kind(name: str, values: Sequence[Any]) -> pa.DataType:
    if name in ("window_start", *SEEN):
        return TIME
    if name == "date":
        return pa.date32()
    kinds = {float: NUMBER, int: COUNT, list: TEXTS}
    return next((kinds.get(type(value), TEXT) for value in values if value is not None), TEXT)


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str) and kind == TIME:
        return datetime.fromisoformat(value)
    return date.fromisoformat(value) if isinstance(value, str) and kind == pa.date32() else value
