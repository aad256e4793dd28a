"""Several brokers: whose turn it is, what is tried again and on whom, and which connections are kept."""

import asyncio
import gc
import json
import socket
import weakref
from typing import Any

import pytest
from raw import OK, Begin, Message, RawBroker, Served, Start
from wires import unused_port

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
PUT = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 5\r\n\r\nhello"
POST = PUT.replace(b"PUT", b"POST")


def reason(message: Message) -> str:
    return str(json.loads(message.body)["reason"]).partition(":")[0]


def refusing() -> str:
    return f"http://127.0.0.1:{unused_port()}"


async def asked(served: Served, data: bytes, *brokers: RawBroker) -> int:
    """Which of these brokers gets a request; it is answered."""
    client = await served.client(data)
    accepting = [asyncio.ensure_future(broker.accept()) for broker in brokers]
    done, waiting = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    for accept in waiting:
        accept.cancel()
    (accept,) = done
    wire = accept.result()
    await wire.message()
    wire.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (await client.message()).status == 200
    client.close()
    return accepting.index(accept)


# Turns.


async def test_brokers_are_asked_in_turn(start: Start, broker: RawBroker, other: RawBroker) -> None:
    served = await start(broker.url, other.url)
    turns = [await asked(served, GET, broker, other) for _ in range(6)]
    assert turns in ([0, 1] * 3, [1, 0] * 3)


async def test_a_broker_that_failed_is_asked_last(start: Start, broker: RawBroker) -> None:
    served = await start(refusing(), broker.url)
    for _ in range(5):
        assert await asked(served, GET, broker) == 0
    assert served.number("upstream_errors_total", reason="broker-unreachable") == 1


async def test_failed_broker_is_asked_again_when_it_is_the_only_one(start: Start, broker: RawBroker) -> None:
    await broker.close()
    served = await start(broker.url)
    assert (await served.ask(GET)).status == 502
    await broker.open(broker.port)
    assert await asked(served, GET, broker) == 0


