"""The same bytes to the sidecar, nginx, HAProxy, Envoy and Jetty: the sidecar divides them into the requests that all
others do who accept them, or refuses them, and Jetty reads what it forwards as it was meant.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import pytest
from framing_cases import CASES, NEXT, streams
from framing_page import LOCKED, PAGE, Rows, cell, cells, read_differently
from framing_peers import SIDECAR, SIDECAR_9, Peer, standing
from framing_readings import Reading, Request, differ, readings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jetty_origin import Seen
from memory_peers import exchange

STREAMS = 64
"""Sent at once: those that are incomplete are waited for."""
PLAIN_FIELDS = {"host", "x-forwarded-for", "x-forwarded-proto"}
"""What /next and /inner have when the sidecar has forwarded them."""

pytestmark = pytest.mark.timeout(300)
generated = given(st.lists(streams(), min_size=STREAMS, max_size=STREAMS))
unshrunk = settings(
    database=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Peer]]:
    with standing(tmp_path_factory.mktemp("peers")) as all_peers:
        yield all_peers


@pytest.fixture(scope="module")
def named(peers: list[Peer]) -> tuple[Rows, list[Seen]]:
    rows, strays = asyncio.run(readings(peers, [case + NEXT for case in CASES.values()]))
    return dict(zip(CASES, rows, strict=True)), strays


def sidecars(row: Mapping[str, Reading]) -> list[Reading]:
    return [row[SIDECAR], row[SIDECAR_9]]


def divides_alone(row: Mapping[str, Reading]) -> bool:
    """Whether a sidecar and another peer accept a request and end it at different bytes.

    If two others do, the sidecar, whatever it accepts, divides it otherwise than one of them.
    """
    return any(differ(ours, other) for ours in sidecars(row) for other in row.values())


def forwarded_otherwise(stream: bytes, row: Mapping[str, Reading]) -> bool:
    """Whether a sidecar's broker did not get what the sidecar forwards, as a strict reader reads that.

    A broker that refuses a request has answered with an error, and the sidecar has passed that on.
    """
    said, _ = asyncio.run(exchange([stream]))
    return any(
        not set(map(start_and_body, ours.arrived)) <= set(said)
        or (len(ours.arrived) < len(said) and None not in ours.requests and ours.end == "closed")
        or ours.answered != ours.numbers
        or any(request.target != "/case" and request.fields - PLAIN_FIELDS for request in ours.arrived)
        for ours in sidecars(row)
    )


def start_and_body(request: Request) -> tuple[bytes, bytes]:
    return f"{request.method} {request.target} HTTP/1.1".encode(), request.body


def smuggled(peers: Sequence[Peer], strays: Sequence[Seen]) -> list[Seen]:
    """Requests that brokers read and no sidecar wrote: they lack the address that it adds."""
    ports = {peer.origin_port for peer in peers if peer.is_sidecar}
    return [seen for seen in strays if seen.port in ports]


def report(stream: bytes, row: Mapping[str, Reading]) -> str:
    return "\n".join([repr(stream), *(f"  {peer}: {reading}" for peer, reading in row.items())])


def check(peers: list[Peer], found: list[bytes]) -> None:
    rows, strays = asyncio.run(readings(peers, [stream + NEXT for stream in found]))
    wrong = [
        report(stream + NEXT, row)
        for stream, row in zip(found, rows, strict=True)
        if divides_alone(row) or forwarded_otherwise(stream + NEXT, row)
    ]
    assert not wrong, "\n".join(wrong)
    assert smuggled(peers, strays) == []


def test_some_named_requests_are_divided_differently_by_two_other_servers(named: tuple[Rows, list[Seen]]) -> None:
    """Without these the tests below would prove nothing."""
    differing = {name for name, row in named[0].items() if read_differently(row)}
    assert "chunks: data followed by the next size" in differing


def test_a_request_that_two_servers_divide_differently_is_refused(named: tuple[Rows, list[Seen]]) -> None:
    wrong = [f"{name}: {report(CASES[name] + NEXT, row)}" for name, row in named[0].items() if divides_alone(row)]
    assert not wrong, "\n".join(wrong)


def test_brokers_read_forwarded_requests_as_the_sidecar_divided_them(
    peers: list[Peer], named: tuple[Rows, list[Seen]]
) -> None:
    rows, strays = named
    wrong = [
        f"{name}: {report(CASES[name] + NEXT, row)}"
        for name, row in rows.items()
        if forwarded_otherwise(CASES[name] + NEXT, row)
    ]
    assert not wrong, "\n".join(wrong)
    assert smuggled(peers, strays) == []


def test_framing_page_says_what_each_server_of_a_locked_version_does(named: tuple[Rows, list[Seen]]) -> None:
    measured = {(name, peer): cell(row[peer]) for name, row in named[0].items() for peer in LOCKED}
    told = {key: text for key, text in cells(PAGE.read_text()).items() if key[1] in LOCKED}
    assert told == measured, "run `python tests/e2e/fuzz/framing_page.py`"


@settings(unshrunk, max_examples=6, derandomize=True)
@generated
def test_no_generated_request_is_divided_otherwise_than_by_other_servers(peers: list[Peer], found: list[bytes]) -> None:
    check(peers, found)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(unshrunk, max_examples=100)
@generated
def test_no_request_of_many_is_divided_otherwise_than_by_other_servers(peers: list[Peer], found: list[bytes]) -> None:
    check(peers, found)
