"""Every cache stays within its bound when clients fill it with the largest entries that there can be."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pulsar_ingress_proxy.binary import lookups
from pulsar_ingress_proxy.binary.commands_pb2 import Lookup
from pulsar_ingress_proxy.binary.endpoints import ClientEndpoint
from pulsar_ingress_proxy.config import Config, load_mapping
from pulsar_ingress_proxy.http import forwarding, headers
from pulsar_ingress_proxy.http.request_cycle import read_and_decide
from pulsar_ingress_proxy.memory import (
    ADDRESSES,
    AUTHORITIES,
    BINARY_TOPICS,
    CACHES,
    CLIENT_CLASSES,
    CONNECTION_OPTIONS,
    DECISIONS,
    EVENT_DECISIONS,
    FORWARDED_CLIENTS,
    KIB,
    LOOKUP_ANSWERS,
    LOOKUP_FIELDS,
    MIB,
    REQUEST_TARGETS,
    USER_AGENTS,
    Budget,
    CacheBound,
)
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.paths import Target, read_target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import BindAddress
from pulsar_ingress_proxy.tools.check import most_memory

ASTRAL = "%F0%9F%98%80"
"""A character that makes every other one in its text take four bytes."""

HTTP = BindAddress(None, "http", "127.0.0.1", 8080)
BINARY = BindAddress(None, "pulsar", "127.0.0.1", 6650)


def config(**keys: object) -> Config:
    listeners = ",".join(
        f"{name}:{scheme}://broker-{{n}}.{name}.example:{port}"
        for name, schemes in (
            ("internal", {"http": 8080, "pulsar": 6650}),
            ("external", {"https": 443, "pulsar": 6650}),
        )
        for scheme, port in schemes.items()
    )
    return load_mapping(
        {
            "brokers": {"webServiceUrl": ["http://b:8080"]},
            "advertisedListeners": [{"broker": "broker-{n}.svc", "listeners": listeners}],
            "unknownListener": "forward",
            "ingresses": [{"name": "public", "hosts": ["*.example.com"], "listener": "external"}],
            **keys,
        }
    )


def padded(number: int, length: int, start: str = "") -> str:
    """A text of so many characters, unlike those of other numbers."""
    return f"{start}{number:08d}".ljust(length, "x")[:length]


def host(number: int) -> str:
    """The longest host that there is, in labels."""
    return ".".join([padded(number, 63), *["x" * 63] * 2, "example.com"])


def fill_decisions() -> Callable[[int, int], object]:
    """Decisions of one snapshot for both protocols, addresses and answers."""
    decisions = DecisionCache(build(config()))

    def fill(number: int, extra: int) -> object:
        broker = f"broker-{number}.external.example"  # which a template covers, so that one is made
        head = headers.RequestHead(special={b"host": broker.encode(), b"x-forwarded-host": host(number).encode()})
        head.listener_names = (b"x" * extra,) if extra else ()
        return read_and_decide(decisions, "GET", "/lookup/v2/topic/persistent/t/n/x", head, HTTP, True)

    return fill


def fill_binary_decisions() -> Callable[[int, int], object]:
    decisions = DecisionCache(build(config()))

    def fill(number: int, extra: int) -> object:
        name = padded(number, DECISIONS.longest - len("lookup") + extra).encode()
        lookup = Lookup(topic=b"t", advertised_listener_name=name)
        return lookups.decide(lookup, ClientEndpoint(BINARY, None), decisions)

    return fill


def fill_addresses() -> Callable[[int, int], object]:
    book = build(config()).book

    def fill(number: int, extra: int) -> object:
        authority = Authority(f"broker-{number}{'x' * 200}.external.example", 443)
        return None if extra else book.pinned("external", authority)  # longer ones are no authorities

    return fill


def fill_answers() -> Callable[[int, int], object]:
    decisions = DecisionCache(build(config()))

    def fill(number: int, extra: int) -> object:
        url = f"pulsar://broker-{number % 5}.internal.example:6650"
        body = json.dumps({"brokerUrl": url, "nativeUrl": url, "number": number, "x": ""})
        body = body.replace('"x": ""', f'"x": "{"x" * (LOOKUP_ANSWERS.longest - len("external") - len(body) + extra)}"')
        return decisions.on_listener(body.encode(), "external")

    return fill


def fill_forwarded() -> Callable[[int, int], object]:
    decisions = DecisionCache(build(config()))
    return lambda number, extra: decisions.forwarded_client(padded(number, FORWARDED_CLIENTS.longest + extra).encode())


def fill_event_decisions() -> Callable[[int, int], object]:
    def fill(number: int, extra: int) -> object:
        named = padded(number, EVENT_DECISIONS.longest + extra).replace("x", "\U0001f600")
        selection = Selection(None, named, "header", client_named=named, client_named_by="header")
        authority = Authority(host(number), 80)
        request = Request(Target("lookup", "lookup"), authority, authority)
        return event_lines.decision_words(AccessRecord(request=request, selection=selection))

    return fill


Fill = Callable[[int, int], object]
"""Put the entry of that number into a cache; with texts of so many characters more than are kept."""

FILLS: dict[str, tuple[CacheBound, Callable[[], Fill]]] = {
    "request targets": (
        REQUEST_TARGETS,
        lambda: (
            lambda number, extra: read_target(
                "GET", padded(number, REQUEST_TARGETS.longest + extra, f"/lookup/v2/topic/persistent/t/n/{ASTRAL}")
            )
        ),
    ),
    "authorities": (AUTHORITIES, lambda: lambda number, extra: parse_authority(padded(number, 261 + extra))),
    "addresses": (ADDRESSES, fill_addresses),
    "decisions": (DECISIONS, fill_decisions),
    "decisions of the binary protocol": (DECISIONS, fill_binary_decisions),
    "lookup answers": (LOOKUP_ANSWERS, fill_answers),
    "forwarded clients": (FORWARDED_CLIENTS, fill_forwarded),
    "connection options": (
        CONNECTION_OPTIONS,
        lambda: (
            lambda number, extra: headers.connection_options(
                (f"{number:06d}," + "".join(f"{chr(place + 200)}," for place in range(50)) * 3)[:256].encode("latin-1")
                + b"y" * extra
            )
        ),
    ),
    "lookup fields": (
        LOOKUP_FIELDS,
        lambda: lambda number, extra: forwarding._lookup_fields("http", padded(number, LOOKUP_FIELDS.longest + extra)),
    ),
    "event decisions": (EVENT_DECISIONS, fill_event_decisions),
    "user agents": (
        USER_AGENTS,
        lambda: (
            lambda number, extra: event_lines.client(
                AccessRecord(user_agent=padded(number, 256 + extra).replace("x", "\xff").encode("latin-1"))
            )
        ),
    ),
    "client classes": (
        CLIENT_CLASSES,
        lambda: lambda number, extra: event_lines._client_class(f"2001:db8::{number:x}"),
    ),
    "binary topics": (
        BINARY_TOPICS,
        lambda: (
            lambda number, extra: lookups.about(
                padded(number, BINARY_TOPICS.longest - 16 + extra, "persistent://t/n/").encode()
                + "\U0001f600".encode() * 4
            )
        ),
    ),
}


def held_by(fill: Fill, numbers: range, extra: int) -> int:
    """Bytes that are held more after these entries than before."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in numbers:
            fill(number, extra)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cache", FILLS)
