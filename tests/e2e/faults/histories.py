"""What both sides of the sidecar saw: operations of clients, and requests that brokers received.

Every operation has a mark that is like no other. It goes with the request, comes back with the answer, and decides what
a broker answers, so that either side can tell from the mark alone what the other should have said.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

BROKERS = 3
INSIDE = ".svc.cluster.local"
DOMAINS = {"external": "pulsar.example.com", "partner": "pulsar.example.org"}
"""The domain of brokers' addresses, by listener."""
OWN_REFUSALS = frozenset({400, 403, 404, 408, 413, 431, 500, 502, 503, 504})
"""Statuses with which the sidecar answers itself."""


@dataclass(slots=True)
class Operation:
    """One request of a client, and what came of it."""

    mark: str
    protocol: str
    kind: str
    """lookup, admin, metadata or message."""
    method: str
    listener: str
    """The one it has to leave with; empty: it has to be refused."""
    began: float
    broker: int | None = None
    """The only one that it may reach."""
    sent: str = ""
    """The sum of its body."""
    ended: float = 0.0
    outcome: str = "begun"
    """answered; cut: the connection ended before the answer did; silent: the client has given up; unconnected, or
    refused at CONNECT: it was not sent."""
    status: int = 0
    """Over the binary protocol 200, 307 for a redirect, and 0 for a failure."""
    reason: str = ""
    """The code with which the sidecar refused it."""
    id: str = ""
    """X-Request-Id of the answer."""
    answer_mark: str = ""
    answer_sum: str = ""
    addresses: tuple[str, ...] = ()
    """All URLs in the answer."""
    names_inside: bool = False
    fault: str = ""
    """What was wrong with the answer by itself."""

    @property
    def is_normal(self) -> bool:
        """As it would be answered without a fault."""
        if not self.listener:
            return self.outcome == "answered" and bool(self.reason)
        return self.outcome == "answered" and not self.reason and self.status in (200, 307)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A request that a broker received whole."""

    mark: str
    broker: int
    protocol: str
    kind: str
    method: str
    listeners: tuple[str, ...]
    """All listeners that it was tagged with."""
    received: str
    """The sum of its body."""
    authorization: str = ""
    answered: str | None = None
    """The sum of the answer's body; None: no whole answer was sent."""


def write(receipt: Receipt) -> bytes:
    return json.dumps(asdict(receipt)).encode() + b"\n"


def receipts(logs: list[Path]) -> Iterator[Receipt]:
    """What brokers wrote; the last line of one that was killed may be cut short."""
    for log in logs:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                fields = json.loads(line)
                yield Receipt(**{**fields, "listeners": tuple(fields["listeners"])})


def checksum(body: bytes) -> str:
    return f"{len(body)}-{crc32(body):08x}"


def number_of(mark: str) -> int:
    return crc32(mark.encode())


def owner(mark: str) -> int:
    """The broker that owns the topic of that mark."""
    return number_of(mark) % BROKERS


def redirects(mark: str, at: int) -> bool:
    """Whether a broker redirects it to the owner, instead of naming the owner."""
    return at != owner(mark) and number_of(mark) >> 8 & 1 == 1


def partitions(mark: str) -> int:
    return number_of(mark) & 0xFFFF


def inside(broker: int) -> str:
    return f"pulsar-broker-{broker}.pulsar-broker.pulsar{INSIDE}"


def outside(listener: str, broker: int) -> frozenset[str]:
    """A broker's addresses on a listener."""
    host = f"broker-{broker}.{DOMAINS[listener]}"
    return frozenset({f"http://{host}", f"https://{host}", f"pulsar://{host}:6650", f"pulsar+ssl://{host}:6651"})
