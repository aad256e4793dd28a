"""How bodies are delimited on both sides, and that they are streamed: RFC 9112 6 and 7."""

import asyncio
import gzip
import hashlib

import pytest
from raw import CLOSING, GET, OK, Begin, Exchange, RawBroker, Start, Wire, asked
from standstill import settled

GET_10 = GET.replace(b"HTTP/1.1", b"HTTP/1.0")
HEAD = GET.replace(b"GET", b"HEAD")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = bytes(range(256)) * 256
LARGE = 1024
"""Pieces of a body that no buffers on the way can hold together: 64 MiB."""
PACKED = gzip.compress(b"hello")


def post(*fields: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST /topics/persistent/t/n/x HTTP/" + version, b"Host: pulsar", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def is_usable(client: Wire, broker: RawBroker) -> bool:
    """Whether another request on this connection is answered."""
    client.send(GET)
    wire = await asked(broker)
    await wire.message()
    wire.send(OK)
    return (await client.message()).body == b"ok"


# Requests.


@pytest.mark.parametrize(
    ("data", "framing", "body"),
    [
        pytest.param(GET, [], b"", id="no body"),
        pytest.param(post(b"Content-Length: 0"), [(b"content-length", b"0")], b"", id="an empty body"),
        pytest.param(post(b"Content-Length: 5") + b"hello", [(b"content-length", b"5")], b"hello", id="a length"),
        pytest.param(
            post(b"Content-Encoding: gzip", b"Content-Length: %d" % len(PACKED)) + PACKED,
            [(b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(PACKED))],
            PACKED,
            id="gzip",
        ),
    ],
)
async def test_request_body_and_its_framing_are_forwarded_unchanged(
    exchange: Exchange, data: bytes, framing: list[tuple[bytes, bytes]], body: bytes
) -> None:
    request, answer = await exchange(data)
    names = (b"content-length", b"transfer-encoding", b"content-encoding")
    assert [field for field in request.head.fields if field[0] in names] == framing
    assert (request.body, answer.status) == (body, 200)


@pytest.mark.parametrize(
    ("framing", "pieces"),
    [
        (b"Content-Length: 5", [(b"he", b"he"), (b"llo", b"llo")]),
        (
            b"Transfer-Encoding: chunked",
            [
                (b"3;name=value\r\nabc\r\n", b"3\r\nabc\r\n"),
                (b"3e8\r\n%b\r\n" % (b"x" * 1000), b"3e8\r\n%b\r\n" % (b"x" * 1000)),
                (b"2\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n", b"2\r\nde\r\n0\r\n\r\n"),
            ],
        ),
    ],
)
async def test_request_body_is_streamed_without_chunk_extensions_or_trailers(
    begin: Begin, framing: bytes, pieces: list[tuple[bytes, bytes]]
) -> None:
    _, client, wire = await begin(post(framing))
    assert framing in wire.last.raw
    for sent, got in pieces:
        client.send(sent)
        assert await wire.take(len(got)) == got
    wire.send(OK)
    assert (await client.message()).status == 200


async def test_what_follows_a_request_that_ends_its_connection_is_never_read(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + GET)
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert await client.rest() == b""
    assert broker.wires == [wire]
    assert not wire.buffer


WITH_TRAILERS = (
    post(b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\nX-A: b\r\nAuthorization: Bearer other\r\n\r\n"
)


@pytest.mark.parametrize(
    "early", [len(GET), 0, -1], ids=["all in one read", "the next one later", "the next one with their last byte"]
)
async def test_trailers_never_become_fields_of_the_next_request(begin: Begin, broker: RawBroker, early: int) -> None:
    """aiohttp's parser would put the last trailer before the fields of the request that it parses next."""
    data = WITH_TRAILERS + GET
    cut = len(WITH_TRAILERS) + early
    _, client, wire = await begin(data[:cut])
    if early:
        client.send(data[cut:])
    assert await wire.take_until(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    if not early:
        client.send(data[cut:])
    head = await (await asked(broker)).head()
    assert head.names == [b"host", b"x-forwarded-for", b"x-forwarded-proto"]


async def pour(source: Wire, sink: Wire) -> None:
    """A large body goes nowhere while its receiver does not read, and is whole when it does."""
    sent = 0

    async def send() -> None:
        nonlocal sent
        for _ in range(LARGE):
            await source.send_slowly(PIECE)
            sent += 1

    sender = asyncio.create_task(send())
    await settled(lambda: sent)
    assert not sender.done()
    assert sink.total == 0
    sink.resume()
    assert int((await sink.head()).one(b"content-length")) == LARGE * len(PIECE)
    found, expected = hashlib.sha256(), hashlib.sha256()
    for _ in range(LARGE):
        found.update(await sink.take(len(PIECE)))
        expected.update(PIECE)
    assert found.digest() == expected.digest()
    await sender


async def test_client_upload_is_paused_while_broker_does_not_read(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, redirects={"replayBytes": 0})
    client = await served.client(post(b"Content-Length: %d" % (LARGE * len(PIECE))))
    wire = await broker.accept()
    wire.stall()
    await pour(client, wire)
    wire.send(OK)
    assert (await client.message()).status == 200


# Answers.


async def test_broker_answer_is_paused_while_client_does_not_read(begin: Begin) -> None:
    _, client, wire = await begin()
    client.stall()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGE * len(PIECE)))
    await pour(wire, client)


@pytest.mark.parametrize(
    ("data", "head", "framing", "pieces"),
    [
        pytest.param(
            GET,
            b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\n\r\n",
            (b"content-length", b"5"),
            [(b"he", b"he"), (b"llo", b"llo")],
            id="a length",
        ),
        pytest.param(
            GET,
            CHUNKED,
            (b"transfer-encoding", b"chunked"),
            [(b"3\r\nabc\r\n", b"3\r\nabc\r\n"), (b"2\r\nde\r\n0\r\nTrailer: x\r\n\r\n", b"2\r\nde\r\n0\r\n\r\n")],
            id="chunks",
        ),
        pytest.param(
            GET,
            b"HTTP/1.1 200 OK\r\n\r\n",
            (b"transfer-encoding", b"chunked"),
            [(b"some", b"4\r\nsome\r\n"), (b"thing", b"5\r\nthing\r\n"), (b"", b"0\r\n\r\n")],
            id="the end of the connection",
        ),
        pytest.param(
            GET_10,
            CHUNKED,
            (b"connection", b"close"),
            [(b"3\r\nabc\r\n", b"abc"), (b"2\r\nde\r\n0\r\n\r\n", b"de")],
            id="chunks for HTTP/1.0, which has none",
        ),
    ],
)
async def test_answer_is_streamed_in_a_framing_that_the_client_knows(
    begin: Begin,
    broker: RawBroker,
    data: bytes,
    head: bytes,
    framing: tuple[bytes, bytes],
    pieces: list[tuple[bytes, bytes]],
) -> None:
    _, client, wire = await begin(data)
    assert wire.last.start.endswith(b"HTTP/1.1")
    wire.send(head + pieces[0][0])
    answer = await client.head()
    assert answer.start == head.partition(b"\r\n")[0]
    names = (b"content-length", b"transfer-encoding", b"connection")
    assert [field for field in answer.fields if field[0] in names] == [framing]
    assert await client.take(len(pieces[0][1])) == pieces[0][1]
    for sent, got in pieces[1:]:
        wire.send(sent) if sent else wire.close()
        assert await client.take(len(got)) == got
    if data == GET:
        assert await is_usable(client, broker)
    else:
        assert await client.rest() == b""


async def test_http_1_0_connection_closes_after_one_request_despite_keep_alive(begin: Begin) -> None:
    _, client, wire = await begin(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    wire.send(OK)
    answer = await client.message()
    assert (answer.body, answer.head.one(b"connection")) == (b"ok", b"close")
    assert await client.rest() == b""


async def test_http_1_0_broker_answer_is_forwarded_as_1_1_and_broker_connection_closes(begin: Begin) -> None:
    _, client, wire = await begin()
    wire.send(OK.replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = await client.message()
    assert (answer.head.start, answer.body) == (b"HTTP/1.1 200 OK", b"ok")
    await wire.end()  # it did not ask for the connection to be kept


@pytest.mark.parametrize(
    ("data", "answer", "length"),
    [
        (HEAD, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", [b"1000"]),
        (HEAD, CHUNKED, []),
        (HEAD, b"HTTP/1.1 200 OK\r\n\r\n", []),
        (GET, b"HTTP/1.1 204 No Content\r\n\r\n", []),
        (GET, b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", []),
        (GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", [b"5"]),
        (GET, b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", []),
    ],
)
async def test_answers_to_head_requests_and_204_and_304_have_no_body_whatever_their_headers_announce(
    begin: Begin, broker: RawBroker, data: bytes, answer: bytes, length: list[bytes]
) -> None:
    _, client, wire = await begin(data)
    wire.send(answer)
    head = await client.head()
    assert (head.status, head.all(b"content-length")) == (int(answer[9:12]), length)
    assert b"transfer-encoding" not in head.names
    assert await is_usable(client, broker)


# One connection, several requests.


async def test_client_and_broker_connections_are_reused_between_requests(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin()
    wire.send(OK)
    assert (await client.message()).head.all(b"connection") == []
    for _ in range(3):
        assert await is_usable(client, broker)
    assert len(broker.wires) == 1


async def test_connection_close_from_client_ends_its_connection_and_is_not_forwarded(begin: Begin) -> None:
    _, client, wire = await begin(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert b"connection" not in wire.last.names
    wire.send(OK)
    assert (await client.message()).head.one(b"connection") == b"close"
    assert await client.rest() == b""


async def test_connection_close_from_broker_does_not_close_client_connection(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin()
    wire.send(CLOSING)
    assert (await client.message()).head.all(b"connection") == []
    assert await is_usable(client, broker)
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
    assert await wire.end() == b""


async def test_unknown_expectation_gets_417(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    answer = await served.ask(post(b"Content-Length: 5", b"Expect: 200-ok"))
    assert answer.refusal == (417, "expectation-failed")
    assert broker.untouched


async def test_expect_from_http_1_0_client_is_ignored_and_no_100_is_sent(begin: Begin) -> None:
    """RFC 9110 10.1.1: the expectation of an HTTP/1.0 client is ignored, and it is never sent a 100."""
    data = post(b"Content-Length: 5", b"Expect: 100-continue", version=b"1.0") + b"hello"
    _, client, wire = await begin(data)
    assert b"expect" not in wire.last.names
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
    wire.send(CHUNKED + b"5\r\npong-\r\n")
    await client.head()
    assert await client.take(10) == b"5\r\npong-\r\n"
    client.send(b"1")
    assert await wire.take(6) == b"ping-1"
    wire.send(b"1\r\n1\r\n0\r\n\r\n")
    assert await client.chunks() == b"1"
