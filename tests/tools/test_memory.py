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
from pulsar_ingress_proxy.http.headers import RequestHead, read_and_decide
from pulsar_ingress_proxy.memory import DECISION_CACHE, DECISION_ENTRY, DECISION_LONGEST, KIB, MIB, Budget
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.paths import Target, classify
from pulsar_ingress_proxy.routing.redirects import decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import BindAddress
from pulsar_ingress_proxy.tools.check import most_memory

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


LOOKUP = classify("GET", "/lookup/v2/topic/persistent/t/n/x")

Fill = Callable[[DecisionCache, int, int], object]
"""Have something decided that has that number, and texts of so many characters more than a decision has to have."""


def fill_requests(decisions: DecisionCache, number: int, extra: int) -> object:
    broker = f"broker-{number}.external.example"  # which a template covers, so that one is made
    head = RequestHead([(b"Host", broker.encode()), (b"X-Forwarded-Host", host(number).encode())])
    head.listener_names = (b"x" * extra,) if extra else ()
    return read_and_decide(decisions, head, LOOKUP, "", None, HTTP, True)


def fill_layouts(decisions: DecisionCache, number: int, extra: int) -> object:
    names = [f"x-{number}-{place}".encode() for place in range(99)]
    return RequestHead([*((name, b"") for name in names), (padded(number, 60 + extra).encode(), b"")], decisions)


def fill_layouts_with_dropped_fields(decisions: DecisionCache, number: int, extra: int) -> object:
    options = b",".join(f"{number}-{place}".encode() for place in range(100 + extra // 8))
    return RequestHead([(b"Connection", options)], decisions)


def fill_queries(decisions: DecisionCache, number: int, extra: int) -> object:
    return decisions.query_with(f"x={padded(number, 2000 + extra)}", "external")


def fill_binary_lookups(decisions: DecisionCache, number: int, extra: int) -> object:
    lookup = Lookup(topic=b"t", advertised_listener_name=padded(number, 200 + extra).encode())
    return lookups.decide(lookup, ClientEndpoint(BINARY, None), decisions)


def fill_redirects(decisions: DecisionCache, number: int, extra: int) -> object:
    location = f"http://broker-{number}{'x' * (20 + extra)}.internal.example:8080/x"
    return decide_redirect(location, Request(LOOKUP), Selection(None, "external", "default"), decisions)


def fill_answers(decisions: DecisionCache, number: int, extra: int) -> object:
    url = f"pulsar://broker-{number % 5}.internal.example:6650"
    body = json.dumps({"brokerUrl": url, "nativeUrl": url, "number": number, "x": "x" * (3000 + extra)})
    return decisions.on_listener(body.encode(), "external")


def fill_outcomes(decisions: DecisionCache, number: int, extra: int) -> object:
    named = padded(number, 140 + extra).replace("x", "\U0001f600")
    selection = Selection(None, named, "header", client_named=named, client_named_by="header")
    authority = Authority(host(number), 80)
    record = AccessRecord(request=Request(Target("lookup", "lookup"), authority, authority), selection=selection)
    outcome = Outcome(record, METRICS)
    return decisions.keep((number, "GET", 200), outcome, sum(map(len, outcome.words)))


METRICS = Metrics("pulsar")
FILLS: dict[str, Fill] = {
    "requests": fill_requests,
    "layouts": fill_layouts,
    "layouts with dropped fields": fill_layouts_with_dropped_fields,
    "queries": fill_queries,
    "binary lookups": fill_binary_lookups,
    "redirects": fill_redirects,
    "lookup answers": fill_answers,
    "outcomes": fill_outcomes,
}


def held_by(fill: Fill, number: int, extra: int) -> int:
    """Bytes that are held more after so many decisions than before."""
    decisions = DecisionCache(build(config()))
    gc.collect()
    tracemalloc.start()
    try:
        for each in range(number):
            fill(decisions, each, extra)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FILLS)
def test_a_full_cache_takes_no_more_memory_than_its_bound(kind: str) -> None:
    decisions, counted = DecisionCache(build(config())), 0
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(DECISION_CACHE // DECISION_ENTRY + 1):  # no decision counts for less
            FILLS[kind](decisions, number, 0)
            if decisions.counted_bytes < counted:
                break  # it was full, and has been emptied
            counted = decisions.counted_bytes
        assert counted > 0.99 * DECISION_CACHE
        assert tracemalloc.get_traced_memory()[1] <= DECISION_CACHE  # the most that it was
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FILLS)
def test_decisions_with_long_texts_are_not_kept(kind: str) -> None:
    assert held_by(FILLS[kind], 100, extra=DECISION_LONGEST) < 100 * KIB


def test_a_decision_with_many_empty_names_is_not_kept() -> None:
    def fill(decisions: DecisionCache, number: int, extra: int) -> object:
        query = "&".join(["listenerName="] * 2000)
        head = RequestHead([(b"Host", f"{number}.example.com".encode())])
        return read_and_decide(decisions, head, LOOKUP, query, None, HTTP, False)

    assert held_by(fill, 50, extra=0) < 50 * KIB


def test_a_full_cache_forgets_and_goes_on() -> None:
    decisions = DecisionCache(build(config()))
    for number in range(DECISION_CACHE // (4 * KIB) + 10):
        decisions.keep(("question", number), number)
    last = DECISION_CACHE // (4 * KIB) + 9
    assert decisions.get(("question", last)) == last
    assert decisions.get(("question", 0)) is None


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
