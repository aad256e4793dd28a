"""What is not clean HTTP/1.1 gets a 4xx that says why, and not a byte of it reaches a broker."""

import asyncio
import json

import pytest
from raw import OK, Message, RawBroker, Start
from standstill import settled

PATH = b"/admin/v2/clusters"
INGRESS = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}


def request(*lines: bytes, start: bytes = b"POST /topics/persistent/t/n/x HTTP/1.1", body: bytes = b"") -> bytes:
    return b"\r\n".join((start, b"Host: pulsar", *lines)) + b"\r\n\r\n" + body


def get(target: bytes, host: bytes = b"pulsar") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, host)


def reason(message: Message) -> str:
    assert message.head.one(b"content-type").startswith(b"application/json")
    ((name, text),) = json.loads(message.body).items()
    assert name == "reason"
    code, colon, words = str(text).partition(": ")
    assert colon
    assert words
    return code


SMUGGLING = {
    "length and chunked": request(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunked and length": request(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"),
    "two lengths": request(b"Content-Length: 5", b"Content-Length: 6", body=b"hello"),
    "one length twice": request(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"),
    "a list of lengths": request(b"Content-Length: 5, 5", body=b"hello"),
    "a signed length": request(b"Content-Length: +5", body=b"hello"),
    "a negative length": request(b"Content-Length: -5", body=b"hello"),
    "a length in hex": request(b"Content-Length: 0x5", body=b"hello"),
    "a length with an underscore": request(b"Content-Length: 1_0", body=b"hellohello"),
    "an empty length": request(b"Content-Length: ", body=b"hello"),
    "a length beyond 64 bits": request(b"Content-Length: 99999999999999999999", body=b"hello"),
    "an unknown coding": request(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "identity": request(b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
    "chunked that is not last": request(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "a coding within chunks": request(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "chunked twice": request(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"),
    "chunked in two fields": request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunked and another field": request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=b"0\r\n\r\n"),
    "another field and chunked": request(b"Transfer-Encoding: x", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunked with a vertical tab": request(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
    "chunked in quotes": request(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"),
    "chunked with a parameter": request(b"Transfer-Encoding: chunked;a=b", body=b"0\r\n\r\n"),
    "an empty coding": request(b"Transfer-Encoding: ", body=b"0\r\n\r\n"),
    "chunked to http/1.0": request(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0", body=b"0\r\n\r\n"),
    "a space before the colon": request(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"),
    "a tab before the colon": request(b"Content-Length\t: 5", body=b"hello"),
    "a folded line": request(b"X-A: b", b" c"),
    "a folded coding": request(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n"),
    "a line that begins with a tab": request(b"X-A: b", b"\tTransfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "a first line that is folded": b"GET / HTTP/1.1\r\n Host: pulsar\r\n\r\n",
    "a bare LF after a field": b"GET / HTTP/1.1\r\nHost: pulsar\nX-A: b\r\n\r\n",
    "a bare LF after the request line": b"GET / HTTP/1.1\nHost: pulsar\r\n\r\n",
    "a bare LF at the end": b"GET / HTTP/1.1\r\nHost: pulsar\r\n\n",
    "bare LFs": b"GET / HTTP/1.1\nHost: pulsar\n\n",
    "a bare CR in a field": request(b"X-A: b\rContent-Length: 5"),
    "a bare CR between fields": b"GET / HTTP/1.1\r\nHost: pulsar\rX-A: b\r\n\r\n",
    "a NUL in a field": request(b"X-A: b\0c"),
    "a NUL in a name": request(b"X-\0A: b"),
    "a NUL in the target": get(b"/a\0b"),
    "a field without a colon": request(b"X-A"),
    "a field without a name": request(b": b"),
    "a name in brackets": request(b"(X): b"),
    "a name that is not ASCII": request(b"X-\xc3\xa4: b"),
    "a space in the target": get(b"/a b"),
    "a version of the future": b"GET / HTTP/2.0\r\nHost: pulsar\r\n\r\n",
    "an odd version": b"GET / HTTP/1.2\r\nHost: pulsar\r\n\r\n",
    "no version": b"GET /\r\nHost: pulsar\r\n\r\n",
    "a version in lower case": b"GET / http/1.1\r\nHost: pulsar\r\n\r\n",
    "a method nobody knows": b"GETTY / HTTP/1.1\r\nHost: pulsar\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "a binary command": b"\x00\x00\x00\x10\x00\x00\x00\x0c\x08\x02" + bytes(10) + b"\r\n\r\n",
    "a bad chunk size": request(b"Transfer-Encoding: chunked", body=b"x\r\nhello\r\n0\r\n\r\n"),
    "a signed chunk size": request(b"Transfer-Encoding: chunked", body=b"+5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size in C's notation": request(b"Transfer-Encoding: chunked", body=b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size beyond 64 bits": request(b"Transfer-Encoding: chunked", body=b"FFFFFFFFFFFFFFFFF\r\nhello\r\n"),
    "a chunk longer than its size": request(b"Transfer-Encoding: chunked", body=b"2\r\nhello\r\n0\r\n\r\n"),
    "a bare LF after a chunk's size": request(b"Transfer-Encoding: chunked", body=b"5\nhello\r\n0\r\n\r\n"),
    "a bare LF after a chunk": request(b"Transfer-Encoding: chunked", body=b"5\r\nhello\n0\r\n\r\n"),
    "a bare LF in a chunk's extension": request(b"Transfer-Encoding: chunked", body=b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
    "a space after a chunk's size": request(b"Transfer-Encoding: chunked", body=b"5 \r\nhello\r\n0\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("data", SMUGGLING.values(), ids=SMUGGLING.keys())
async def test_malformed_or_ambiguous_request_gets_4xx_and_never_reaches_a_broker(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    served = await start(broker.url)
    client = await served.client(data + get(b"/smuggled"))
    answer = await client.message()
    assert 400 <= answer.status < 500
    assert reason(answer) == "bad-request" or answer.status == 400
    assert await client.rest() == b""  # what follows is not read
    assert broker.untouched
    assert served.number("requests_total", code=str(answer.status)) == 1
    assert served.number("requests_total") == 1


@pytest.mark.parametrize("start_line", [b"GET / HTTP/0.9", b"GET / HTTP/2.0", b"POST / HTTP/2.0", b"GET /"])
async def test_a_version_other_than_http_1_is_refused(start: Start, broker: RawBroker, start_line: bytes) -> None:
    served = await start(broker.url)
    client = await served.client(request(start=start_line))
    answer = await client.message()
    assert (answer.status, reason(answer)) == (505, "http-version")
    assert await client.rest() == b""
    assert broker.untouched


HOSTS = {
    "none": b"GET / HTTP/1.1\r\n\r\n",
    "two": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "one twice": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "a user": get(b"/", b"user@pulsar"),
    "a path": get(b"/", b"pulsar/path"),
    "a list": get(b"/", b"a, b"),
    "a space": get(b"/", b"a b"),
    "no port": get(b"/", b"pulsar:x"),
    "a port too high": get(b"/", b"pulsar:65536"),
    "a port in other digits": get(b"/", "pulsar:８０".encode()),
    "not ASCII": get(b"/", b"p\xc3\xbclsar"),
    "an open bracket": get(b"/", b"[::1"),
    "a scheme": get(b"/", b"http://pulsar"),
    "a star": get(b"/", b"*"),
}


@pytest.mark.parametrize("data", HOSTS.values(), ids=HOSTS.keys())
async def test_a_bad_host_is_refused(start: Start, broker: RawBroker, data: bytes) -> None:
    served = await start(broker.url)
    answer = await served.ask(data)
    assert answer.status == 400
    assert reason(answer) in ("bad-host", "bad-request")
    assert broker.untouched


TARGETS = {
    "CONNECT": (b"CONNECT broker:6650 HTTP/1.1\r\nHost: broker:6650\r\n\r\n", 405, "method-not-allowed"),
    "CONNECT to a path": (b"CONNECT / HTTP/1.1\r\nHost: broker\r\n\r\n", 405, "method-not-allowed"),
    "a star for GET": (get(b"*"), 400, "bad-request"),
    "no slash": (get(b"admin/v2"), 400, "bad-request"),
    "another scheme": (get(b"ftp://pulsar/x"), 400, "bad-target"),
    "a file": (get(b"file:///etc/passwd"), 400, "bad-request"),
    "a user in the URL": (get(b"http://user@pulsar/x"), 400, "bad-target"),
    "a fragment": (get(b"/x#y"), 400, "bad-target"),
    "a fragment after the query": (get(b"/x?a=b#y"), 400, "bad-target"),
    "a fragment of a URL": (get(b"http://pulsar/x#y"), 400, "bad-target"),
    "a dot segment": (get(b"/admin/v2/../v3"), 400, "bad-path"),
    "a single dot": (get(b"/admin/./v2"), 400, "bad-path"),
    "dots at the end": (get(b"/admin/.."), 400, "bad-path"),
    "dots in a URL": (get(b"http://pulsar/admin/../x"), 400, "bad-path"),
    "encoded dots": (get(b"/admin/%2e%2E/x"), 400, "bad-path"),
    "half encoded dots": (get(b"/admin/.%2e/x"), 400, "bad-path"),
    "dots with parameters": (get(b"/admin/..;a=b/x"), 400, "bad-path"),
    "dots after an encoded slash": (get(b"/admin/a%2F..%2Fb"), 400, "bad-path"),
    "dots after a backslash": (get(b"/admin/a\\..\\b"), 400, "bad-path"),
    "dots as Jetty alone decodes them": (get(b"/lookup/%u002e%u002e/admin"), 400, "bad-path"),
    "a stray percent sign": (get(b"/lookup/v2/topic/persistent/t/n/100%"), 400, "bad-path"),
    "overlong UTF-8": (get(b"/admin/%c0%ae%c0%ae/x"), 400, "bad-path"),
    "path parameters": (get(b"/lookup;v2/topic/persistent/t/n/x"), 400, "bad-path"),
    "an empty segment": (get(b"//admin/v2"), 400, "bad-path"),
    "thousands of slashes": (get(b"/" * 29_000), 400, "bad-path"),
    "dots after an encoded backslash": (get(b"/admin/a%5C..%5Cb"), 400, "bad-path"),
}


@pytest.mark.parametrize(("data", "status", "code"), TARGETS.values(), ids=TARGETS.keys())
async def test_a_bad_target_is_refused(start: Start, broker: RawBroker, data: bytes, status: int, code: str) -> None:
    served = await start(broker.url)
    client = await served.client(data)
    answer = await client.message()
    assert (answer.status, reason(answer)) == (status, code)
    assert await client.rest() == b""
    assert broker.untouched


LARGE = {
    "a line": get(b"/" + b"x" * 2000),
    "a field": request(b"X-A: " + b"x" * 2000),
    "a name": request(b"X" * 2000 + b": a"),
    "the number of fields": request(*(b"X-%d: x" % number for number in range(30))),
}


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE.keys())
async def test_a_head_that_is_too_large_is_refused(start: Start, broker: RawBroker, data: bytes) -> None:
    served = await start(broker.url, limits={"headBytes": 1024, "headers": 20})
    answer = await served.ask(data)
    assert (answer.status, reason(answer)) == (431, "head-too-large")
    assert broker.untouched
    assert served.number("requests_total", code="431") == 1


async def test_a_head_that_never_ends_is_refused_at_the_limit(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
    client.send(b"x" * 40000)
    assert (await client.message()).status == 431
    assert broker.untouched


NAMES = {
    "CRLF": (b"?listenerName=external%0d%0aX-Evil:%20yes", 400, "bad-listener-name"),
    "LF": (b"?listenerName=a%0ab", 400, "bad-listener-name"),
    "NUL": (b"?listenerName=%00", 400, "bad-listener-name"),
    "a space": (b"?listenerName=a%20b", 400, "bad-listener-name"),
    "a plus": (b"?listenerName=a+b", 400, "bad-listener-name"),
    "not ASCII": (b"?listenerName=%C3%A4", 400, "bad-listener-name"),
    "not UTF-8": (b"?listenerName=%ff", 400, "bad-listener-name"),
    "raw bytes": (b"?listenerName=\xff", 400, "bad-request"),
    "an encoded parameter": (b"?listener%4Eame=a%0d%0ab", 400, "bad-listener-name"),
    "an endless name": (b"?listenerName=" + b"a" * 300, 400, "bad-listener-name"),
}  # fmt: skip


@pytest.mark.parametrize(("query", "status", "code"), NAMES.values(), ids=NAMES.keys())
async def test_malformed_listener_name_in_query_gets_400(
    start: Start, broker: RawBroker, query: bytes, status: int, code: str
) -> None:
    served = await start(broker.url, ingresses=[INGRESS])
    data = get(b"/lookup/v2/topic/persistent/t/n/x" + query, b"pulsar.example.com")
    answer = await served.ask(data)
    assert (answer.status, reason(answer)) == (status, code)
    assert broker.untouched
    misses = served.number("listener_misses_total", reason=code, ingress="public")
    assert misses == (code == "bad-listener-name")


async def test_refusal_of_head_request_has_no_body(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, ingresses=[INGRESS])
    client = await served.client(b"HEAD /admin/../x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await client.head()).status == 400
    assert await client.rest() == b""


async def test_valid_request_is_answered_before_malformed_one_behind_it_gets_400(
    start: Start, broker: RawBroker
) -> None:
    """The good one is answered as if nothing had come behind it."""
    served = await start(broker.url)
    put = request(b"Content-Length: 5", start=b"PUT /x HTTP/1.1", body=b"hello")
    client = await served.client(put)
    wire = await broker.accept()
    client.send(b"GET / HTTP/1.1\nHost: bad\n\n")
    assert (await wire.message()).body == b"hello"
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert (await client.message()).status == 400
    assert await client.rest() == b""


# Bodies that go wrong when their head is already with the broker.

BROKEN = {
    "a bad size": b"x\r\nhello\r\n",
    "a chunk longer than its size": b"2\r\nhello\r\n",
    "a bare LF": b"5\nhello\r\n",
}


@pytest.mark.parametrize("rest", BROKEN.values(), ids=BROKEN.keys())
async def test_malformed_chunk_mid_upload_gets_400_and_never_looks_complete_to_broker(
    start: Start, broker: RawBroker, rest: bytes
) -> None:
    served = await start(broker.url)
    client = await served.client(request(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n"))
    wire = await broker.accept()
    await wire.head()
    assert await wire.take(8) == b"3\r\nabc\r\n"
    client.send(rest)
    answer = await client.message()
    assert (answer.status, reason(answer)) == (400, "bad-body")
    assert await client.rest() == b""
    await wire.end()
    assert b"0\r\n\r\n" not in wire.buffer  # or it would count as whole
    assert served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0


async def test_answer_under_way_is_cut_off_when_request_body_turns_malformed(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(request(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n"))
    wire = await broker.accept()
    await wire.head()
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n")
    await client.take_until(b"some\r\n")
    client.send(b"x\r\n")
    assert await client.rest() == b""
    await wire.end()
    assert served.number("upstream_errors_total") == 0


@pytest.mark.parametrize("turns", range(12))
async def test_malformed_chunk_gets_400_however_early_or_late_it_arrives(
    start: Start, broker: RawBroker, turns: int
) -> None:
    """Before the request is read, while a connection is made, after the head is sent."""
    served = await start(broker.url)
    client = await served.client(request(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n"))
    for _ in range(turns):
        await asyncio.sleep(0)
    client.send(b"x\r\n")
    answer = await client.message()
    assert (answer.status, reason(answer)[:4]) == (400, "bad-")
    assert await client.rest() == b""
    assert not any(b"0\r\n\r\n" in wire.buffer for wire in broker.wires)


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
async def test_truncated_request_body_never_looks_complete_to_broker(
    start: Start, broker: RawBroker, framing: bytes
) -> None:
    served = await start(broker.url)
    client = await served.client(request(framing, body=b"3\r\nabc\r\n"))
    wire = await broker.accept()
    await wire.head()
    assert await wire.take(8) == b"3\r\nabc\r\n"
    client.close()
    await wire.end()
    assert not wire.buffer


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
async def test_client_that_half_closes_mid_body_gets_400(start: Start, broker: RawBroker, framing: bytes) -> None:
    served = await start(broker.url)
    client = await served.client(request(framing, body=b"3\r\nabc\r\n"))
    wire = await broker.accept()
    await wire.head()
    assert await wire.take(8) == b"3\r\nabc\r\n"
    client.transport.write_eof()
    answer = await client.message()
    assert (answer.status, reason(answer)) == (400, "bad-body")
    await wire.end()
    assert not wire.buffer


# HTTP/2.


@pytest.mark.parametrize("split", [24, 14, 3])
async def test_http_2_preface_closes_connection_and_logs_h2_upgrade_policy_hint(
    start: Start, broker: RawBroker, caplog: pytest.LogCaptureFixture, split: int
) -> None:
    served = await start(broker.url)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    client = await served.client(preface[:split])
    await settled(lambda: client.total)
    client.send(preface[split:] + bytes(9))
    await client.end()
    assert not client.buffer
    assert broker.untouched
    assert "h2UpgradePolicy" in caplog.text
