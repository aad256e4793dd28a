"""Requests as a gateway sends them for its clients: each client has its own address, token and traces.

What all requests of a run have in common is drawn by a seed: the order of the fields, and the names of those that no
standard knows. So nothing that a proxy could learn by heart of one run is of use in the next.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

HOST = "pulsar.example.com"
LISTENER = "external"
BROKERS = 10
TOPICS = 10_000
MANY_TOPICS = 1_000_000

_AGENTS = (
    "Pulsar-Java-v4.2.4", "Pulsar-Java-v4.0.13", "Pulsar-Java-v3.0.14", "Pulsar-CPP-v4.2.0", "Pulsar-CPP-v3.7.2-python",
    "Pulsar-httpClient-Go-v0.19.0", "Pulsar-Java-v5.0.0-M1", "pulsarctl/4.1.0",
)  # fmt: skip
_WORDS = ("edge", "mesh", "region", "team", "plan", "tier", "zone", "app", "shard", "unit")


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of load: the request, by a number that is drawn for each."""

    name: str
    request: Callable[[int, random.Random], tuple[str, str, str, bytes]]
    """Method, host, path with query, and body, for a topic."""
    topics: int = TOPICS


def outside(broker: int | str) -> str:
    return f"broker-{broker}.{HOST}"


def path(topic: int, is_moved: bool = False) -> str:
    """A lookup's; a broker is the last number of its topic's name."""
    name = "moved" if is_moved else "owned"
    return f"/lookup/v2/topic/persistent/public/default/{name}-{topic}-partition-{topic % BROKERS}"


def redirect_query() -> str:
    """What a 4.x broker appends to a Location, with the listener of the request (TopicLookupBase)."""
    return f"authoritative=true&listenerName={LISTENER}"


def _answered(topic: int, _: random.Random) -> tuple[str, str, str, bytes]:
    return "GET", HOST, path(topic), b""


def _redirected(topic: int, _: random.Random) -> tuple[str, str, str, bytes]:
    return "GET", HOST, path(topic, is_moved=True), b""


def _mixed(topic: int, dice: random.Random) -> tuple[str, str, str, bytes]:
    """As clients ask: the partitions of each topic before its lookup, and the second hop of some redirects."""
    share = dice.random()
    if share < 0.45:
        return _answered(topic, dice)
    if share < 0.9:
        partitions = f"/admin/v2/persistent/public/default/owned-{topic}/partitions?checkAllowAutoCreation=true"
        return "GET", HOST, partitions, b""
    return "GET", outside(topic % BROKERS), f"{path(topic, is_moved=True)}?{redirect_query()}", b""


def _put(topic: int, dice: random.Random) -> tuple[str, str, str, bytes]:
    body = json.dumps({"properties": "x" * 1000, "of": topic}).encode()
    return "PUT", HOST, f"/admin/v2/persistent/public/default/owned-{topic}/properties", body


ANSWERS = Workload("answers", _answered)
REDIRECTS = Workload("redirects", _redirected)
MIXED = Workload("mixed", _mixed)
NEW_TOPICS = Workload("answers, a million topics", _answered, MANY_TOPICS)
PUTS = Workload("PUT of 1 KB", _put)


class Traffic:
    """The requests of some clients in one run."""

    def __init__(self, clients: int, seed: int) -> None:
        self._dice = random.Random(seed)
        self._clients = clients
        own = self._dice.sample(_WORDS, 3)
        self.reference = f"x-{own[0]}-reference"
        """The header that identifies the client and the request: the broker refuses requests that disagree with it."""
        self._constant = {f"x-{own[1]}": "eu-central-1a", f"x-{own[2]}-id": f"{self._dice.getrandbits(64):x}"}
        self._order = self._dice.sample(range(14), 14)

    def requests(self, workload: Workload, number: int) -> Iterator[bytes]:
        """So many, of topics as they are asked for: of a few often, of most hardly ever; or all alike."""
        weights = None
        if workload.topics == TOPICS:
            weights = list(accumulate(1 / rank for rank in range(1, workload.topics + 1)))
        for topic in self._dice.choices(range(workload.topics), cum_weights=weights, k=number):
            yield self._request(self._dice.randrange(self._clients), *workload.request(topic, self._dice))

    def one(self, workload: Workload, topic: int) -> bytes:
        return self._request(topic % self._clients, *workload.request(topic, self._dice))

    def _request(self, client: int, method: str, host: str, target: str, body: bytes) -> bytes:
        address = f"10.{client >> 16 & 255}.{client >> 8 & 255}.{client & 255}"
        dice, bits = self._dice, self._dice.getrandbits
        fields = [
            ("user-agent", _AGENTS[client % len(_AGENTS)]),
            ("accept", "application/json"),
            ("authorization", f"Bearer eyJhbGciOiJSUzI1NiJ9|{address}|{client * 2654435761 % 2**61:061b}{'k' * 180}"),
            ("x-forwarded-for", address),
            ("x-forwarded-proto", "https"),
            ("x-envoy-external-address", address),
            ("x-request-id", f"{bits(32):08x}-{bits(16):04x}-4{bits(12):03x}-a{bits(12):03x}-{bits(48):012x}"),
            ("traceparent", f"00-{bits(128):032x}-{bits(64):016x}-0{dice.randrange(2)}"),
            ("x-envoy-attempt-count", "1"),
            ("x-envoy-expected-rq-timeout-ms", "15000"),
            ("accept-encoding", "gzip, deflate"),
            (self.reference, f"{address}|{target.partition('?')[0]}"),
            *self._constant.items(),
        ]
        ordered = [("host", host), *(fields[place] for place in self._order)]
        if body:
            ordered.append(("content-length", str(len(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in ordered)
        return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body
