"""Requests whose end two HTTP implementations may see in different places: named ones, and a strategy for more."""

from hypothesis import strategies as st

HOST = b"Host: pulsar.example.com"
NEXT = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\nConnection: close\r\n\r\n"
"""What follows each case on its connection."""
INNER = b"GET /inner HTTP/1.1\r\n" + HOST + b"\r\n\r\n"
"""A body's content that may be taken for a request."""
ENDED = b"0\r\n\r\n" + INNER
"""By a length, one body; in chunks, an empty body and a request."""
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)
"""In chunks, one body; by the length of the first line, an empty body and a request."""
TE = b"Transfer-Encoding: chunked"


def post(*fields: bytes, body: bytes = ENDED, start: bytes = b"POST /case HTTP/1.1") -> bytes:
    """A request; LENGTH in a field is the body's."""
    lines = (field.replace(b"LENGTH", b"%d" % len(body)) for field in (start, HOST, *fields))
    return b"\r\n".join([*lines, b"", b""]) + body


def get(*fields: bytes, start: bytes = b"GET /case HTTP/1.1", host: tuple[bytes, ...] = (HOST,)) -> bytes:
    return b"\r\n".join([start, *host, *fields, b"", b""])


def chunked(body: bytes) -> bytes:
    return post(TE, body=body)


