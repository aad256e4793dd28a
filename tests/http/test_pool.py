"""Several brokers: whose turn it is, what is tried again and on whom, and which connections are kept."""

import asyncio
import gc
import socket
from collections.abc import Callable
from typing import Any

import pytest
from raw import CLOSING, GET, LOOKUP, OK, POST, PUT, Begin, RawBroker, Served, Start, Wire, asked
from standstill import settled
from wires import free_port

ENDS = pytest.mark.parametrize("how", ["close", "reset"])
DELETE = GET.replace(b"GET", b"DELETE")
PINNED = b"broker-0.pulsar.example.com"


def refusing() -> str:
    return f"http://127.0.0.1:{free_port()}"


async def turn(served: Served, *brokers: RawBroker) -> int:
    """Which of these brokers gets a request; it is answered."""
    client = await served.client(GET)
    wire = await asked(*brokers)
    await wire.message()
    wire.send(CLOSING)
    assert (await client.message()).status == 200
    client.close()
    return next(number for number, broker in enumerate(brokers) if wire in broker.wires)


# Turns.


async def test_brokers_are_asked_in_turn(start: Start, broker: RawBroker, other: RawBroker) -> None:
    served = await start(broker.url, other.url)
    assert [await turn(served, broker, other) for _ in range(6)] in ([0, 1] * 3, [1, 0] * 3)


async def test_a_broker_that_failed_is_asked_last(start: Start, broker: RawBroker) -> None:
    served = await start(refusing(), broker.url)
    for _ in range(5):
        assert await turn(served, broker) == 0
    assert served.number("upstream_errors_total", reason="broker-unreachable") == 1


async def test_failed_broker_is_asked_again_when_it_is_the_only_one(start: Start, broker: RawBroker) -> None:
    await broker.close()
    served = await start(broker.url)
    assert (await served.ask(GET)).status == 502
    await broker.open(broker.port)
    assert await turn(served, broker) == 0


async def test_request_gets_502_after_three_unreachable_brokers(start: Start) -> None:
    served = await start(*(refusing() for _ in range(5)))
    assert (await served.ask(GET)).refusal == (502, "broker-unreachable")
    assert served.number("upstream_errors_total", reason="broker-unreachable") == 3  # it is tried so many times


# Trying again.


@pytest.mark.parametrize("data", [GET, PUT, POST], ids=["GET", "PUT", "POST"])
async def test_request_is_retried_on_another_broker_when_connection_is_refused(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    """Nothing was sent, so that a POST may go there too."""
    served = await start(refusing(), refusing(), broker.url)
    client = await served.client(data)
    request = await broker.answer()
    assert request.body == data.partition(b"\r\n\r\n")[2]
    assert (await client.message()).body == b"ok"


@ENDS
@pytest.mark.parametrize("data", [GET, PUT], ids=["GET", "PUT"])
async def test_get_and_put_are_retried_on_another_broker_when_one_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker, data: bytes, how: str
) -> None:
    """As often as it happens: what is kept of bodies for that is given back with each request."""
    served = await start(broker.url, other.url, limits={"replayTotalBytes": 5})
    for count in range(1, 4):
        client = await served.client(data)
        first = await asked(broker, other)
        request = await first.message()
        getattr(first, how)()
        second = await asked(broker, other)
        assert (second in broker.wires) != (first in broker.wires)
        again = await second.message()
        assert again.body == request.body
        assert again.head.fields[1:] == request.head.fields[1:]  # all but Host
        second.send(CLOSING)
        assert (await client.message()).body == b"ok"
        assert served.number("upstream_errors_total", reason="broker-closed") == count