async def test_request_gets_502_after_three_unreachable_brokers(start: Start) -> None:
    served = await start(*(refusing() for _ in range(5)))
    answer = await served.ask(GET)
    assert (answer.status, reason(answer)) == (502, "broker-unreachable")
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


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("data", [GET, PUT], ids=["GET", "PUT"])
async def test_get_and_put_are_retried_on_another_broker_when_one_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker, data: bytes, how: str
) -> None:
    served = await start(broker.url, other.url)
    client = await served.client(data)
    accepting = [asyncio.ensure_future(each.accept()) for each in (broker, other)]
    (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    request = await first.result().message()
    getattr(first.result(), how)()
    wire = await second
    again = await wire.message()
    assert again.body == request.body
    assert again.head.fields[1:] == request.head.fields[1:]  # all but Host
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert served.number("upstream_errors_total", reason="broker-closed") == 1


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("method", [b"POST", b"PATCH"])
async def test_post_and_patch_are_not_retried_when_broker_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker, method: bytes, how: str
) -> None:
    served = await start(broker.url, other.url)
    client = await served.client(POST.replace(b"POST", method))
    accepting = [asyncio.ensure_future(each.accept()) for each in (broker, other)]
    (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    await first.result().message()
    getattr(first.result(), how)()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (502, "broker-closed")
    assert len(broker.wires) + len(other.wires) == 1


async def test_retried_upload_is_replayed_from_its_beginning(start: Start, broker: RawBroker, other: RawBroker) -> None:
    """What was sent is kept, what is still to come goes to the next broker at once."""
    served = await start(broker.url, other.url)
    client = await served.client(PUT.replace(b"Content-Length: 5", b"Content-Length: 10"))
    accepting = [asyncio.ensure_future(each.accept()) for each in (broker, other)]
    (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    await first.result().head()
    assert await first.result().take(5) == b"hello"
    first.result().close()
    wire = await second
    await wire.head()
    assert await wire.take(5) == b"hello"
    client.send(b"world")
    assert await wire.take(5) == b"world"
    wire.send(OK)
    assert (await client.message()).body == b"ok"


async def test_upload_beyond_replay_bytes_is_not_retried(start: Start, broker: RawBroker, other: RawBroker) -> None:
    served = await start(broker.url, other.url, redirects={"replayBytes": 3})
    client = await served.client(PUT)
    accepting = [asyncio.ensure_future(each.accept()) for each in (broker, other)]
    (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    await first.result().message()
    first.result().close()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (502, "broker-closed")
    assert len(broker.wires) + len(other.wires) == 1


async def test_replay_budget_is_released_after_each_request(start: Start, broker: RawBroker, other: RawBroker) -> None:
    """All bodies together may keep five bytes: each has them to itself once the one before is done."""
    served = await start(broker.url, other.url, limits={"replayTotalBytes": 5})
    for _ in range(3):
        client = await served.client(PUT)
        accepting = [asyncio.ensure_future(each.accept()) for each in (broker, other)]
        (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
        await first.result().message()
        first.result().close()
        wire = await second
        assert (await wire.message()).body == b"hello"
        wire.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await client.message()).body == b"ok"
        client.close()


# Kept connections.


@pytest.mark.parametrize("data", [GET, GET.replace(b"GET", b"DELETE")], ids=["GET", "DELETE"])
async def test_request_is_retried_when_reused_broker_connection_closes_on_use(
    begin: Begin, broker: RawBroker, data: bytes
) -> None:
    """The broker closes it just as a request comes, which says nothing against the broker."""
    served, client, wire = await begin()
    wire.send(OK)
    await client.message()
    client.send(data)
    await wire.message()
    wire.close()
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert served.number("upstream_errors_total") == 0


async def test_closed_idle_broker_connection_is_not_reused(begin: Begin, broker: RawBroker) -> None:
    served, client, wire = await begin()
    wire.send(OK)
    await client.message()
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
    _, client, wire = await begin()
    wire.send(OK)
    await client.message()
    client.send(pieces[0])
    fresh = await broker.accept()
    for piece in pieces[1:]:
        client.send(piece)
    request = await fresh.message()
    fresh.send(OK)
    assert request.head.start == pieces[0].partition(b"\r\n")[0]
    assert (await client.message()).body == b"ok"
    assert not wire.buffer


async def test_whole_idempotent_body_is_sent_again_when_a_kept_connection_was_closed(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url)
    client = await served.client(PUT)
    wire = await broker.accept()
    first = await wire.message()
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    client.send(PUT)
    assert await wire.message() == first
    wire.reset()
    assert await broker.answer() == first
    assert (await client.message()).body == b"ok"
    assert served.number("upstream_errors_total") == 0


async def test_idle_broker_connection_closes_after_upstream_idle_timeout(begin: Begin) -> None:
    served, client, wire = await begin(timeouts={"upstreamIdle": 0.05})
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    await wire.end()
    assert not client.ended
    assert served.number("requests_total", code="200") == served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0


async def test_all_broker_connections_needed_at_once_are_kept_and_reused(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    clients = [await served.client(GET) for _ in range(20)]
    wires = [await broker.accept() for _ in clients]
    for wire in wires:
        await wire.head()
        wire.send(OK)
    for client in clients:
        await client.message()
        client.send(GET)
    for wire in wires:
        await wire.head()
        wire.send(OK)
    for client in clients:
        await client.message()
    assert len(broker.wires) == 20


async def test_requests_needing_new_broker_connections_do_not_accumulate_idle_ones(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url, timeouts={"upstreamIdle": 3600})
    client = await served.client()
    for _ in range(5):
        client.send(POST)
        await broker.answer()
        assert (await client.message()).body == b"ok"
    *replaced, last = broker.wires
    for wire in replaced:
        await wire.end()
    assert not last.ended


async def test_a_connection_that_has_ended_is_freed_without_the_garbage_collector(broker: RawBroker) -> None:
    loop, url = asyncio.get_running_loop(), ServiceUrl("http", "127.0.0.1", str(broker.port))
    gc.disable()
    try:
        transport, connection = await loop.create_connection(
            lambda: UpstreamConnection(loop, url), "127.0.0.1", broker.port
        )
        reference = weakref.ref(connection)
        wire = await broker.accept()
        connection.close()
        await wire.end()
        del transport, connection
        assert reference() is None
    finally:
        gc.enable()


# Names.


async def test_broker_hostname_is_resolved_for_every_new_connection(
    start: Start, broker: RawBroker, other: RawBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods move: the next connection goes where the name leads then."""
    where = broker
    real = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if host == "pulsar-broker.pulsar.svc":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", where.port))]
        return await real(host, port, **options)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    served = await start("http://pulsar-broker.pulsar.svc:8080")
    assert await asked(served, GET, broker, other) == 0
    where = other
    assert await asked(served, GET, broker, other) == 1


async def test_every_address_of_a_broker_hostname_is_tried(
    start: Start, broker: RawBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = asyncio.get_running_loop().getaddrinfo
    ports = [unused_port(), broker.port, unused_port()]

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        if host == "pulsar-broker":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports]
        return await real(host, port, **options)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    served = await start("http://pulsar-broker:8080")
    for _ in range(5):
        client = await served.client(GET)
        request = await broker.answer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert request.head.one(b"host") == b"pulsar-broker:8080"
        assert (await client.message()).status == 200
    assert served.number("upstream_errors_total") == 0


# Pinned brokers.


def pinned(port: int) -> dict[str, Any]:
    listeners = f"internal:http://127.0.0.1:{port},external:https://broker-0.pulsar.example.com"
    return {
        "ingresses": [{"name": "public", "hosts": ["*.pulsar.example.com"], "listener": "external"}],
        "advertisedListeners": [{"broker": "broker-0.pulsar.svc", "listeners": listeners}],
    }


async def test_request_to_a_brokers_own_host_goes_to_that_broker(
    start: Start, broker: RawBroker, other: RawBroker
) -> None:
    served = await start(other.url, **pinned(broker.port))
    for _ in range(3):
        assert await asked(served, GET.replace(b"pulsar", b"broker-0.pulsar.example.com"), broker, other) == 0
    assert await asked(served, GET, broker, other) == 1


@pytest.mark.parametrize("data", [GET, POST], ids=["GET", "POST"])
async def test_pinned_request_is_not_sent_elsewhere_when_broker_is_unreachable(
    start: Start, other: RawBroker, data: bytes
) -> None:
    served = await start(other.url, **pinned(unused_port()))
    for _ in range(2):
        answer = await served.ask(data.replace(b"pulsar", b"broker-0.pulsar.example.com"))
        assert (answer.status, reason(answer)) == (502, "broker-unreachable")
    assert other.untouched


async def test_pinned_request_is_not_sent_elsewhere_when_broker_closes_without_answer(
    start: Start, broker: RawBroker, other: RawBroker
) -> None:
    served = await start(other.url, **pinned(broker.port))
    client = await served.client(GET.replace(b"pulsar", b"broker-0.pulsar.example.com"))
    wire = await broker.accept()
    await wire.head()
    wire.close()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (502, "broker-closed")
    assert other.untouched


async def test_unresolvable_host_from_address_template_gets_502(start: Start, other: RawBroker) -> None:
    """Even one that no resolver takes, for a label of more than 63 letters."""
    listeners = "internal:http://broker-{n}.invalid:8080,external:https://broker-{n}.pulsar.example.com"
    settings = pinned(1) | {"advertisedListeners": [{"broker": "broker-{n}.invalid", "listeners": listeners}]}
    served = await start(other.url, **settings)
    answer = await served.ask(GET.replace(b"pulsar", b"broker-%b.pulsar.example.com" % (b"x" * 70)))
    assert (answer.status, reason(answer)) == (502, "broker-unreachable")
    assert other.untouched
