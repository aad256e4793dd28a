"""Brokers that die, stall or talk nonsense: the client never takes part of an answer for the whole."""

import asyncio
from collections.abc import Callable

import pytest
from raw import GET, HANDSHAKE, LOOKUP, OK, POST, Begin, RawBroker, Served, Start
from standstill import settled

GET_10 = GET.replace(b"HTTP/1.1", b"HTTP/1.0")
HEAD = GET.replace(b"GET", b"HEAD")
HOUR = {"request": 3600, "lookup": 3600}
UNTIL_THE_END = b"HTTP/1.1 200 OK\r\n\r\nsome"
ENDS = pytest.mark.parametrize("how", ["close", "reset"])

# In the middle of an answer.

PARTS = {
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n",
    "an open chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsome",
    "the last chunk's line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\n",
}


@ENDS
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("data", [GET, GET_10], ids=["1.1", "1.0"])
async def test_answer_truncated_by_broker_looks_truncated_to_the_client(
    begin: Begin, data: bytes, part: bytes, how: str
) -> None:
    """With HTTP/1.0 the end of the connection is the end of the answer: only a reset says that it is not."""
    served, client, wire = await begin(data)
    wire.send(part)
    head = await client.head()
    await client.take_until(b"some")
    getattr(wire, how)()
    rest = await client.end()
    if not head.all(b"content-length"):
        assert isinstance(client.error, ConnectionResetError) if data == GET_10 else b"0\r\n" not in rest
    assert served.number("upstream_errors_total", reason="broker-truncated") == 1
    assert served.number("requests_total", code="200") == 1


@pytest.mark.parametrize(
    ("spoil", "code"), [(b"x\r\n", "bad-answer"), (None, "broker-truncated")], ids=["a bad chunk", "a reset"]
)
async def test_broken_answer_is_cut_off_and_never_completed(begin: Begin, spoil: bytes | None, code: str) -> None:
    """An answer that ends with its connection ends with FIN, not with RST."""
    served, client, wire = await begin()
    wire.send(PARTS["chunks"] if spoil else UNTIL_THE_END)
    await client.take_until(b"some\r\n")
    wire.send(spoil) if spoil else wire.reset()
    assert await client.end() == b""
    assert served.number("upstream_errors_total", reason=code) == 1


async def test_broker_stall_times_out_and_does_not_complete_answer_delimited_by_close(begin: Begin) -> None:
    served, client, wire = await begin(timeouts={"request": 0.05})
    wire.send(UNTIL_THE_END)
    await client.take_until(b"some\r\n")
    assert await client.end() == b""
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1
    await wire.end()


