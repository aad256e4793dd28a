"""Brokers that die, stall or talk nonsense: the client never takes part of an answer for the whole."""

import asyncio
import json
from collections.abc import Callable

import pytest
from raw import OK, Begin, Message, RawBroker, Served, Start
from standstill import settled
from wires import unused_port

from pulsar_ingress_proxy.http.upstream import HEAD_LIMIT, UpstreamConnection
from pulsar_ingress_proxy.net.errors import BadAnswer
from pulsar_ingress_proxy.syntax.listeners import parse_service_url

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
GET_10 = b"GET /admin/v2/clusters HTTP/1.0\r\n\r\n"
LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/x HTTP/1.1\r\nHost: pulsar\r\n\r\n"
POST = b"POST /topics/persistent/t/n/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 5\r\n\r\nhello"
TINY = {"request": 0.05, "lookup": 0.05}
HOUR = {"request": 3600, "lookup": 3600}


def reason(message: Message) -> str:
    return str(json.loads(message.body)["reason"]).partition(":")[0]


# In the middle of an answer.

PARTS = {
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
    "an open chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsome",
    "the last chunk's line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\n",
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
async def test_answer_truncated_by_broker_looks_truncated_to_http_1_1_client(
    begin: Begin, broker: RawBroker, part: bytes, how: str
) -> None:
    served, client, wire = await begin()
    wire.send(part)
    head = await client.head()
    await client.take_until(b"some")
    getattr(wire, how)()
    await client.end()
    assert head.all(b"content-length") == [b"10"] or b"0\r\n" not in client.buffer
    assert served.number("upstream_errors_total", reason="broker-truncated") == 1
    assert served.number("requests_total", code="200") == 1


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
async def test_answer_truncated_by_broker_looks_truncated_to_http_1_0_client(begin: Begin, part: bytes) -> None:
    """Where the end of the connection is the end of the answer, only a reset says that it is not."""
    _, client, wire = await begin(GET_10)
    wire.send(part)
    head = await client.head()
    wire.close()
    await client.end()
    assert head.all(b"content-length") == [b"10"] or isinstance(client.error, ConnectionResetError)


async def test_broker_reset_does_not_complete_answer_delimited_by_close(begin: Begin) -> None:
    """An answer that ends with its connection ends with FIN, not with RST."""
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
    await client.take_until(b"some\r\n")
    wire.reset()
    await client.end()
    assert b"0\r\n" not in client.buffer


async def test_broker_stall_times_out_and_does_not_complete_answer_delimited_by_close(
    begin: Begin, broker: RawBroker
) -> None:
    served, client, wire = await begin(timeouts=TINY)
    wire.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
    await client.take_until(b"some\r\n")
    await client.end()
    assert b"0\r\n" not in client.buffer
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1
    await wire.end()


async def test_truncated_lookup_answer_becomes_502_broker_truncated(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin(LOOKUP, lookupListenerName="external")
    wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"brokerUrl":')
    wire.close()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (502, "broker-truncated")


async def test_truncated_answer_head_becomes_502_and_is_not_retried(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    wire.close()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (502, "broker-truncated")
    assert len(broker.wires) == 1  # it may have had an effect, so it is not asked again


# Nonsense.

NONSENSE = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "the binary protocol": b"\x00\x00\x00\x10\x00\x00\x00\x0c\x08\x03" + bytes(10),
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "HTTP/0.9": b"<html></html>",
    "HTTP/3.0": b"HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "a status of words": b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\nok",
    "status 0": b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok",
    "status 99": b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
    "length and chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "one length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "a coding nobody asked for": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "a coding within chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "a folded field": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "a bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a bare CR": b"HTTP/1.1 200 OK\r\nX-A: b\rX-B: c\r\nContent-Length: 2\r\n\r\nok",
    "a NUL": b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 2\r\n\r\nok",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a head beyond all limits": b"HTTP/1.1 200 OK\r\n" + b"X-A: %b\r\n" % (b"x" * 1000) * 400,
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n" * 10000,
    "a switch nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "a switch to nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
}


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
async def test_malformed_broker_answer_becomes_502_and_client_connection_survives(
    begin: Begin, broker: RawBroker, data: bytes, method: bytes
) -> None:
    served, client, wire = await begin(GET.replace(b"GET", method))
    wire.send(data)
    head = await client.head()
    if data == NONSENSE["a bad chunk"] and method == b"HEAD":
        assert head.status == 200  # whose chunks are nobody's business
    else:
        assert head.status == 502
        if method == b"GET":
            body = json.loads(await client.take(int(head.one(b"content-length"))))
            assert str(body["reason"]).startswith("bad-answer: ")
        assert served.number("upstream_errors_total", reason="bad-answer") == 1
    client.send(GET)  # the client's own connection is none the worse
    await wire.end()
    await broker.answer()
    assert (await client.message()).body == b"ok"


async def test_malformed_chunk_from_broker_cuts_off_the_answer(begin: Begin) -> None:
    served, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n")
    await client.take_until(b"some\r\n")
    wire.send(b"x\r\n")
    await client.end()
    assert not client.buffer
    assert served.number("upstream_errors_total", reason="bad-answer") == 1


# The size of a head.


def answer_with_head(size: int, body: bytes = b"", interim: bytes = b"") -> bytes:
    """An answer whose head, with interim answers, has so many bytes."""
    head = interim + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: " % len(body)
    return head + b"x" * (size - len(head) - len(b"\r\n\r\n")) + b"\r\n\r\n" + body


HINTS = b"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n"
INTERIM = {"no interim answer": b"", "one interim answer": HINTS, "many interim answers": HINTS * 1000}
CUTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "at once": lambda data: [data],
    "head and body": lambda data: [data[: data.rindex(b"\r\n\r\n") + 4], data[data.rindex(b"\r\n\r\n") + 4 :]],
    "in pieces": lambda data: [data[start : start + 1000] for start in range(0, len(data), 1000)],
    "one byte first": lambda data: [data[:1], data[1:]],
    "all but one byte first": lambda data: [data[:HEAD_LIMIT], data[HEAD_LIMIT:]],
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("interim", INTERIM.values(), ids=INTERIM.keys())
@pytest.mark.parametrize("body", [b"", b"body" * 25_000], ids=["no body", "a body"])
@pytest.mark.parametrize("beyond", [0, 1, 100_000])
async def test_answer_head_limit_is_exact_however_the_bytes_are_split(
    tidy: None, cut: Callable[[bytes], list[bytes]], interim: bytes, body: bytes, beyond: int
) -> None:
    connection = UpstreamConnection(asyncio.get_running_loop(), parse_service_url("http://broker:8080"))
    connection.ask("GET", b"")
    for piece in cut(answer_with_head(HEAD_LIMIT + beyond, body, interim)):
        if piece:
            connection.data_received(piece)
    if beyond:
        with pytest.raises(BadAnswer, match="65536"):
            await connection.head(10)
    else:
        await connection.head(10)
        assert (connection.status, connection.complete, connection.take()) == (200, True, body)


@pytest.mark.parametrize("size", [HEAD_LIMIT - 10, HEAD_LIMIT])
async def test_bytes_received_with_101_answer_are_kept_even_at_the_head_limit(tidy: None, size: int) -> None:
    connection = UpstreamConnection(asyncio.get_running_loop(), parse_service_url("http://broker:8080"))
    connection.ask("GET", b"")
    start = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-A: "
    connection.data_received(start + b"x" * (size - len(start) - 4) + b"\r\n\r\n" + b"frames" * 20)
    assert (connection.status, connection.tail) == (101, b"frames" * 20)


@pytest.mark.parametrize("interim", INTERIM.values(), ids=INTERIM.keys())
async def test_oversized_answer_head_received_at_once_becomes_502_bad_answer(
    start: Start, broker: RawBroker, interim: bytes
) -> None:
    served = await start(broker.url)
    client = await served.client(GET)
    await broker.answer(answer_with_head(HEAD_LIMIT + 1, b"body", interim))
    answer = await client.message()
    assert (answer.status, json.loads(answer.body)["reason"].partition(":")[0]) == (502, "bad-answer")
    client.send(GET)
    await broker.answer(answer_with_head(HEAD_LIMIT, b"body", interim))
    assert (await client.message()).body == b"body"


# More than one answer.


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
async def test_unsolicited_second_answer_is_dropped_and_broker_connection_closes(
    begin: Begin, broker: RawBroker, method: bytes
) -> None:
    """Neither does it change the first, nor is it kept for the next request."""
    _, client, wire = await begin(GET.replace(b"GET", method))
    body = b"" if method == b"HEAD" else b"ok"
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%bHTTP/1.1 599 Forged\r\nX-A: b\r\n" % (len(body), body))
    answer = await client.message()
    assert answer.head.raw == b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert answer.body == body
    client.send(GET)
    await wire.end()
    await broker.answer(OK.replace(b"ok", b"no"))
    assert (await client.message()).body == b"no"


async def test_bytes_on_idle_broker_connection_close_it(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin()
    wire.send(OK)
    await client.message()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    await wire.end()
    client.send(GET)
    await broker.answer()
    assert (await client.message()).body == b"ok"


async def test_body_in_answer_to_head_request_closes_broker_connection(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin(GET.replace(b"GET", b"HEAD"))
    wire.send(OK)
    assert (await client.head()).one(b"content-length") == b"2"
    await wire.end()
    client.send(GET)
    await broker.answer()
    assert (await client.message()).body == b"ok"


# Time.


@pytest.mark.parametrize(
    ("data", "timeouts"),
    [(GET, HOUR | {"request": 0.05}), (POST, HOUR | {"request": 0.05}), (LOOKUP, HOUR | {"lookup": 0.05})],
)
async def test_request_gets_504_when_broker_does_not_answer_in_time(
    start: Start, broker: RawBroker, data: bytes, timeouts: dict[str, float]
) -> None:
    served = await start(broker.url, timeouts=timeouts)
    client = await served.client(data)
    wire = await broker.accept()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (504, "broker-timeout")
    await wire.end()
    assert len(broker.wires) == 1
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1


async def test_lookup_gets_504_when_answer_body_stalls(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin(LOOKUP, timeouts=HOUR | {"lookup": 0.05}, lookupListenerName="external")
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
    answer = await client.message()
    assert (answer.status, reason(answer)) == (504, "broker-timeout")


async def test_upload_gets_504_when_broker_does_not_read_the_body(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, timeouts=HOUR | {"request": 0.2})
    client = await served.client(POST.replace(b"Content-Length: 5", b"Content-Length: 100000000"))
    wire = await broker.accept()
    wire.stall()
    client.send(bytes(50_000_000))
    answer = await client.message()
    assert (answer.status, reason(answer)) == (504, "broker-timeout")


async def test_request_gets_502_broker_unreachable_when_connection_is_refused(start: Start) -> None:
    served = await start(f"http://127.0.0.1:{unused_port()}")
    answer = await served.ask(GET)
    assert (answer.status, reason(answer)) == (502, "broker-unreachable")
    assert served.number("upstream_errors_total", reason="broker-unreachable") == 1


@pytest.mark.parametrize("host", ["nobody.invalid", "x" * 70 + ".invalid"])
async def test_request_gets_502_broker_unreachable_when_host_does_not_resolve(start: Start, host: str) -> None:
    served = await start(f"http://{host}:8080")
    answer = await served.ask(GET)
    assert (answer.status, reason(answer)) == (502, "broker-unreachable")


# A client that leaves.


async def ended_without_fault(served: Served) -> None:
    """The one request is counted once and as begun, no broker is blamed for it, and nothing is held for it any more."""
    buffers = served.sidecar._context.buffers
    await settled(lambda: int(served.number("in_flight_requests")), lambda: buffers.used)
    assert served.number("requests_total", code="200") == served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0
    assert served.number("in_flight_requests") == 0
    assert buffers.used == 0


@pytest.mark.parametrize(
    ("data", "how", "code"),
    [
        (GET, "close", "499"),
        (GET, "reset", "499"),
        (POST, "close", "499"),
        (POST, "reset", "499"),
        (LOOKUP, "close", "499"),
        (POST.replace(b"h: 5", b"h: 50"), "close", "400"),
        (POST.replace(b"h: 5", b"h: 50"), "reset", "499"),
    ],
)
async def test_broker_connection_closes_when_client_leaves_before_the_answer(
    begin: Begin, data: bytes, how: str, code: str
) -> None:
    served, client, wire = await begin(data, timeouts=HOUR)
    getattr(client, how)()
    await wire.end()
    await served.sidecar.stop()
    assert served.number("upstream_errors_total") == 0
    assert served.number("requests_total", code=code) == served.number("requests_total") == 1


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_broker_connection_closes_when_client_leaves_during_the_answer(begin: Begin, how: str) -> None:
    served, client, wire = await begin(timeouts=HOUR)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nsome")
    await client.take_until(b"some")
    getattr(client, how)()
    await wire.end()
    await ended_without_fault(served)


async def test_broker_connection_closes_when_client_leaves_without_reading_the_answer(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url, timeouts=HOUR)
    client = await served.client(GET)
    client.stall()
    wire = await broker.accept()
    await wire.head()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(50_000_000))
    await settled(wire.transport.get_write_buffer_size)
    (connection,) = served.sidecar.http_servers[0]._clients
    assert connection.is_paused
    client.reset()
    await wire.end()
    await ended_without_fault(served)
