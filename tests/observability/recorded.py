"""Finished requests to be written, an event log that counts, and what a reader finds in its folder."""

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pulsar_ingress_proxy.config.model import Events
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recent import Recent
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_address

PUBLIC = Ingress("public", ("pulsar.example.com",), "external")
HOST = Authority("pulsar.example.com", 8443)
LOOKUP = Target("lookup", "lookup", "acme", "orders", "persistent://acme/orders/paid")

SECONDS = 10.0
"""More than anything here takes; a test that needs it all has failed."""


def lookup(number: int = 0, **changes: Any) -> AccessRecord:
    """A lookup that came through the public ingress and was answered."""
    values: dict[str, Any] = {
        "id": f"{number:032x}",
        "time": 1_763_294_400.123456,
        "generation": 7,
        "method": "GET",
        "bind": "0.0.0.0:8443",
        "peer": parse_address("10.1.2.3"),
        "user_agent": b"Pulsar-Java-v4.0.1",
        "target": LOOKUP,
        "request": Request(LOOKUP, HOST, None, "https"),
        "selection": Selection(PUBLIC, "external", "ingress"),
        "listener": "external",
        "status": 200,
        "broker": "pulsar-broker-2:8080",
        "duration": 0.0012345678,
        "upstream_duration": 0.00098765,
        "response_bytes": 254,
    }
    return AccessRecord(**(values | changes))


def line(record: AccessRecord, cluster: str = "pulsar", sidecar: str = "gateway-7f9c-abcde") -> str:
    """The event of a finished request as it is written."""
    recent = Recent()
    Recorder(Metrics("pulsar"), None, recent, cluster, sidecar).record(record)
    return recent.after(0)[0].line


def event(record: AccessRecord, cluster: str = "pulsar", sidecar: str = "gateway-7f9c-abcde") -> dict[str, Any]:
    """The event as a reader finds it."""
    found: dict[str, Any] = json.loads(line(record, cluster, sidecar))
    return found


class Clock:
    """A time that only the test moves."""

    def __init__(self, now: float = 1_763_294_400.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Counted:
    """An event log and what it said of its events."""

    def __init__(
        self,
        folder: Path,
        sidecar: str = "gateway-7f9c-abcde",
        clock: Callable[[], float] | None = None,
        room: int = 16384,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.added = 0
        self.written = 0
        self.has_written = threading.Event()
        self.dropped: Counter[str] = Counter()
        self.log = EventLog(
            Events.model_validate({"path": str(folder), **settings}),
            sidecar,
            self._count_written,
            self._count_dropped,
            clock=clock or Clock(),
            room=room,
        )

    def _count_written(self, count: int) -> None:
        self.written += count
        self.has_written.set()

    def _count_dropped(self, reason: str, count: int) -> None:
        self.dropped[reason] += count

    def add(self, count: int = 1, **changes: Any) -> None:
        for _ in range(count):
            self.log.add(line(lookup(self.added, **changes)))
            self.added += 1

    def flush(self) -> None:
        assert self.log.flush(SECONDS)

    def close(self) -> None:
        assert self.log.close(SECONDS)
        assert self.accounted == self.added

    @property
    def accounted(self) -> int:
        """Every event is written or dropped; what retention removed was written before."""
        return self.written + self.dropped.total() - self.dropped["retention"]


def finished(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def unfinished(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("."))


def lines(path: Path) -> list[bytes]:
    """The lines of a finished file, which ends where a line does."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in finished(folder) for line in lines(path)]


def numbers(folder: Path) -> list[int]:
    """Which of the events that were added are in finished files, in order."""
    return [int(event["id"], 16) for event in events(folder)]