@pytest.mark.parametrize(
    ("data", "part"),
    [(LOOKUP, b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"brokerUrl":'), (GET, b"HTTP/1.1 200 OK\r\nContent-Le")],
    ids=["a lookup's body", "a head"],
)
async def test_answer_truncated_before_the_client_got_any_becomes_502_and_is_not_retried(
    begin: Begin, broker: RawBroker, data: bytes, part: bytes
) -> None:
    served, client, wire = await begin(data, lookupListenerName="external")
    wire.send(part)
    wire.close()
    assert (await client.message()).refusal == (502, "broker-truncated")
    assert len(broker.wires) == 1  # it may have had an effect, so it is not asked again
    assert served.number("upstream_errors_total", reason="broker-truncated") == 1


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
    "a length in words": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
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


@pytest.mark.parametrize("request_data", [GET, HEAD], ids=["GET", "HEAD"])
@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
async def test_malformed_broker_answer_becomes_502_and_client_connection_survives(
    begin: Begin, broker: RawBroker, data: bytes, request_data: bytes
) -> None:
    served, client, wire = await begin(request_data)
    wire.send(data)
    answer = await client.message(bodiless=request_data == HEAD)
    if data == NONSENSE["a bad chunk"] and request_data == HEAD:
        assert answer.status == 200  # whose chunks are nobody's business
    else:
        assert answer.status == 502
        assert request_data == HEAD or answer.refusal == (502, "bad-answer")
        assert served.number("upstream_errors_total", reason="bad-answer") == 1
    client.send(GET)  # the client's own connection stays usable
    await wire.end()
    await broker.answer()
    assert (await client.message()).body == b"ok"


# The size of a head.

HEAD_LIMIT = 65536


def padded(size: int, head: bytes) -> bytes:
    """A head of so many bytes."""
    return head + b"X-A: " + b"x" * (size - len(head) - len(b"X-A: \r\n\r\n")) + b"\r\n\r\n"


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
async def test_answer_head_limit_is_exact_however_the_bytes_are_split(
    start: Start, broker: RawBroker, cut: Callable[[bytes], list[bytes]], interim: bytes
) -> None:
    """Interim answers count with the head that they announce, and a body does not."""
    served = await start(broker.url)
    client = await served.client()
    for body in (b"", b"body" * 25_000):
        for beyond in (0, 1, 100_000):
            client.send(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n").replace(b"GET", b"POST"))
            wire = await broker.accept()
            await wire.message()
            head = padded(HEAD_LIMIT + beyond, interim + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body))
            for piece in cut(head + body):
                wire.send(piece)
                await asyncio.sleep(0)
            answer = await client.message()
            if beyond:
                assert answer.refusal == (502, "bad-answer")
            else:
                assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize(("size", "frames"), [(HEAD_LIMIT - 10, 20), (HEAD_LIMIT, 20), (500, 20_000)])
async def test_bytes_received_with_101_answer_are_kept_even_at_the_head_limit(
    begin: Begin, size: int, frames: int
) -> None:
    _, client, wire = await begin(HANDSHAKE, timeouts={"request": 0.2})
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    wire.send(padded(size, switch) + b"frames" * frames)
    assert (await client.head()).status == 101
    assert await client.take(6 * frames) == b"frames" * frames


async def test_fields_of_an_interim_answer_do_not_count_for_the_final_one(begin: Begin) -> None:
    served, client, wire = await begin(LOOKUP, lookupListenerName="external")
    interim = b"HTTP/1.1 103 Early Hints\r\nLocation: http://a.example.com/\r\nContent-Encoding: gzip\r\n\r\n"
    wire.send(interim + b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n\r\n")
    answer = await client.message()
    assert (answer.status, answer.head.all(b"location")) == (307, [])
    assert served.number("redirects_total", action="passed") == 0


@pytest.mark.parametrize("named", [b"X-A", b"Location"])
async def test_only_the_first_location_reaches_the_client(begin: Begin, named: bytes) -> None:
    """It is the one that was decided about, also if Connection names fields that are dropped."""
    _, client, wire = await begin(GET, lookupListenerName="external")
    fields = b"X-A: b\r\nLocation: /first\r\nLocation: http://10.0.0.1/second\r\nX-B: c\r\nConnection: %b" % named
    wire.send(b"HTTP/1.1 307 Temporary Redirect\r\n%b\r\nContent-Length: 0\r\n\r\n" % fields)
    answer = await client.message()
    assert answer.head.all(b"location") == ([b"/first"] if named == b"X-A" else [])
    assert answer.head.all(b"x-b") == [b"c"]


# More than one answer.


FORGED = b"HTTP/1.1 599 Forged\r\nX-A: b\r\n"


@pytest.mark.parametrize(
    ("data", "answer", "more"),
    [
        pytest.param(GET, OK, FORGED, id="GET"),
        pytest.param(POST, OK, FORGED, id="POST"),
        pytest.param(HEAD, OK.removesuffix(b"ok"), FORGED, id="HEAD"),
        pytest.param(HEAD, OK.removesuffix(b"ok"), b"ok", id="a body for HEAD"),
    ],
)
async def test_unsolicited_bytes_behind_an_answer_are_dropped_and_broker_connection_closes(
    begin: Begin, broker: RawBroker, data: bytes, answer: bytes, more: bytes
) -> None:
    """Neither do they change the answer, nor are they kept for the next request."""
    _, client, wire = await begin(data)
    wire.send(answer + more)
    got = await client.message(bodiless=data == HEAD)
    assert got.head.raw + got.body == answer
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


# Time.


async def test_lookup_gets_504_when_answer_body_stalls(begin: Begin) -> None:
    _, client, wire = await begin(LOOKUP, timeouts=HOUR | {"lookup": 0.05}, lookupListenerName="external")
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
    assert (await client.message()).refusal == (504, "broker-timeout")


async def test_upload_gets_504_when_broker_does_not_read_the_body(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, timeouts=HOUR | {"request": 0.2})
    client = await served.client(POST.replace(b"Content-Length: 5", b"Content-Length: 100000000"))
    wire = await broker.accept()
    wire.stall()
    client.send(bytes(50_000_000))
    assert (await client.message()).refusal == (504, "broker-timeout")


@pytest.mark.parametrize("host", ["nobody.invalid", "x" * 70 + ".invalid"])
async def test_request_gets_502_broker_unreachable_when_host_does_not_resolve(start: Start, host: str) -> None:
    """Even one that no resolver takes, for a label of more than 63 letters."""
    served = await start(f"http://{host}:8080")
    assert (await served.ask(GET)).refusal == (502, "broker-unreachable")


# A client that leaves.


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


async def ended_without_fault(served: Served) -> None:
    """The one request is counted once and as begun, no broker is blamed for it, and nothing is held for it any more."""
    await settled(lambda: int(served.number("in_flight_requests")), lambda: int(served.number("buffered_bytes")))
    assert served.number("requests_total", code="200") == served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0
    assert served.number("in_flight_requests") == served.number("buffered_bytes") == 0


@ENDS
async def test_broker_connection_closes_when_client_leaves_during_the_answer(begin: Begin, how: str) -> None:
    served, client, wire = await begin(timeouts=HOUR)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nsome")
    await client.take_until(b"some")
    getattr(client, how)()
    await wire.end()
    await ended_without_fault(served)


async def test_broker_connection_closes_when_client_leaves_without_reading_the_answer(begin: Begin) -> None:
    served, client, wire = await begin(timeouts=HOUR)
    client.stall()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(50_000_000))
    await settled(wire.transport.get_write_buffer_size)
    assert wire.transport.get_write_buffer_size()  # the sidecar reads no more
    client.reset()
    await wire.end()
    await ended_without_fault(served)