def test_a_cache_of_the_largest_entries_is_within_its_bound(cache: str) -> None:
    bound, made = FILLS[cache]
    held = held_by(made(), range(2 * bound.entries), extra=0)
    assert held <= bound.total_bytes, f"{held / bound.entries:.0f} bytes an entry"


@pytest.mark.parametrize("cache", [cache for cache in FILLS if cache not in ("client classes", "user agents")])
def test_text_longer_than_a_cache_accepts_is_not_cached(cache: str) -> None:
    bound, made = FILLS[cache]
    assert held_by(made(), range(100), extra=bound.longest) < 100 * KIB


def test_a_decision_with_many_empty_names_is_not_remembered() -> None:
    decisions = DecisionCache(build(config()))

    def fill(number: int, extra: int) -> object:
        query = "&".join(["listenerName="] * 2000)
        head = headers.RequestHead(special={b"host": f"{number}.example.com".encode()})
        return read_and_decide(decisions, "GET", f"/lookup/v2/topic/persistent/t/n/x?{query}", head, HTTP, False)

    assert held_by(fill, range(50), extra=0) < 50 * KIB


def test_every_cache_has_a_memory_test() -> None:
    assert {bound for bound, _ in FILLS.values()} == {*CACHES}


def test_a_budget_gives_what_is_left_and_takes_it_back() -> None:
    budget = Budget(10)
    assert budget.take(10)
    assert not budget.take(1)
    budget.resize(12)
    assert budget.take(2)
    budget.give_back(12)
    assert budget.used == 0


CHART = Path(__file__).parents[2] / "helm" / "pulsar-ingress-proxy"


def test_the_charts_memory_limit_holds_what_clients_can_make_the_sidecar_hold() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    limit = values["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    both = config(
        bindAddresses=["http://0.0.0.0:8080", "pulsar://0.0.0.0:6650"],
        brokers={"webServiceUrl": ["http://b:8080"], "brokerServiceUrl": ["pulsar://b:6650"]},
        events={"path": "/var/lib/events"},
    )
    parts = most_memory(both)
    assert sum(parts.values()) <= int(limit.removesuffix("Mi")) * MIB, parts
