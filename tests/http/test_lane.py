"""The short way of a lookup: who takes it, what ends it, and what it must not remember.

That it shows nowhere else is for test_lane_equivalence.py to say.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, repeat
from typing import Any

import pytest
from lanes import (
    END,
    TIMES,
    TOPIC,
    Answering,
    Recorded,
    Says,
    Taken,
    answering,
    book,
    lookup,
    moved,
    says,
    turns,
    watch,
)
from raw import OK, Head, RawBroker, Served, Start, Wire, unused_port
from standstill import settled

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.http import headers, lane
from pulsar_ingress_proxy.http.lane import Lane, Run
from pulsar_ingress_proxy.syntax.listeners import parse_service_url

INSIDE = b"http://broker-1.pulsar.svc:8080"
OUTSIDE = b"https://broker-1.pulsar.example.com"
NAME = b"x-pulsar-listenername"
TINY, HOUR = 0.2, 3600


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return watch(monkeypatch)


async def known(served: Served, broker: RawBroker, data: bytes | None = None, answer: bytes = OK) -> tuple[Wire, Wire]:
    """A client whose lookups are known, and the broker's end of the one connection that is kept."""
    data = data or lookup()
    client = await served.client()
    await turns()  # aiohttp waits for a request only then
    client.send(data)
    wire = await broker.accept()
    for place in range(TIMES):
        if place:
            client.send(data)
        await wire.head()
        wire.send(answer)
        await client.message()
    return client, wire


def lane_of(served: Served) -> Lane:
    return served.sidecar.http_servers[0]._lane


def recorded(served: Served, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    events = Recorded()
    monkeypatch.setattr(served.sidecar._context.recorder, "_events", events)
    return events


# Who takes it.


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda topic: OK, lambda topic: b""),
        (lambda topic: says(b"200 OK", b"Date: now", body=b"{}"), lambda topic: b""),
        (
            lambda topic: moved(INSIDE + TOPIC + topic),
            lambda topic: OUTSIDE + TOPIC + topic + b"?listenerName=external",
        ),
    ],
    ids=["200", "a Date", "307"],
)
async def test_lookups_like_those_before(
    start: Start, broker: RawBroker, taken: Taken, answer: Callable[[bytes], bytes], expected: Callable[[bytes], bytes]
) -> None:
    """Of any topic, and on any connection of the same peer."""
    served = await start(broker.url, **book(broker.url))
    client, wire = await known(served, broker, answer=answer(b"x"))
    other = await served.client()
    await turns()
    for asking, topic in [(client, b"x"), (client, b"another"), (other, b"x"), (other, b"third"), (client, b"another")]:
        before = taken.begun, taken.known
        asking.send(lookup(topic))
        head = await wire.head()
        assert (head.target, head.one(NAME)) == (TOPIC + topic, b"external")
        wire.send(answer(topic))
        assert b"".join((await asking.message()).head.all(b"location")) == expected(topic)
        assert (taken.begun, taken.known) == (before[0] + 1, before[1] + 1)
    assert len(broker.wires) == 1
    pool = served.sidecar._pool
    assert pool is not None
    assert not pool._asked
    assert served.number("requests_total") == served.number("listener_hits_total") == TIMES + 5


