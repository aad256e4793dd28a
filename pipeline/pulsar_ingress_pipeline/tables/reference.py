"""Generates docs/tables.md: `python -m pulsar_ingress_pipeline.tables.reference > docs/tables.md`."""

import sys
from collections.abc import Iterable

from pulsar_ingress_pipeline.schema import EVENTS, snake
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_proxy.observability.event_schema import FIELDS

_HEAD = """# Tables

[The pipeline](pipeline.md) makes these tables. [Query the tables from other engines](lakehouse.md) shows how to read
them.

Each table is a Delta Lake table of its own under `--tables`, in Parquet files with zstd. Times are UTC. A value that an
event does not have is null, also where rows are counted by it. Only events of `kind` lookup count as lookups, hits and
misses. An event counts once by `id` and `time`. `events`, `quarantine` and `files` are written as event files are
ingested; all other tables are derived from `events`. Tables below `_shares/` are intermediate results and may change in
any version. `make docs` generates this page.
"""

_EVENTS_MEANING = "Every event once. New files are sorted by kind, ingress and time; merged ones are not."
_FILES_MEANING = "Which event files were ingested. Files that no longer exist are dropped from it after a while."
_QUARANTINE = (
    ("file", "string", "the file it was in"),
    ("line_text", "string", "the line, with U+FFFD for bytes that are no UTF-8; empty for the rest of a broken file"),
    ("reason", "string", "why it is no event"),
)
_FILES = (
    ("name", "string", "path or URL of the file"),
    ("size", "bigint", "its size in bytes; a file of another size is read again"),
    ("lines", "bigint", "its lines, blank ones included"),
    ("events", "bigint", "lines that are events, copies included"),
    ("bad", "bigint", "rows of `quarantine` that it has"),
    ("version", "bigint", "version of `events` that has its events; of several rows of a file the highest counts"),
)


def reference() -> str:
    fields = [(snake(field.name), EVENTS[snake(field.name)].dataType.simpleString(), field.meaning) for field in FIELDS]
    partitions = [("date", "date", "partition: the day of `time`"), ("hour", "int", "partition: the hour of `time`")]
    parts = [
        _HEAD,
        _section("events", _EVENTS_MEANING, ["id", "time"], fields + partitions),
        _section("quarantine", "Lines of event files that are not events.", [], _QUARANTINE),
        _section("files", _FILES_MEANING, ["name", "version"], _FILES),
    ]
    for table in DERIVED:
        rows = [(field.name, field.type.simpleString(), field.meaning) for field in table.fields]
        parts.append(_section(table.name, table.meaning, [field.name for field in table.keys], rows))
    return "\n".join(parts)


def _section(name: str, meaning: str, keys: list[str], rows: Iterable[tuple[str, str, str]]) -> str:
    grain = f"One row for each {', '.join(f'`{key}`' for key in keys)}." if keys else "One row for each line."
    lines = [f"## {name}", meaning, grain, "", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{column}` | {type_} | {text} |" for column, type_, text in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