@ENDS
@pytest.mark.parametrize(
    ("data", "replayed"),
    [(POST, 5), (POST.replace(b"POST", b"PATCH"), 5), (PUT, 3)],
    ids=["POST", "PATCH", "a body beyond replayBytes"],
)
async def test_request_that_must_not_be_sent_twice_is_not_retried_when_broker_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker, data: bytes, replayed: int, how: str
) -> None:
    served = await start(broker.url, other.url, redirects={"replayBytes": replayed})
    client = await served.client(data)
    wire = await asked(broker, other)
    await wire.message()
    getattr(wire, how)()
    assert (await client.message()).refusal == (502, "broker-closed")
    assert len(broker.wires) + len(other.wires) == 1


async def test_retried_upload_is_replayed_from_its_beginning(start: Start, broker: RawBroker, other: RawBroker) -> None:
    """What was sent is kept, what is still to come goes to the next broker at once."""
    served = await start(broker.url, other.url)
    client = await served.client(PUT.replace(b"Content-Length: 5", b"Content-Length: 10"))
    for is_last in (False, True):
        wire = await asked(broker, other)
        await wire.head()
        assert await wire.take(5) == b"hello"
        if not is_last:
            wire.close()
    client.send(b"world")
    assert await wire.take(5) == b"world"
    wire.send(OK)
    assert (await client.message()).body == b"ok"


async def test_upload_beyond_replay_bytes_gets_502_and_closes_when_broker_resets(
    begin: Begin, broker: RawBroker
) -> None:
    data = PUT.replace(b"Content-Length: 5", b"Content-Length: 50000005")
    _, client, wire = await begin(data, redirects={"replayBytes": 1000})
    wire.stall()
    client.send(bytes(50_000_000))
    wire.reset()
    answer = await client.message()
    assert (answer.status, answer.head.one(b"connection")) == (502, b"close")
    assert len(broker.wires) == 1


# Kept connections.


async def kept(begin: Begin, **settings: Any) -> tuple[Served, Wire, Wire]:
    """A client and the broker's connection, which has answered a request and is idle."""
    served, client, wire = await begin(**settings)
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    return served, client, wire


@pytest.mark.parametrize("data", [GET, DELETE, PUT], ids=["GET", "DELETE", "PUT"])
@ENDS
async def test_request_is_sent_again_when_reused_broker_connection_closes_on_use(
    begin: Begin, broker: RawBroker, data: bytes, how: str
) -> None:
    """The broker closes it just as a request comes, which says nothing against the broker."""
    served, client, wire = await kept(begin)
    client.send(data)
    first = await wire.message()
    getattr(wire, how)()
    assert await broker.answer() == first
    assert (await client.message()).body == b"ok"
    assert served.number("upstream_errors_total") == 0


async def test_closed_idle_broker_connection_is_not_reused(begin: Begin, broker: RawBroker) -> None:
    served, client, wire = await kept(begin)
    wire.close()
    await wire.end()
    client.send(GET)
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert served.number("upstream_errors_total") == 0


@pytest.mark.parametrize("pieces", [[POST], [PUT[:-1], PUT[-1:]]], ids=["POST", "a body in pieces"])
async def test_post_or_body_in_pieces_uses_a_new_broker_connection(
    begin: Begin, broker: RawBroker, pieces: list[bytes]
) -> None:
    """A kept one might be closed as it is sent: nobody could tell whether it had an effect, and the body be gone."""
    _, client, wire = await kept(begin)
    for _ in range(3):
        client.send(pieces[0])
        fresh = await broker.accept()
        for piece in pieces[1:]:
            client.send(piece)
        request = await fresh.message()
        fresh.send(OK)
        assert request.head.start == pieces[0].partition(b"\r\n")[0]
        assert (await client.message()).body == b"ok"
        assert await wire.end() == b""  # the new one takes its place: idle ones do not accumulate
        wire = fresh


async def test_idle_broker_connection_closes_after_upstream_idle_timeout(begin: Begin, broker: RawBroker) -> None:
    served, client, wire = await kept(begin, timeouts={"upstreamIdle": 0.05})
    await wire.end()
    client.send(GET)
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert served.number("requests_total", code="200") == served.number("requests_total") == 2
    assert served.number("upstream_errors_total") == 0


