"""Events made for tests, files of them, and tables of these."""

import gzip
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pulsar_ingress_pipeline.absorbing import Absorbed, Absorbing, is_event_file
from pulsar_ingress_pipeline.commits import Commits, Draft
from pulsar_ingress_pipeline.schema import EVENTS, snake
from pulsar_ingress_pipeline.storage import File, Storage

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)

Event = dict[str, Any]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(number: int = 0, seconds: float = 0, **changes: Any) -> Event:
    """A lookup that came through the public door and was answered."""
    made: Event = {
        "schema": 1,
        "time": at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "id": f"{number:032x}",
        "cluster": "pulsar",
        "sidecar": "gateway-0",
        "generation": 7,
        "protocol": "http",
        "kind": "lookup",
        "method": "GET",
        "scheme": "https",
        "ingress": "public",
        "bind": "0.0.0.0:8443",
        "host": "pulsar.example.com",
        "forwardedHost": None,
        "serverName": None,
        "listener": "external",
        "rule": "ingress",
        "hit": True,
        "missReason": None,
        "clientNamed": None,
        "clientNamedBy": None,
        "tenant": "acme",
        "namespace": "orders",
        "topic": "persistent://acme/orders/paid",
        "broker": "broker-0:8080",
        "status": 200,
        "redirectAction": None,
        "redirectFrom": None,
        "redirectTo": None,
        "hops": 0,
        "leak": None,
        "durationMs": 1.5,
        "upstreamMs": 1.25,
        "requestBytes": 0,
        "responseBytes": 254,
        "clientClass": "private",
        "userAgent": "Pulsar-Java-v4.0.1",
    }
    return made | changes


MISS: Event = {"hit": False, "listener": None, "ingress": None, "rule": "none", "missReason": "no-rule"}


def line(made: Event) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode() + b"\n"


def write(folder: Path, name: str, lines: Iterable[bytes | Event]) -> Path:
    """A finished file, compressed if its name says so."""
    data = b"".join(entry if isinstance(entry, bytes) else line(entry) for entry in lines)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    return path


def frame(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    """Rows of `events`, as they are read from a file."""
    rows = []
    for made in events:
        values = {snake(name): value for name, value in made.items()}
        values["time"] = datetime.fromisoformat(values["time"])
        rows.append(tuple(values[name] for name in EVENTS.names))
    return spark.createDataFrame(rows, EVENTS)


class Tables:
    """A folder of tables, and the events' folder that they are made of."""

    def __init__(self, spark: SparkSession, events: Path, tables: Path) -> None:
        self._spark, self.events, self.folder = spark, events, tables
        self.events.mkdir(parents=True, exist_ok=True)
        self._source, self._tables = Storage(spark, str(events)), Storage(spark, str(tables))

    def absorb(self, span: tuple[datetime, datetime] | None = None) -> Absorbed:
        """Take what is new, as `run` does in a process of its own."""
        commits = Commits(self._tables)
        commits.recover()
        present = [file for file in self._source.tree() if is_event_file(file)]
        files = commits.new(present) if span is None else present
        absorbing = Absorbing(self._spark, self._source, self._tables, commits, lambda _: None)
        draft, absorbed = absorbing.absorb(files, span)
        commits.commit(draft, present)
        return absorbed

    def draft(self) -> tuple[Draft, list[File]]:
        """The commit that would take what is new, worked out and not made; and the files that are there."""
        commits = Commits(self._tables)
        commits.recover()
        present = [file for file in self._source.tree() if is_event_file(file)]
        absorbing = Absorbing(self._spark, self._source, self._tables, commits, lambda _: None)
        return absorbing.absorb(commits.new(present))[0], present

    def read(self, table: str) -> DataFrame:
        return self._spark.read.parquet(str(self.folder / table))

    def rows(self, table: str) -> list[Row]:
        """Sorted, with nulls as a text that sorts."""
        return sorted(self.read(table).collect(), key=lambda row: [str(value) for value in row])

    def listing(self, table: str = "") -> dict[str, int]:
        """Every file below, with its number on the disk, which a file that is written again does not keep."""
        root = self.folder / table
        return {
            str(path.relative_to(root)): path.stat().st_ino
            for path in root.rglob("*")
            if path.is_file() and "_commits" not in path.parts
        }
