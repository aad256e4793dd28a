"""Events made for tests, files of them, and tables of these."""

import gzip
import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pulsar_ingress_pipeline.ingest.batches import Ingest, Taken
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.schema import EVENTS, snake
from pulsar_ingress_pipeline.tables import DERIVED, Table
from pulsar_ingress_pipeline.tables.derivation import Derivation

START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)

Event = dict[str, Any]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(number: int = 0, seconds: float = 0, **changes: Any) -> Event:
    """A lookup that came through the public ingress and was answered."""
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


FEW = ("listener_windows", "misses", "namespaces", "owner_changes")
"""Of each kind one: by hour, by day, of all time, and with a share that is not the table."""


class Tables:
    """A folder of tables, and the events' folder that they are made of."""

    def __init__(self, spark: SparkSession, events: Path, tables: Path, names: Collection[str] = FEW) -> None:
        """Only tables with these names are derived."""
        self._spark, self.events, self.folder = spark, events, tables
        self.events.mkdir(parents=True, exist_ok=True)
        self._source, self._tables = Storage.of(str(events)), Storage.of(str(tables))
        self._derived: tuple[Table, ...] = tuple(table for table in DERIVED if table.name in names)

    def take(self) -> tuple[Taken, list[str]]:
        """Ingest new files and derive the tables, as `run` does; gives the hours that were derived."""
        return self.take_events(), self.derive(self.ingest())

    def take_events(self) -> Taken:
        """Ingest new files, and derive no tables, which takes most of the time."""
        ingest = self.ingest()
        present = ingest.present()
        return ingest.take(ingest.new(present), present)

    def ingest(self) -> Ingest:
        return Ingest(self._source, self._tables, lambda: self._spark)

    def derive(self, ingest: Ingest) -> list[str]:
        return Derivation(self._tables, lambda: self._spark, lambda _: None, self._derived).derive(ingest.events)

    def read(self, table: str) -> pa.Table:
        return DeltaTable(str(self.folder / table)).to_pyarrow_table()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Sorted, with nulls as a text that sorts."""
        return sorted(self.read(table).to_pylist(), key=lambda row: [str(value) for value in row.values()])

    def versions(self) -> dict[str, int]:
        """Of all tables."""
        logs = self.folder.rglob("_delta_log")
        return {str(log.parent.relative_to(self.folder)): DeltaTable(str(log.parent)).version() for log in sorted(logs)}

    def files(self, table: str) -> set[str]:
        return set(pa.table(DeltaTable(str(self.folder / table)).get_add_actions(flatten=True))["path"].to_pylist())
