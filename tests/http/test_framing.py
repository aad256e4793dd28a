"""How bodies are delimited on both sides, and that they are streamed: RFC 9112 6 and 7."""

import asyncio
import gzip
import hashlib

import pytest
from raw import OK, Begin, RawBroker, Start, Wire
from standstill import settled

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
GET_10 = b"GET /admin/v2/clusters HTTP/1.0\r\n\r\n"
PIECE = bytes(range(256)) * 256
LARGE = 1024
"""Pieces of a body that no buffers on the way can hold together: 64 MiB."""


def post(*fields: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST /topics/persistent/t/n/x HTTP/" + version, b"Host: pulsar", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


# Requests.


async def test_a_request_without_a_body_is_forwarded_without_one(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(GET)
    request = await broker.answer()
    assert not {b"content-length", b"transfer-encoding"} & {*request.head.names}
    assert (await client.message()).body == b"ok"


async def test_request_body_keeps_its_content_length_and_is_streamed(begin: Begin) -> None:
    _, client, wire = await begin(post(b"Content-Length: 5") + b"he")
    head = wire.last
    assert head.one(b"content-length") == b"5"
    assert await wire.take(2) == b"he"
    client.send(b"llo")
    assert await wire.take(3) == b"llo"
    wire.send(OK)
    assert (await client.message()).status == 200


async def test_chunked_request_body_stays_chunked_without_extensions_or_trailers(begin: Begin) -> None:
    _, client, wire = await begin(post(b"Transfer-Encoding: chunked") + b"3;name=value\r\nabc\r\n")
    assert wire.last.one(b"transfer-encoding") == b"chunked"
    assert await wire.take(8) == b"3\r\nabc\r\n"
    client.send(b"2\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n")
    assert await wire.chunks() == b"de"
    wire.send(OK)
    assert (await client.message()).status == 200


async def test_empty_post_is_forwarded_with_content_length_0(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(post(b"Content-Length: 0"))
    request = await broker.answer()
    assert request.head.one(b"content-length") == b"0"
    assert (await client.message()).status == 200


async def test_client_upload_is_paused_while_broker_does_not_read(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, redirects={"replayBytes": 0})
    client = await served.client(post(b"Content-Length: %d" % (LARGE * len(PIECE))))
    wire = await broker.accept()
    wire.stall()
    sent = 0

    async def upload() -> None:
        nonlocal sent
        for _ in range(LARGE):
            await client.send_slowly(PIECE)
            sent += 1

    sender = asyncio.create_task(upload())
    await settled(lambda: sent)
    assert not sender.done()
    assert wire.total == 0
    wire.resume()
    head = await wire.head()
    await _digest(wire, int(head.one(b"content-length")))
    await sender
    wire.send(OK)
    assert (await client.message()).status == 200


async def _digest(wire: Wire, size: int) -> None:
    """Take that much, piece by piece, and see that it is what was sent."""
    found, expected = hashlib.sha256(), hashlib.sha256()
    assert size == LARGE * len(PIECE)
    for _ in range(LARGE):
        found.update(await wire.take(len(PIECE)))
        expected.update(PIECE)
    assert found.digest() == expected.digest()


async def test_chunked_request_body_is_forwarded_as_each_chunk_arrives(begin: Begin) -> None:
    """Also what goes in chunks, and what a replay could still need."""
    _, client, wire = await begin(post(b"Transfer-Encoding: chunked"))
    for size in (1, 1000, 70000):
        client.send(b"%x\r\n%b\r\n" % (size, b"x" * size))
        got = 0
        while got < size:
            got += len(await wire.take(int(await wire.take_until(b"\r\n"), 16)))
            await wire.take(2)
    client.send(b"0\r\n\r\n")
    assert await wire.chunks() == b""
    wire.send(OK)
    assert (await client.message()).status == 200


async def test_compressed_request_body_is_forwarded_unchanged(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    packed = gzip.compress(b"hello")
    client = await served.client(post(b"Content-Encoding: gzip", b"Content-Length: %d" % len(packed)) + packed)
    request = await broker.answer()
    assert (request.body, request.head.one(b"content-encoding")) == (packed, b"gzip")
    assert (await client.message()).status == 200


# Answers.


async def test_answer_keeps_its_content_length_and_is_streamed(begin: Begin) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\n\r\nhe")
    head = await client.head()
    assert head.start == b"HTTP/1.1 200 Fine"
    assert head.one(b"content-length") == b"5"
    assert await client.take(2) == b"he"
    wire.send(b"llo")
    assert await client.take(3) == b"llo"


async def test_a_chunked_answer_stays_chunked(begin: Begin) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    assert (await client.head()).one(b"transfer-encoding") == b"chunked"
    assert await client.take(8) == b"3\r\nabc\r\n"
    wire.send(b"2\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
    assert await client.chunks() == b"de"
    client.send(GET)
    assert b"GET" in await wire.take_until(b"\r\n\r\n")


async def test_answer_delimited_by_close_becomes_chunked_for_http_1_1_client(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
    assert (await client.head()).one(b"transfer-encoding") == b"chunked"
    assert await client.take(9) == b"4\r\nsome\r\n"
    wire.send(b"thing")
    wire.close()
    assert await client.chunks() == b"thing"
    client.send(GET)
    await broker.answer()
    assert (await client.message()).body == b"ok"


async def test_chunked_answer_becomes_delimited_by_close_for_http_1_0_client(begin: Begin) -> None:
    _, client, wire = await begin(GET_10)
    assert wire.last.start.endswith(b"HTTP/1.1")
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    head = await client.head()
    assert b"transfer-encoding" not in head.names
    assert head.one(b"connection") == b"close"
    wire.send(b"2\r\nde\r\n0\r\n\r\n")
    assert await client.rest() == b"abcde"


async def test_http_1_0_connection_closes_after_one_request_despite_keep_alive(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    await broker.answer()
    answer = await client.message()
    assert (answer.body, answer.head.one(b"connection")) == (b"ok", b"close")
    assert await client.rest() == b""


async def test_http_1_0_broker_answer_is_forwarded_as_1_1_and_broker_connection_closes(begin: Begin) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
    answer = await client.message()
    assert (answer.head.start, answer.body) == (b"HTTP/1.1 200 OK", b"ok")
    await wire.end()  # it did not ask for the connection to be kept


@pytest.mark.parametrize(
    ("answer", "length"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", [b"1000"]),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", []),
        (b"HTTP/1.1 200 OK\r\n\r\n", []),
    ],
)
async def test_answer_to_head_request_has_no_body_whatever_its_headers_announce(
    start: Start, broker: RawBroker, answer: bytes, length: list[bytes]
) -> None:
    served = await start(broker.url)
    client = await served.client(GET.replace(b"GET", b"HEAD"))
    await broker.answer(answer)
    head = await client.head()
    assert head.all(b"content-length") == length
    client.send(GET)
    if b":" in answer:
        await broker.wires[0].head()
        broker.wires[0].send(OK)
    else:  # an answer of unknown length might have ended with its connection
        await broker.answer()
    assert (await client.message()).body == b"ok"


@pytest.mark.parametrize(
    ("answer", "length"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", []),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", []),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", [b"5"]),
        (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", []),
    ],
)
async def test_204_and_304_answers_have_no_body(begin: Begin, answer: bytes, length: list[bytes]) -> None:
    _, client, wire = await begin()
    wire.send(answer)
    head = await client.head()
    assert head.status == int(answer[9:12])
    assert head.all(b"content-length") == length
    assert b"transfer-encoding" not in head.names
    client.send(GET)
    await wire.head()
    wire.send(OK)
    assert (await client.message()).body == b"ok"


async def test_broker_answer_is_paused_while_client_does_not_read(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(GET)
    client.stall()
    wire = await broker.accept()
    await wire.head()
    sent = 0

    async def download() -> None:
        nonlocal sent
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGE * len(PIECE)))
        for _ in range(LARGE):
            await wire.send_slowly(PIECE)
            sent += 1

    sender = asyncio.create_task(download())
    await settled(lambda: sent)
    assert not sender.done()
    assert client.total == 0
    client.resume()
    head = await client.head()
    await _digest(client, int(head.one(b"content-length")))
    await sender


# One connection, several requests.


async def test_client_and_broker_connections_are_reused_between_requests(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(GET)
    wire = await broker.accept()
    for _ in range(3):
        await wire.head()
        wire.send(OK)
        assert (await client.message()).head.all(b"connection") == []
        client.send(GET)
    assert len(broker.wires) == 1


async def test_connection_close_from_client_ends_its_connection_and_is_not_forwarded(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url)
    client = await served.client(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    request = await broker.answer()
    assert b"connection" not in request.head.names
    answer = await client.message()
    assert answer.head.one(b"connection") == b"close"
    assert await client.rest() == b""


async def test_connection_close_from_broker_does_not_close_client_connection(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client()
    for _ in range(2):
        client.send(GET)
        await broker.answer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await client.message()).head.all(b"connection") == []
    assert len(broker.wires) == 2


async def test_pipelined_requests_are_answered_in_order(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(50)))
    wire = await broker.accept()
    for n in range(50):
        assert (await wire.head()).target == b"/%d" % n
        assert not wire.buffer  # the next one waits for this answer
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%02d" % n)
    for n in range(50):
        assert (await client.message()).body == b"%02d" % n


async def test_requests_with_bodies_can_be_pipelined(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    put = post(b"Content-Length: 5").replace(b"POST", b"PUT") + b"hello"
    chunked = post(b"Transfer-Encoding: chunked").replace(b"POST", b"PUT") + b"5\r\nworld\r\n0\r\n\r\n"
    client = await served.client(put + chunked + GET)
    wire = await broker.accept()
    for expected in (b"hello", b"world", b""):
        assert (await wire.message()).body == expected
        wire.send(OK)
    for _ in range(3):
        assert (await client.message()).body == b"ok"


# Expect: 100-continue.

EXPECTING = post(b"Content-Length: 5", b"Expect: 100-Continue")


async def test_100_continue_from_broker_is_passed_to_client_that_expects_it(begin: Begin) -> None:
    _, client, wire = await begin(EXPECTING)
    assert wire.last.one(b"expect") == b"100-continue"
    wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert await client.take_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"hello")
    assert await wire.take(5) == b"hello"
    wire.send(OK)
    answer = await client.message()
    assert (answer.status, answer.head.all(b"connection")) == (200, [])


async def test_final_answer_instead_of_100_continue_closes_both_connections(begin: Begin) -> None:
    _, client, wire = await begin(EXPECTING)
    wire.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    answer = await client.message()
    assert answer.status == 401
    assert answer.head.one(b"connection") == b"close"  # or the body would be taken for a request
    await wire.end()
    assert not wire.buffer


async def test_unknown_expectation_gets_417(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(post(b"Content-Length: 5", b"Expect: 200-ok"))
    answer = await client.message()
    assert (answer.status, answer.body[:31]) == (417, b'{"reason": "expectation-failed:')
    assert broker.untouched


async def test_expect_from_http_1_0_client_is_ignored_and_no_100_is_sent(start: Start, broker: RawBroker) -> None:
    """RFC 9110 10.1.1: the expectation of an HTTP/1.0 client is ignored, and it is never sent a 100."""
    served = await start(broker.url)
    client = await served.client(post(b"Content-Length: 5", b"Expect: 100-continue", version=b"1.0") + b"hello")
    wire = await broker.accept()
    assert b"expect" not in (await wire.head()).names
    wire.send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert (await client.message()).status == 200


async def test_interim_answers_102_and_103_are_not_forwarded(begin: Begin) -> None:
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
    wire.send(b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nok")
    answer = await client.message()
    assert answer.status == 200
    assert answer.head.fields == [(b"a", b"b"), (b"content-length", b"2")]


# An answer before the body is through.


async def test_answer_before_end_of_upload_reaches_client_at_once(begin: Begin) -> None:
    _, client, wire = await begin(post(b"Content-Length: 100000") + b"first")
    await wire.take(5)
    wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
    answer = await client.message()
    assert (answer.status, answer.body) == (413, b"big")
    assert answer.head.one(b"connection") == b"close"
    await wire.end()  # the rest of the body must not become a request there
    client.send(b"x" * 99995)
    assert await client.rest() == b""


async def test_request_body_continues_while_answer_is_streamed(begin: Begin) -> None:
    _, client, wire = await begin(post(b"Content-Length: 6") + b"ping-")
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\npong-\r\n")
    await client.head()
    assert await client.take(10) == b"5\r\npong-\r\n"
    client.send(b"1")
    assert await wire.take(6) == b"ping-1"
    wire.send(b"1\r\n1\r\n0\r\n\r\n")
    assert await client.chunks() == b"1"