LENGTHS = {
    "with a plus sign": b"Content-Length: +LENGTH",
    "with a minus sign": b"Content-Length: -LENGTH",
    "with leading zeros": b"Content-Length: 000LENGTH",
    "with more zeros than 64 bits have digits": b"Content-Length: " + b"0" * 30 + b"LENGTH",
    "between spaces and tabs": b"Content-Length: \t LENGTH \t ",
    "with a space inside": b"Content-Length: 0 LENGTH",
    "as a list of one number twice": b"Content-Length: LENGTH, LENGTH",
    "as a list of two numbers": b"Content-Length: 5, LENGTH",
    "with a comma behind it": b"Content-Length: LENGTH,",
    "in C's notation for hex": b"Content-Length: 0x5",
    "with an underscore": b"Content-Length: 0_LENGTH",
    "as a fraction": b"Content-Length: LENGTH.0",
    "with an exponent": b"Content-Length: 0e1",
    "with a parameter": b"Content-Length: LENGTH;a=b",
    "in quotes": b'Content-Length: "LENGTH"',
    "that is empty": b"Content-Length:",
    "that wraps at 32 bits": b"Content-Length: %d" % (2**32 + len(ENDED)),
    "that wraps at 64 bits": b"Content-Length: %d" % (2**64 + len(ENDED)),
    "behind a vertical tab": b"Content-Length: \x0bLENGTH",
    "behind a NUL": b"Content-Length: \0LENGTH",
    "folded": b"Content-Length:\r\n LENGTH",
    "with a space before the colon": b"Content-Length : LENGTH",
    "with a tab before the colon": b"Content-Length\t: LENGTH",
    "behind a space": b" Content-Length: LENGTH",
    "with an underscore in its name": b"Content_Length: LENGTH",
    "with a NUL in its name": b"Content-Length\0: LENGTH",
}
CODINGS = {
    "in capitals": b"TRANSFER-ENCODING: CHUNKED",
    "behind a tab": b"Transfer-Encoding:\tchunked",
    "before a space": b"Transfer-Encoding: chunked ",
    "behind a vertical tab": b"Transfer-Encoding: \x0bchunked",
    "before a vertical tab": b"Transfer-Encoding: chunked\x0b",
    "behind a NUL": b"Transfer-Encoding: \0chunked",
    "behind a byte beyond ASCII": b"Transfer-Encoding: \xa0chunked",
    "behind a comma": b"Transfer-Encoding: , chunked",
    "before a comma": b"Transfer-Encoding: chunked,",
    "in quotes": b'Transfer-Encoding: "chunked"',
    "with a parameter": b"Transfer-Encoding: chunked;a=b",
    "folded": b"Transfer-Encoding:\r\n chunked",
    "twice": b"Transfer-Encoding: chunked, chunked",
    "in two fields": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "before identity": b"Transfer-Encoding: chunked, identity",
    "behind identity": b"Transfer-Encoding: identity, chunked",
    "before gzip": b"Transfer-Encoding: chunked, gzip",
    "behind gzip": b"Transfer-Encoding: gzip, chunked",
    "in a field before identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "in a field behind identity": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "with an x before it": b"Transfer-Encoding: xchunked",
    "with an x behind it": b"Transfer-Encoding: chunkedx",
    "cut short": b"Transfer-Encoding: chunke",
    "as identity": b"Transfer-Encoding: identity",
    "that is empty": b"Transfer-Encoding:",
    "with a space before the colon": b"Transfer-Encoding : chunked",
    "with a tab before the colon": b"Transfer-Encoding\t: chunked",
    "behind a space": b" Transfer-Encoding: chunked",
    "with an underscore in its name": b"Transfer_Encoding: chunked",
    "behind a bare LF": b"X-A: b\nTransfer-Encoding: chunked",
    "behind a bare CR": b"X-A: b\rTransfer-Encoding: chunked",
    "behind a NUL in another field": b"X-A: b\0\r\nTransfer-Encoding: chunked",
}
HEADS = {
    "no body": get(),
    "GET with a body": post(b"Content-Length: LENGTH", start=b"GET /case HTTP/1.1"),
    "GET in chunks": post(TE, body=CHUNK, start=b"GET /case HTTP/1.1"),
    "DELETE with a body": post(b"Content-Length: LENGTH", start=b"DELETE /case HTTP/1.1"),
    "OPTIONS with a body": post(b"Content-Length: LENGTH", start=b"OPTIONS /case HTTP/1.1"),
    "POST without a length": post(body=b""),
    "CRLFs before the request": b"\r\n\r\n" + get(),
    "an LF before the request": b"\n" + get(),
    "a CR before the request": b"\r" + get(),
    "a space before the request": b" " + get(),
    "a NUL before the request": b"\0" + get(),
    "a bare LF after the request line": get().replace(b"\r\n", b"\n", 1),
    "a bare LF after a field": get(b"X-A: b").replace(b"com\r\n", b"com\n"),
    "a bare LF as the blank line": get()[:-2] + b"\n",
    "bare LFs": get().replace(b"\r\n", b"\n"),
    "a bare CR as the blank line": get()[:-2] + b"\r" + INNER,
    "a bare CR after a field": get(b"X-A: b").replace(b"com\r\n", b"com\r"),
    "a bare CR in a field": get(b"X-A: b\rc"),
    "CR CR LF after a field": get(b"X-A: b\r"),
    "CR CR LF as the blank line": get()[:-2] + b"\r\r\n",
    "a bare LF in a field": get(b"X-A: b\nX-B: c"),
    "a request in a field, behind bare LFs": get(b"X-A: b\n\n" + INNER[:-4]),
    "a request in a field, behind bare CRs": get(b"X-A: b\r\r" + INNER[:-4]),
    "a NUL in a field": get(b"X-A: b\0c"),
    "a control character in a field": get(b"X-A: b\x01c"),
    "a byte beyond ASCII in a field": get(b"X-A: b\xffc"),
    "a folded field": get(b"X-A: b", b" c"),
    "a field folded with a tab": get(b"X-A: b", b"\tc"),
    "a folded first field": b"GET /case HTTP/1.1\r\n " + HOST + b"\r\n\r\n",
    "a line of spaces": get(b"X-A: b", b"  "),
    "a field without a colon": get(b"X-A"),
    "a field without a name": get(b": b"),
    "a space in a name": get(b"X A: b"),
    "a space before the colon": get(b"X-A : b"),
    "a bracket in a name": get(b"(X): b"),
    "a NUL in a name": get(b"X-\0A: b"),
    "a byte beyond ASCII in a name": get(b"X-\xc3\xa4: b"),
    "two spaces in the request line": get(start=b"GET  /case  HTTP/1.1"),
    "tabs in the request line": get(start=b"GET\t/case\tHTTP/1.1"),
    "a space behind the request line": get(start=b"GET /case HTTP/1.1 "),
    "a space in the target": get(start=b"GET /case a HTTP/1.1"),
    "a version in the target": get(start=b"GET /case HTTP/1.1 HTTP/1.1"),
    "a NUL in the target": get(start=b"GET /case\0a HTTP/1.1"),
    "a byte beyond ASCII in the target": get(start=b"GET /case\xff HTTP/1.1"),
    "an absolute target": get(start=b"GET http://pulsar.example.com/case HTTP/1.1"),
    "an absolute target of another host": get(start=b"GET http://other.example.com/case HTTP/1.1"),
    "a method in lower case": get(start=b"get /case HTTP/1.1"),
    "an unknown method": get(start=b"GETTY /case HTTP/1.1"),
    "a bracket in the method": get(start=b"G(T /case HTTP/1.1"),
    "OPTIONS *": get(start=b"OPTIONS * HTTP/1.1"),
    "CONNECT": get(start=b"CONNECT pulsar.example.com:80 HTTP/1.1"),
    "HTTP/0.9": b"GET /case\r\n",
    "HTTP/0.9 with a head": get(start=b"GET /case"),
    "HTTP/1.0": get(start=b"GET /case HTTP/1.0"),
    "HTTP/1.0 with keep-alive": get(b"Connection: keep-alive", start=b"GET /case HTTP/1.0"),
    "HTTP/1.0 with keep-alive and a body": post(
        b"Connection: keep-alive", b"Content-Length: LENGTH", start=b"POST /case HTTP/1.0"
    ),
    "HTTP/1.0 in chunks": post(TE, b"Connection: keep-alive", body=CHUNK, start=b"POST /case HTTP/1.0"),
    "HTTP/1.0 with a length and in chunks": post(
        TE, b"Content-Length: LENGTH", b"Connection: keep-alive", start=b"POST /case HTTP/1.0"
    ),
    "HTTP/1.2": get(start=b"GET /case HTTP/1.2"),
    "HTTP/1.2 in chunks": post(TE, start=b"POST /case HTTP/1.2"),
    "HTTP/1.10": get(start=b"GET /case HTTP/1.10"),
    "HTTP/01.1": get(start=b"GET /case HTTP/01.1"),
    "HTTP/2.0": get(start=b"GET /case HTTP/2.0"),
    "HTTP/1.1 in lower case": get(start=b"GET /case http/1.1"),
    "HTTP/1.1 cut short": get(start=b"GET /case HTTP/1"),
    "no Host": get(host=()),
    "no Host in HTTP/1.0": get(start=b"GET /case HTTP/1.0", host=()),
    "two Hosts": get(host=(HOST, b"Host: other.example.com")),
    "one Host twice": get(host=(HOST, HOST)),
    "a list of Hosts": get(host=(HOST + b", other.example.com",)),
    "an empty Host": get(host=(b"Host:",)),
    "Expect: 100-continue": post(b"Expect: 100-continue", b"Content-Length: LENGTH"),
    "Expect: 100-continue in chunks": post(b"Expect: 100-continue", TE, body=CHUNK),
    "Expect: 100-continue without a body": get(b"Expect: 100-continue"),
    "an unknown Expect": post(b"Expect: 200-maybe", b"Content-Length: LENGTH"),
    "Connection: close": get(b"Connection: close"),
    "Connection names Content-Length": post(b"Connection: content-length", b"Content-Length: LENGTH"),
    "Connection names Transfer-Encoding": post(b"Connection: transfer-encoding", TE, body=CHUNK),
    "Upgrade to h2c": get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    "Upgrade to h2c with a body": post(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: LENGTH"),
    "a field of 20,000 bytes": get(b"X-A: " + b"a" * 20_000),
    "a field of 100,000 bytes": get(b"X-A: " + b"a" * 100_000),
    "a target of 20,000 bytes": get(start=b"GET /" + b"a" * 20_000 + b" HTTP/1.1"),
    "90 fields": get(*[b"X-%d: a" % number for number in range(90)]),
    "500 fields": get(*[b"X-%d: a" % number for number in range(500)]),
}
CHUNKS = {
    "in capitals": b"%X\r\n%b\r\n0\r\n\r\n" % (0xA, b"helloworld"),
    "with leading zeros": b"0005\r\nhello\r\n0\r\n\r\n",
    "with more zeros than 64 bits have digits": b"%032x\r\nhello\r\n0\r\n\r\n" % 5,
    "with a plus sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "with a minus sign": b"-5\r\nhello\r\n0\r\n\r\n",
    "in C's notation": b"0x5\r\nhello\r\n0\r\n\r\n",
    "with an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "with a space before it": b" 5\r\nhello\r\n0\r\n\r\n",
    "with a space behind it": b"5 \r\nhello\r\n0\r\n\r\n",
    "with a tab behind it": b"5\t\r\nhello\r\n0\r\n\r\n",
    "with a letter behind it": b"5g\r\nhello\r\n0\r\n\r\n",
    "with a NUL behind it": b"5\0\r\nhello\r\n0\r\n\r\n",
    "that is empty": b"\r\nhello\r\n0\r\n\r\n",
    "that is only an extension": b";a=b\r\n" + INNER,
    "that wraps at 32 bits": b"100000005\r\nhello\r\n0\r\n\r\n",
    "that wraps at 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "of 64 bits": b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "followed by a bare LF": b"5\nhello\r\n0\r\n\r\n",
    "followed by a bare CR": b"5\rhello\r\n0\r\n\r\n",
    "followed by CR CR LF": b"5\r\r\nhello\r\n0\r\n\r\n",
    "with an extension": b"5;a=b\r\nhello\r\n0\r\n\r\n",
    "with an extension behind a space": b"5 ;a=b\r\nhello\r\n0\r\n\r\n",
    "with an empty extension": b"5;\r\nhello\r\n0\r\n\r\n",
    "with a quoted extension": b'5;a="b;c"\r\nhello\r\n0\r\n\r\n',
    "with a line end in a quoted extension": b'5;a="\r\nhello\r\n0\r\n\r\n',
    "with a bare LF in an extension": b"5;a\nhello\r\n0\r\n\r\n",
    "with a bare LF at the end of an extension": b"5;a\n\r\nhello\r\n0\r\n\r\n",
    "with a bare CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "with a NUL in an extension": b"5;a\0b\r\nhello\r\n0\r\n\r\n",
    "smaller than the chunk": b"2\r\nhello\r\n0\r\n\r\n",
    "larger than the chunk": b"7\r\nhello\r\n0\r\n\r\n",
}
ENDS = {
    "data followed by a bare LF": b"5\r\nhello\n0\r\n\r\n",
    "data followed by a bare CR": b"5\r\nhello\r0\r\n\r\n",
    "data followed by nothing": b"5\r\nhello0\r\n\r\n",
    "data followed by the next size": b"2\r\nhe%x\r\n%b\r\n0\r\n\r\n" % (len(ENDED), ENDED),
    "data followed by two line ends": b"5\r\nhello\r\n\r\n0\r\n\r\n",
    "no last chunk": b"5\r\nhello\r\n",
    "a last chunk of several zeros": b"5\r\nhello\r\n000\r\n\r\n",
    "a last chunk with an extension": b"5\r\nhello\r\n0;a=b\r\n\r\n",
    "a last chunk with a sign": b"5\r\nhello\r\n-0\r\n\r\n",
    "a last chunk followed by bare LFs": b"5\r\nhello\r\n0\n\n",
    "a last chunk followed by a bare LF": b"5\r\nhello\r\n0\r\n\n",
    "a last chunk followed by a bare CR": b"5\r\nhello\r\n0\r\n\r" + INNER,
    "a last chunk followed by no blank line": b"5\r\nhello\r\n0\r\n" + INNER,
    "a trailer": b"5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
    "a trailer with a length": b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
    "a trailer with a coding": b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a trailer with a Host": b"5\r\nhello\r\n0\r\nHost: other.example.com\r\n\r\n",
    "a trailer without a colon": b"5\r\nhello\r\n0\r\nX-A\r\n\r\n",
    "a trailer with a bare LF": b"5\r\nhello\r\n0\r\nX-A: b\n\r\n",
    "a trailer with a bare CR": b"5\r\nhello\r\n0\r\nX-A: b\rc\r\n\r\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nX-A: b\r\n c\r\n\r\n",
    "a trailer with a space before the colon": b"5\r\nhello\r\n0\r\nX-A : b\r\n\r\n",
    "a trailer of 20,000 bytes": b"5\r\nhello\r\n0\r\nX-A: " + b"a" * 20_000 + b"\r\n\r\n",
}
CASES = {
    "a length": post(b"Content-Length: LENGTH"),
    "chunked": chunked(CHUNK),
    "a length and chunked": post(b"Content-Length: LENGTH", TE),
    "chunked and a length": post(TE, b"Content-Length: LENGTH"),
    "a length of the first line, and chunked": post(b"Content-Length: 4", TE, body=CHUNK),
    "chunked, and a length of the first line": post(TE, b"Content-Length: 4", body=CHUNK),
    "two lengths, the first of the body": post(b"Content-Length: LENGTH", b"Content-Length: 5"),
    "two lengths, the second of the body": post(b"Content-Length: 5", b"Content-Length: LENGTH"),
    "one length twice": post(b"Content-Length: LENGTH", b"Content-Length: LENGTH"),
    **{f"a length {name}": post(field) for name, field in LENGTHS.items()},
    **{f"a length of 5, and one {name}": post(b"Content-Length: 5", field) for name, field in LENGTHS.items()},
    **{f"chunked {name}": post(field, body=CHUNK) for name, field in CODINGS.items()},
    **{f"a length, and chunked {name}": post(b"Content-Length: LENGTH", field) for name, field in CODINGS.items()},
    **HEADS,
    **{f"a chunk size {name}": chunked(body) for name, body in CHUNKS.items()},
    **{f"chunks: {name}": chunked(body) for name, body in ENDS.items()},
}
"""By name: bytes that one connection sends before NEXT."""

STARTS = (b"POST /case HTTP/1.1",) * 6 + (
    b"GET /case HTTP/1.1", b"PUT /case HTTP/1.1", b"DELETE /case HTTP/1.1", b"POST /case HTTP/1.0",
    b"GET http://other.example.com/case HTTP/1.1", b"POST  /case HTTP/1.1", b"GET /case", b"POST /case HTTP/1.2",
)  # fmt: skip
FIELDS = (
    *LENGTHS.values(), *CODINGS.values(), TE, TE, TE, b"Content-Length: LENGTH", b"Content-Length: LENGTH",
    b"Content-Length: 5", b"Content-Length: 4", b"Content-Length: 0", HOST, b"X-A: b", b"Expect: 100-continue",
    b"Connection: close", b"Connection: keep-alive", b"Connection: content-length", b"X-A: b\r\n c", b"X-A: b\0",
    b"X-A", b": b", b"X-A: b\n\n" + INNER[:-4],
)  # fmt: skip
SHORT_ENDS = (body for body in ENDS.values() if len(body) < 1000)
BODIES = (b"", b"hello", ENDED, CHUNK, INNER, *CHUNKS.values(), *SHORT_ENDS)
BYTES = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"5", b"\x0b", b"\xff", b"")


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """One to three requests, each of good and odd parts, and a few bytes put in place of others."""
    stream = b""
    for _ in range(draw(st.integers(1, 3))):
        fields = draw(st.lists(st.sampled_from(FIELDS), max_size=3))
        stream += post(*fields, body=draw(st.sampled_from(BODIES)), start=draw(st.sampled_from(STARTS)))
    for place, new, size in draw(
        st.lists(st.tuples(st.integers(0, 400), st.sampled_from(BYTES), st.integers(0, 2)), max_size=2)
    ):
        place %= len(stream)
        stream = stream[:place] + new + stream[place + size :]
    return stream
