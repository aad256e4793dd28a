"""A sidecar's binary side without sockets: a client and brokers that send frames in pieces, or do not read."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from memory_transport import MemoryTransport, pieces
from words import LOOKUP, body

from pulsar_ingress_proxy.binary.server import BinaryServer
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.pool import BrokerPool, Made
from pulsar_ingress_proxy.net.tls import BrokerTls
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recent import Recent, Sort
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

MODES: dict[str, dict[str, Any]] = {
    "rewrite": {"redirects": {"lookup": "rewrite"}},
    "follow": {"redirects": {"lookup": "follow"}},
    "through": {"ingresses": [{"name": "public", "listener": "external", "throughSidecar": True}]},
}
"""What becomes of a redirect."""


def inner(broker: int) -> str:
    return f"pulsar://broker-{broker}.inner:6650"


def outer(broker: int, scheme: str = "pulsar") -> str:
    return f"{scheme}://broker-{broker}.outer:6650"


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and the rest."""
    frames = []
    while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4])):
        frames.append(data[:size])
        data = data[size:]
    return frames, data


def kind_of(frame: bytes) -> int:
    return frame[9]


class Peer:
    """A peer of the sidecar: what it got, and what it has yet to send."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.received = bytearray()
        self.unsent = b""
        self.sent = b""
        """The beginning of a frame that was not sent whole yet."""
        self.transport = MemoryTransport(protocol, self.received.extend)

    def send(self, *cuts: int) -> list[bytes]:
        """Send the first piece; gives the frames that are whole by that."""
        first, *_ = pieces(self.unsent, cuts)
        self.unsent = self.unsent[len(first) :]
        self.transport.receive(first)
        whole, self.sent = split(self.sent + first)
        return whole

    @property
    def is_connected(self) -> bool:
        return not self.transport.is_closing()

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.is_connected and not self.transport.is_paused


class MemoryBroker(Peer):
    """A connection that the sidecar made to a broker."""

    def __init__(self, url: str, protocol: asyncio.Protocol) -> None:
        super().__init__(protocol)
        self.url = url
        self.answered: set[int] = set()
        """Which of the lookups that it got, counted from 0."""

    @property
    def waiting(self) -> list[tuple[int, int]]:
        """The lookups that it has not answered, by number, and their request ids."""
        asked = [frame for frame in split(bytes(self.received))[0] if kind_of(frame) == LOOKUP]
        return [(number, int(body(frame)[2][0])) for number, frame in enumerate(asked) if number not in self.answered]

    def answer(self, number: int, frame: bytes) -> None:
        self.answered.add(number)
        self.unsent += frame


class MemoryBrokers(BrokerPool):
    def __init__(self, tls: BrokerTls) -> None:
        super().__init__(5, tls)
        self.dialled: list[MemoryBroker] = []

    async def dial(self, url: ServiceUrl, make: Callable[[], Made]) -> Made:
        protocol = make()
        self.dialled.append(MemoryBroker(str(url), protocol))
        return protocol


class Events(Recent):
    """Every event, as the event log would get it."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[dict[str, Any]] = []

    def add(self, line: str, sorts: tuple[Sort, ...]) -> None:
        self.all.append(json.loads(line))


class MemorySidecar:
    """A socket for `external` before broker 0. Created in a running event loop."""

    def __init__(self, mode: str) -> None:
        config = {
            "bindAddresses": ["external:pulsar://127.0.0.1:6650"],
            "brokers": {"brokerServiceUrl": [inner(0)]},
            "advertisedListeners": [
                {
                    "broker": "broker-{n}.inner",
                    "listeners": f"internal:{inner(0)},external:{outer(0)}".replace("-0.", "-{n}."),
                }
            ],
        } | MODES[mode]
        snapshot = build(load_mapping(config))
        self.mode = mode
        self.brokers = MemoryBrokers(BrokerTls(snapshot.config))
        self.metrics = Metrics("")
        self.events = Events()
        self.context = ServerContext(snapshot, self.brokers, Recorder(self.metrics, recent=self.events))
        self.server = BinaryServer(self.context, snapshot.config.bind_addresses[0])

    def number(self, name: str, **labels: str) -> float:
        """The sum of a metric over the samples with these labels."""
        return sum(
            sample.value
            for family in self.metrics.collect()
            for sample in family.samples
            if sample.name == f"pulsar_ingress_{name}" and labels.items() <= sample.labels.items()
        )