async def test_all_broker_connections_needed_at_once_are_kept_and_reused(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    clients = [await served.client(GET) for _ in range(20)]
    wires = [await broker.accept() for _ in clients]
    for _ in range(2):
        for wire in wires:
            await wire.head()
            wire.send(OK)
        for client in clients:
            await client.message()
            client.send(GET)
    assert len(broker.wires) == 20


async def test_connections_that_have_ended_are_freed_without_the_garbage_collector(
    begin: Begin, broker: RawBroker
) -> None:
    served, first, wire = await kept(begin)

    def live() -> int:
        ours = (each for each in gc.get_objects() if type(each).__module__.startswith("pulsar_ingress_proxy.http"))
        return sum(isinstance(each, asyncio.BaseProtocol) for each in ours)

    gc.disable()
    try:
        before = live()
        for _ in range(5):
            client = await served.client(GET)
            await wire.message()
            wire.send(OK)
            await client.message()
            client.close()
        wire.close()
        await wire.end()
        first.send(GET)
        await broker.answer(CLOSING)
        await first.message()
        await settled(lambda: int(served.number("connections")))
        assert live() == before - 1  # the first client's is left, and none of brokers
    finally:
        gc.enable()


# Names.


@pytest.fixture
async def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the host `pulsar-broker` lead to these ports."""
    loop, ports = asyncio.get_running_loop(), list[int]()
    real = loop.getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if host == "pulsar-broker":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports]
        return await real(host, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    return lambda *new: ports.__setitem__(slice(None), new)


async def test_broker_hostname_is_resolved_for_every_new_connection_and_all_its_addresses_tried(
    start: Start, broker: RawBroker, other: RawBroker, resolve: Callable[..., None]
) -> None:
    """Pods move: the next connection goes where the name leads then."""
    served = await start("http://pulsar-broker:8080")
    for number, one in enumerate((broker, other)):
        resolve(free_port(), one.port, free_port())
        for _ in range(5):
            assert await turn(served, broker, other) == number
            assert one.wires[-1].last.one(b"host") == b"pulsar-broker:8080"
    assert served.number("upstream_errors_total") == 0


async def test_a_failure_of_the_resolver_itself_makes_a_broker_unreachable(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises this where glibc's resolver finds no file descriptor left: seen in tests/e2e/faults."""

    async def getaddrinfo(*_: object, **__: object) -> Any:
        raise RuntimeError("AddrInfo.data is NULL")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    served = await start("http://pulsar-broker:8080")
    assert (await served.ask(GET)).refusal == (502, "broker-unreachable")
    assert served.number("upstream_errors_total", reason="broker-unreachable") == 1


# Pinned brokers.


def pinned(port: int) -> dict[str, Any]:
    listeners = f"internal:http://127.0.0.1:{port},external:https://{PINNED.decode()}"
    return {
        "ingresses": [{"name": "public", "hosts": ["*.pulsar.example.com"], "listener": "external"}],
        "advertisedListeners": [{"broker": "broker-0.pulsar.svc", "listeners": listeners}],
    }


@pytest.mark.parametrize("data", [GET, LOOKUP, POST], ids=["GET", "lookup", "POST"])
async def test_pinned_request_is_not_sent_elsewhere_when_broker_is_unreachable(
    start: Start, other: RawBroker, data: bytes
) -> None:
    served = await start(other.url, **pinned(free_port()))
    for times in (1, 2):
        assert (await served.ask(data.replace(b"pulsar", PINNED))).refusal == (502, "broker-unreachable")
        assert served.number("upstream_errors_total") == served.number("requests_total", code="502") == times
    assert other.untouched


async def test_pinned_request_is_not_sent_elsewhere_when_broker_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker
) -> None:
    served = await start(other.url, **pinned(broker.port))
    client = await served.client(GET.replace(b"pulsar", PINNED))
    wire = await broker.accept()
    await wire.head()
    wire.close()
    assert (await client.message()).refusal == (502, "broker-closed")
    assert other.untouched
