"""Any bytes from a client: brokers get whole requests in one framing, the same ones however the bytes are cut."""

import asyncio

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from hypothesis import example, given
from hypothesis import strategies as st
from memory_peers import exchange
from memory_transport import pieces

from pulsar_ingress_proxy.http.body import BodyEnd

LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/x HTTP/1.1\r\nHost: pulsar.example.com\r\n"
UPLOAD = b"POST /admin/v2/x HTTP/1.1\r\nHost: pulsar.example.com\r\n"
CHUNKED = UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
LINES = (
    b"\r\n", b"\n", b"\r", b" ", b"\0", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: +5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Connection: close\r\n",
    b"Connection: host, x-forwarded-for\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n", b"X-Pulsar-ListenerName: internal\r\n", b"X-Pulsar-ListenerName: partner\r\n",
    b"X-Original-Principal: admin\r\n", b"X-Forwarded-For: 10.0.0.1\r\n", b"X-Forwarded-Host: a\r\n", b"Host: a\r\n",
    b"hello", b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nX-A: b\r\n\r\n",
)  # fmt: skip


def check(stream: bytes, cuts: list[int]) -> None:
    """Send a stream whole and in pieces; every byte that reaches a broker is looked at."""
    whole, answers = asyncio.run(exchange(pieces(stream, ())))
    in_pieces, _ = asyncio.run(exchange(pieces(stream, cuts)))
    assert whole == in_pieces
    assert b"internal-error" not in answers


PARTS = st.sampled_from((LOOKUP, UPLOAD, *LINES)) | st.binary(max_size=8)


@given(st.lists(PARTS, max_size=12), st.lists(st.integers(0)))
@example([LOOKUP, b"\r\n", LOOKUP, b"\r\n"], [7, 90])
@example([UPLOAD, b"Transfer-Encoding: chunked\r\n", b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", LOOKUP, b"\r\n"], [100])
@example([CHUNKED, LOOKUP, b"\r\n", LOOKUP, b"\r\n"], [len(CHUNKED + LOOKUP) - 1])  # inside the end of a head
@example([LOOKUP, b"Connection: close\r\n", b"\r\n", LOOKUP, b"\r\n"], [len(LOOKUP) + 21])  # behind the last request
@example([UPLOAD, b"Expect: 100-continue\r\n", b"Content-Length: 5\r\n", b"\r\n", b"hello"], [])
def test_brokers_get_the_same_whole_requests_however_bytes_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    check(b"".join(parts), cuts)


CHUNK_PARTS = st.binary(max_size=2) | st.sampled_from(
    (b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\n", b"00\r\n", b"0;a=b\r\n", b"2;a=b\r\n", b"\r\n", b"\n", b"X-A: b\r\n")
)


def end_by_parser(body: bytes) -> int | None:
    """The size of a chunked body as aiohttp's parser sees it, byte by byte; None if it is malformed or incomplete."""
    loop = asyncio.new_event_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 65536)
    ((_, reader),) = parser.feed_data(UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n")[0]
    loop.close()
    for size in range(1, len(body) + 1):
        try:
            parser.feed_data(body[size - 1 : size])
        except HttpProcessingError:
            return None
        if reader.is_eof():
            return size
    return None


@given(st.lists(CHUNK_PARTS, max_size=8), st.lists(st.integers(0)))
@example([b"5\r\nhello\r\n", b"0\r\n", b"X-A: b\r\n", b"\r\n", b"0\r\n\r\n"], [])
@example([b"000;", b"a" * 2000, b"\r\n", b"X-A: ", b"b" * 2000, b"\r\n\r\n", b"GET"], [1100])
def test_chunked_body_ends_where_the_parser_ends_it_however_bytes_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(parts)
    if (size := end_by_parser(body)) is not None:
        end = BodyEnd(None)
        assert sum(end.size_in(piece) for piece in pieces(body, cuts)) == size