async def test_what_it_says_of_itself(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and durations are each lookup's own."""
    served = await start(broker.url, **book(broker.url))
    events = recorded(served, monkeypatch)
    client, wire = await known(served, broker)
    events.clear()
    ids: list[str] = []
    before = served.number("upstream_duration_seconds_count")
    for _ in range(5):
        client.send(lookup(b"x", b"User-Agent: it") if not ids else lookup())
        await wire.head()
        wire.send(OK)
        ids.append((await client.head()).one(b"x-request-id").decode())
        await client.take(2)
    assert taken.known >= 4
    assert [event["id"] for event in events] == ids
    assert len({*ids}) == 5
    assert [event["userAgent"] for event in events] == ["it", None, None, None, None]
    assert sorted(event["time"] for event in events) == [event["time"] for event in events]
    assert all(event["durationMs"] >= event["upstreamMs"] > 0 for event in events)
    assert served.number("upstream_duration_seconds_count", kind="lookup", protocol="http") == before + 5


async def test_peers_are_told_apart(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url)
    client, wire = await known(served, broker)
    _, stranger = await asyncio.get_running_loop().create_connection(
        Wire, "127.0.0.1", served.port, local_addr=("127.0.0.2", 0)
    )
    for _ in range(TIMES):
        for asking, address in ((client, b"127.0.0.1"), (stranger, b"127.0.0.2")):
            asking.send(lookup())
            assert (await wire.head()).one(b"x-forwarded-for") == address
            wire.send(OK)
            await asking.message()
    assert taken.known > TIMES
    stranger.close()


async def test_clients_behind_a_trusted_proxy_are_told_apart(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one connection, as gateways share theirs."""
    served = await start(broker.url)
    events = recorded(served, monkeypatch)
    client, wire = await known(served, broker)
    told = {b"8.8.8.8": "public", b"10.1.1.1": "private", b"8.8.4.4, ::1": "public", b"unknown": "loopback"}
    for _ in range(TIMES):
        for forwarded_for in told:
            client.send(lookup(b"x", b"X-Forwarded-For: " + forwarded_for))
            assert (await wire.head()).one(b"x-forwarded-for") == forwarded_for + b", 127.0.0.1"
            wire.send(OK)
            await client.message()
    assert taken.known > 2 * TIMES
    assert [event["clientClass"] for event in events] == ["loopback"] * TIMES + [*told.values()] * TIMES


async def test_doors_are_told_apart(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url, bindAddresses=["one:http://127.0.0.1:0", f"two:http://127.0.0.1:{unused_port()}"])
    client, wire = await known(served, broker)
    other = await served.client(port=served.sidecar.http_servers[1].port)
    await turns()
    for _ in range(TIMES):
        for asking, name in ((client, b"one"), (other, b"two")):
            asking.send(lookup())
            assert (await wire.head()).one(NAME) == name
            wire.send(OK)
            await asking.message()
    assert taken.known > TIMES


async def test_nobody_has_another_ones_credentials(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url)
    client, wire = await known(served, broker)
    for _ in range(TIMES):
        for token in (b"a", b"b", None, b"a\r\nX-A: b"):
            client.send(lookup(b"x", *([b"Authorization: Bearer " + token] if token else [])))
            head = await wire.head()
            assert head.all(b"authorization") == ([b"Bearer " + token[:1]] if token else [])
            assert head.all(b"x-a") == ([b"b"] if token and token[1:] else [])
            wire.send(OK)
            await client.message()
    assert taken.known > 4


async def test_what_comes_meanwhile_waits_its_turn(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url, **book(broker.url))
    client, wire = await known(served, broker, answer=moved(INSIDE + TOPIC + b"x"))
    before = taken.begun
    for topic in (b"a", b"b", b"c"):
        client.send(lookup(topic))
        await turns()
    for topic in (b"a", b"b", b"c"):
        head = await wire.head()
        assert head.target == TOPIC + topic
        await turns()
        assert not wire.buffer
        wire.send(moved(INSIDE + head.target))
        assert (await client.message()).head.one(b"location").startswith(OUTSIDE + TOPIC + topic + b"?")
    assert taken.begun > before


async def test_what_began_before_aiohttp_waited_for_it(start: Start, broker: RawBroker, taken: Taken) -> None:
    """As over TLS, where a request may come with the end of the handshake: what follows may be the rest of another."""
    served = await start(broker.url)
    _, wire = await known(served, broker)
    client = await served.client()
    await turns()
    (connection,) = [each for each in served.sidecar.http_servers[0]._clients if not each._request_count]
    waiter, connection._waiter = connection._waiter, None
    connection.data_received(lookup(b"y") + b"GET /admin HTTP/1.1\r\nX-A: ")
    connection._waiter = waiter
    assert waiter is not None
    waiter.set_result(None)
    assert (await wire.head()).target == TOPIC + b"y"
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    await turns()
    begun = taken.begun
    client.send(lookup(b"z"))
    head = await wire.head()
    assert (head.target, head.one(b"x-a")) == (b"/admin", b"GET %bz HTTP/1.1" % TOPIC)
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert taken.begun == begun


# Which broker is asked.


def numbered(numbers: Iterator[int]) -> Says:
    """Answers of which no two are alike, if no two numbers are."""
    return lambda head: (says(b"200 OK", b"X-Number: %d" % next(numbers), body=b"ok"),)


@pytest.mark.parametrize("pinned", [False, True], ids=["", "beside a pinned broker"])
@pytest.mark.parametrize("new", [False, True], ids=["answers that are known", "answers that are new"])
async def test_brokers_are_asked_in_turn(start: Start, taken: Taken, new: bool, pinned: bool) -> None:
    async with answering() as one, answering() as two, answering() as pin:
        served = await start(one.url, two.url, **book(pin.url))
        if new:
            for broker in (one, two):
                broker.says = numbered(count())
        client = await served.client()
        await turns()
        for _ in range(40):
            client.send(lookup())
            await client.message()
            if pinned:
                client.send(lookup(host=b"broker-0.pulsar.example.com"))
                await client.message()
        assert taken.begun > 20
        assert (len(one.asked), len(two.asked), len(pin.asked)) == (20, 20, 40 * pinned)


async def test_brokers_are_asked_in_turn_though_some_are_refused(start: Start, taken: Taken) -> None:
    async with answering() as one, answering() as two:
        served = await start(one.url, two.url, limits={"inFlight": 1})
        client, excess = await served.client(), await served.client()
        await turns()
        for _ in range(40):
            client.send(lookup())
            await client.message()
        for _ in range(20):
            in_flight = served.sidecar.metrics.in_flight.cell("http")
            in_flight[0] += 1
            excess.send(lookup())
            assert (await excess.message()).status == 503
            in_flight[0] -= 1
            client.send(lookup())
            await client.message()
        assert taken.known > 20
        assert len(one.asked) == len(two.asked) == 30


async def test_a_broker_that_failed_is_asked_last(start: Start, taken: Taken) -> None:
    async with answering() as one, answering() as two:
        served = await start(one.url, two.url)
        client = await served.client()
        await turns()
        for _ in range(2 * TIMES):
            client.send(lookup())
            assert (await client.message()).status == 200
        await one.close()
        before = len(two.asked)
        for _ in range(10):
            client.send(lookup())
            assert (await client.message()).status == 200
        assert len(two.asked) == before + 10
        assert served.number("upstream_errors_total", reason="broker-unreachable") == 1
        assert taken.known


async def test_a_broker_that_failed_is_asked_last_by_its_kept_connections_too(start: Start, taken: Taken) -> None:
    async with answering() as one, answering() as two:
        served = await start(one.url, two.url)
        client = await served.client()
        await turns()
        for place in range(3 * TIMES):
            if place == 2 * TIMES:
                assert taken.known
                served.sidecar._context.brokers.failed(parse_service_url(one.url))
            client.send(lookup())
            assert (await client.message()).status == 200
        assert (len(one.asked), len(two.asked)) == (TIMES, 2 * TIMES)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_dies_on_use_is_replaced(
    start: Start, broker: RawBroker, taken: Taken, how: str
) -> None:
    served = await start(broker.url)
    client, wire = await known(served, broker)
    begun = taken.begun
    client.send(lookup(b"y"))
    await wire.head()
    getattr(wire, how)()
    again = await broker.accept()
    assert (await again.head()).target == TOPIC + b"y"
    again.send(OK)
    assert (await client.message()).body == b"ok"
    assert taken.begun == begun + 1
    assert served.number("upstream_errors_total") == served.number("in_flight_requests") == 0


async def test_a_kept_connection_that_was_closed_is_not_used(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url)
    client, wire = await known(served, broker)
    begun = taken.begun
    wire.close()
    await wire.end()
    client.send(lookup())
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert taken.begun == begun
    assert served.number("upstream_errors_total") == 0


# What ends it.


async def test_an_answer_that_does_not_come(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url, timeouts={"lookup": TINY, "request": HOUR})
    client, wire = await known(served, broker)
    begun = taken.begun
    client.send(lookup())
    await wire.head()
    assert taken.begun == begun + 1
    assert (await client.message()).status == 504
    await wire.end()
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1
    assert served.number("in_flight_requests") == 0
    client.send(lookup())
    await broker.answer()
    assert (await client.message()).body == b"ok"


@pytest.mark.parametrize("piece", [OK[:20], OK[:-1]], ids=["a head", "a body"])
async def test_an_answer_that_comes_in_part(start: Start, broker: RawBroker, piece: bytes) -> None:
    served = await start(broker.url, timeouts={"lookup": TINY, "request": TINY})
    client, wire = await known(served, broker)
    client.send(lookup())
    await wire.head()
    wire.send(piece)
    if piece == OK[:20]:
        assert (await client.message()).status == 504
    else:
        assert (await client.head()).status == 200
        assert await client.rest() == b"o"
    await wire.end()
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1
    assert served.number("in_flight_requests") == 0


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    served = await start(broker.url)
    events = recorded(served, monkeypatch)
    client, wire = await known(served, broker)
    begun = taken.begun
    client.send(lookup(b"y"))
    await wire.head()
    assert taken.begun == begun + 1
    getattr(client, how)()
    await wire.end()
    await settled(lambda: len(events))
    assert served.number("in_flight_requests") == served.number("connections") == 0
    assert served.number("requests_total", code="499") == 1
    assert (events[-1]["status"], events[-1]["topic"]) == (499, "persistent://t/n/y")
    fresh = await served.client(lookup())
    await broker.answer()
    assert (await fresh.message()).body == b"ok"


@pytest.mark.parametrize("data", [OK, OK[:20], moved(INSIDE)], ids=["known", "in part", "new"])
async def test_a_client_that_leaves_just_as_the_broker_answers(start: Start, broker: RawBroker, data: bytes) -> None:
    """Its end is on its way, and nobody has been told."""
    served = await start(broker.url)
    client, wire = await known(served, broker)
    client.send(lookup())
    await wire.head()
    (connection,) = served.sidecar.http_servers[0]._clients
    run = connection._ongoing
    assert isinstance(run, Run)
    connection.break_off(gently=False)
    run._connection.data_received(data)
    await client.end()
    await settled(lambda: int(served.number("connections")))
    assert served.number("in_flight_requests") == served.number("connections") == 0
    assert served.number("requests_total") == TIMES + 1


@pytest.mark.parametrize("answer", [OK, moved(INSIDE + TOPIC + b"x")], ids=["known", "new"])
async def test_what_is_under_way_finishes_when_the_sidecar_stops(
    start: Start, broker: RawBroker, taken: Taken, answer: bytes
) -> None:
    served = await start(broker.url, drainSeconds=30)
    client, wire = await known(served, broker)
    begun = taken.begun
    client.send(lookup())
    await wire.head()
    assert taken.begun == begun + 1
    stopping = asyncio.create_task(served.sidecar.stop())
    await settled(lambda: int(served.number("connections")))
    wire.send(answer)
    message = await client.message()
    assert (message.status, message.head.one(b"connection")) == (Head(answer).status, b"close")
    assert await client.rest() == b""
    await stopping
    assert served.number("in_flight_requests") == served.number("connections") == 0


async def test_who_waits_for_an_answer_is_not_idle(start: Start, broker: RawBroker, taken: Taken) -> None:
    served = await start(broker.url, timeouts={"clientIdle": TINY})
    client, wire = await known(served, broker)
    begun = taken.begun
    client.send(lookup())
    await wire.head()
    for _ in range(2):
        idle = await served.client()
        await idle.end()
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert taken.begun == begun + 1
    assert await client.rest() == b""


async def test_a_fault_of_our_own_is_said_and_counted_once(
    start: Start, broker: RawBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it comes to light as an exchange takes over."""
    served = await start(broker.url)
    client, wire = await known(served, broker)
    client.send(lookup())
    await wire.head()
    monkeypatch.setattr(headers, "read_head", lambda fields: 1 / 0)
    wire.send(moved(INSIDE))
    async with asyncio.timeout(5):
        assert (await client.message()).status == 500
    assert "ZeroDivisionError" in caplog.text
    pool = served.sidecar._pool
    assert pool is not None
    assert not pool._asked
    assert served.number("requests_total", code="500") == 1
    assert served.number("in_flight_requests") == 0
    caplog.clear()


async def test_too_many_at_once(start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await start(broker.url, limits={"inFlight": 1})
    client, wire = await known(served, broker)
    events = recorded(served, monkeypatch)
    holding = await served.client(lookup(b"held", b"X-A: b"))
    await wire.head()
    before = taken.begun
    for _ in range(3):
        client.send(lookup())
        answer = await client.message()
        assert (answer.status, answer.head.one(b"retry-after")) == (503, b"1")
    assert taken.begun == before
    wire.send(OK)
    assert (await holding.message()).status == 200
    for _ in range(2):
        client.send(lookup())
        await wire.head()
        wire.send(OK)
        assert (await client.message()).status == 200
    assert taken.begun == before + 2
    assert [event["status"] for event in events] == [503, 503, 503, 200, 200, 200]
    assert served.number("in_flight_requests") == 0
    assert len(broker.wires) == 1


async def test_what_is_learned_of_one_that_was_refused(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there were too many at once says nothing of those that come later."""
    served = await start(broker.url, limits={"inFlight": 1}, **book(broker.url))
    events = recorded(served, monkeypatch)
    holding = await served.client(lookup(b"held", b"X-A: b"))
    wire = await broker.accept()
    await wire.head()
    client = await served.client()
    await turns()
    for _ in range(3):
        client.send(lookup())
        assert (await client.message()).status == 503
    wire.send(OK)
    await holding.message()
    for _ in range(TIMES):
        client.send(lookup())
        await wire.head()
        wire.send(OK)
        assert (await client.message()).status == 200
    assert taken.known
    assert [event["missReason"] for event in events] == ["overloaded"] * 3 + [None] * (TIMES + 1)
    assert [event["hit"] for event in events] == [False] * 3 + [True] * (TIMES + 1)


# A new config.


def config(broker: RawBroker, listener: str, **settings: Any) -> Any:
    return load_mapping(
        {
            "bindAddresses": ["http://127.0.0.1:0"],
            "metrics": {"address": "127.0.0.1:0"},
            "brokers": {"webServiceUrl": [broker.url]},
            "lookupListenerName": listener,
            **settings,
        }
    )


async def test_a_reload_counts_at_once(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the next lookup, not for the one under way; and nothing of the old rules is kept."""
    served = await start(broker.url, lookupListenerName="first")
    client, wire = await known(served, broker)
    events = recorded(served, monkeypatch)
    for generation, listener in enumerate((b"second", b"third"), 2):
        before = taken.begun
        client.send(lookup())
        old = (await wire.head()).one(NAME)
        await served.sidecar.reload(config(broker, listener.decode()))
        wire.send(OK)
        await client.message()
        assert (events[-1]["generation"], events[-1]["listener"]) == (generation - 1, old.decode())
        for _ in range(TIMES + 1):
            client.send(lookup())
            assert (await wire.head()).one(NAME) == listener
            wire.send(OK)
            await client.message()
            assert (events[-1]["generation"], events[-1]["listener"]) == (generation, listener.decode())
        assert taken.begun > before + 1
        assert {asker.decisions for asker in lane_of(served)._askers.values()} == {served.sidecar._context.decisions}


async def test_a_proxy_that_is_trusted_no_more_tells_nothing(
    start: Start, broker: RawBroker, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await start(broker.url)
    events = recorded(served, monkeypatch)
    data = lookup(b"x", b"X-Forwarded-For: 8.8.8.8")
    client, wire = await known(served, broker, data)
    await served.sidecar.reload(config(broker, "any", trustedProxies=[]))
    for _ in range(TIMES):
        client.send(data)
        assert (await wire.head()).one(b"x-forwarded-for") == b"127.0.0.1"
        wire.send(OK)
        await client.message()
    assert [event["clientClass"] for event in events] == ["public"] * TIMES + ["loopback"] * TIMES


async def test_a_socket_that_is_renamed(start: Start, broker: RawBroker, taken: Taken) -> None:
    port = unused_port()
    served = await start(broker.url, bindAddresses=[f"one:http://127.0.0.1:{port}"])
    client, wire = await known(served, broker)
    for name in (b"one", b"two", b"one"):
        await served.sidecar.reload(config(broker, "other", bindAddresses=[f"{name.decode()}:http://127.0.0.1:{port}"]))
        before = taken.begun
        for _ in range(TIMES):
            client.send(lookup())
            assert (await wire.head()).one(NAME) == name
            wire.send(OK)
            await client.message()
        assert taken.begun > before


# What it must not remember.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """All memories together have room for so many entries at the most."""
    monkeypatch.setattr(lane, "_SEEN", 16)
    monkeypatch.setattr("pulsar_ingress_proxy.memory.FAST_PATH", 16 * 1024)
    return 16


Ask = Callable[[bytes], Awaitable[None]]


async def asking(served: Served) -> Ask:
    client = await served.client()
    await turns()

    async def ask(data: bytes) -> None:
        client.send(data)
        assert (await client.message()).status == 200

    return ask


async def test_memories_end(start: Start, taken: Taken, small: int) -> None:
    """Many heads, paths and answers, each so often that it is learned."""
    async with answering() as broker:
        served = await start(broker.url, **book(broker.url))
        ask, memory = await asking(served), lane_of(served)
        for number in range(3 * small):
            broker.says = numbered(repeat(number))
            for _ in range(TIMES):
                await ask(lookup(b"%d" % number))
                await ask(lookup(b"x", b"User-Agent: %d" % number))
            outcomes = served.sidecar._context.decisions.outcomes
            assert len(memory._askers) + len(memory._paths) + len(outcomes) <= small
            assert len(memory._seen) <= small
        assert taken.known


async def test_memories_end_whatever_the_host(start: Start, taken: Taken, small: int) -> None:
    """Clients choose the hosts: what is remembered of answers must not be multiplied by them."""
    async with answering() as broker:
        served = await start(broker.url)
        ask = await asking(served)
        for host in range(3 * small):
            for number in range(small):
                broker.says = numbered(repeat(number))
                for _ in range(TIMES):
                    await ask(lookup(host=b"h%d" % host))
        assert taken.known
        assert len(served.sidecar._context.decisions.outcomes) <= small


async def test_what_is_long_is_not_remembered(start: Start, taken: Taken) -> None:
    async with answering() as broker:
        served = await start(broker.url)
        ask, memory = await asking(served), lane_of(served)
        for data in (lookup(b"x", b"X-A: " + b"a" * 5000), lookup(b"a" * 600)):
            for _ in range(TIMES):
                await ask(data)
        assert (len(memory._askers), len(memory._paths), taken.begun) == (0, 0, 0)
        broker.says = lambda head: (says(b"200 OK", body=b"x" * 5000),)
        for _ in range(TIMES):
            await ask(lookup())
        assert taken.begun
        assert not taken.known
        assert not served.sidecar._context.decisions.outcomes


# Many at once.


class Unruly(Answering):
    """Sends everybody on to his own path, in one piece or two, unless it prefers to die."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self.says = self._say

    def _say(self, head: Head) -> tuple[bytes, ...]:
        whole = moved(INSIDE + head.target)
        cut = self._dice.randrange(1, len(whole))
        match self._dice.randrange(12):
            case 0:
                return (END,)
            case 1:
                return (whole[:cut], END)
            case 2:
                return (whole, END)
            case 3 | 4:
                return (whole[:cut], whole[cut:])
        return (whole,)


async def asks(served: Served, name: int, seed: int) -> int:
    """Ask many times, and see that every answer is the one to its lookup; how many there were."""
    dice, found = random.Random(seed + name), 0
    client = await served.client()
    for turn in range(40):
        topic = b"x" * dice.randrange(3) + b"%d-%d" % (name, turn)
        client.send(lookup(topic, b"x-request-id: %d-%d" % (name, turn)))
        if dice.randrange(12) == 0:
            client.reset()
            client = await served.client()
            continue
        answer = await client.message()
        if answer.status == 307:
            assert answer.head.one(b"location") == OUTSIDE + TOPIC + topic + b"?listenerName=external"
            found += 1
        else:
            assert answer.status == 502
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_answers_never_cross(start: Start, taken: Taken, seed: int) -> None:
    async with answering(Unruly(seed)) as one, answering(Unruly(seed + 10)) as two:
        served = await start(one.url, two.url, **book(one.url))
        counts = await asyncio.gather(*(asks(served, name, seed) for name in range(20)))
        assert sum(counts) > 400
        assert taken.known > 50
        await served.stop()
        assert served.number("in_flight_requests") == served.number("connections") == 0
        for head in map(Head, one.asked + two.asked):
            assert head.target.endswith(head.one(b"x-request-id"))
        assert not any(wire.buffer for broker in (one, two) for wire in broker.wires)
