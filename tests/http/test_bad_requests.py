"""What is not clean HTTP/1.1 gets a 4xx that says why, and not a byte of it reaches a broker."""

import asyncio

import pytest
from raw import OK, PUT, Begin, RawBroker, Served, Start, Wire
from standstill import settled

INGRESS = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}


def request(*lines: bytes, start: bytes = b"POST /topics/persistent/t/n/x HTTP/1.1", body: bytes = b"") -> bytes:
    return b"\r\n".join((start, b"Host: pulsar", *lines)) + b"\r\n\r\n" + body


def chunked(body: bytes) -> bytes:
    return request(b"Transfer-Encoding: chunked", body=body)


def get(target: bytes, host: bytes = b"pulsar", *fields: bytes) -> bytes:
    return b"\r\n".join((b"GET %b HTTP/1.1" % target, b"Host: %b" % host, *fields)) + b"\r\n\r\n"


BAD_PATHS = (
    b"/lookup/../admin/v2/brokers",
    b"/lookup/v2/topic/persistent/t/n/x/../../../../../../../admin/v2/brokers",
    b"/admin/v2/persistent/t/n/x/../partitions",
    b"/admin/..",
    b"http://pulsar/admin/../x",
    b"/admin/./v2",
    b"/./admin/v2/brokers",
    b"/lookup/%2e%2E/admin/v2/brokers",
    b"/lookup/.%2E/admin/v2/brokers",
    b"/lookup/..;a=b/admin/v2/brokers",
    b"/lookup/..%2Fadmin/v2/brokers",
    b"/lookup%2F..%2Fadmin/v2/brokers",
    b"/admin/v2/persistent/t/n/x%2F../partitions",
    b"/admin/a%2F..%2Fb",
    b"/admin/a\\..\\b",
    b"/admin/a%5C..%5Cb",
    b"/lookup/..%5Cadmin/v2/brokers",
    b"/lookup/%u002e%u002e/admin/v2/brokers",  # as Jetty alone decodes them
    b"/lookup/.%u002e/admin/v2/brokers",
    b"/lookup/..%u002fadmin/v2/brokers",
    b"/admin/%c0%ae%c0%ae/x",
    b"/lookup/v2/topic/persistent/t/n/100%",
    b"/%61dmin/v2/brokers",
    b"/%61%64%6D%69%6e/v2/brokers",
    b"/admin%2Fv2%2Fbrokers",
    b"/%2Fadmin/v2/brokers",
    b"/lookup%2F/v2/brokers",
    b"/;/admin/v2/brokers",
    b"/admin;lookup/v2/brokers",
    b"/admin/v2;brokers/persistent/a/b/c/partitions",
    b"/lookup;v2/topic/persistent/t/n/x",
    b"//admin/v2/brokers",
    b"/" * 29_000,
)
"""A broker that reads one of them in another way than the sidecar would serve what the ingress does not expose."""

PROBES: dict[tuple[int, str], dict[str, bytes]] = {
    (400, "bad-request"): {
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
        "chunked twice": request(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"),
        "chunked in two fields": request(*[b"Transfer-Encoding: chunked"] * 2, body=b"0\r\n\r\n"),
        "chunked and another field": request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=b"0\r\n\r\n"),
        "another field and chunked": request(b"Transfer-Encoding: x", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        "chunked with a vertical tab": request(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
        "chunked in quotes": request(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"),
        "chunked with a parameter": request(b"Transfer-Encoding: chunked;a=b", body=b"0\r\n\r\n"),
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
        "an odd version": b"GET / HTTP/1.2\r\nHost: pulsar\r\n\r\n",
        "a version in lower case": b"GET / http/1.1\r\nHost: pulsar\r\n\r\n",
        "a method nobody knows": b"GETTY / HTTP/1.1\r\nHost: pulsar\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        "a binary command": b"\x00\x00\x00\x10\x00\x00\x00\x0c\x08\x02" + bytes(10) + b"\r\n\r\n",
        "a bad chunk size": chunked(b"x\r\nhello\r\n0\r\n\r\n"),
        "a signed chunk size": chunked(b"+5\r\nhello\r\n0\r\n\r\n"),
        "a chunk size in C's notation": chunked(b"0x5\r\nhello\r\n0\r\n\r\n"),
        "a chunk size beyond 64 bits": chunked(b"FFFFFFFFFFFFFFFFF\r\nhello\r\n"),
        "a chunk longer than its size": chunked(b"2\r\nhello\r\n0\r\n\r\n"),
        "a bare LF after a chunk's size": chunked(b"5\nhello\r\n0\r\n\r\n"),
        "a bare LF after a chunk": chunked(b"5\r\nhello\n0\r\n\r\n"),
        "a bare LF in a chunk's extension": chunked(b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        "a space after a chunk's size": chunked(b"5 \r\nhello\r\n0\r\n\r\n"),
        "a star for GET": get(b"*"),
        "no slash": get(b"admin/v2"),
        "a file": get(b"file:///etc/passwd"),
        "no Host": b"GET / HTTP/1.1\r\n\r\n",
        "two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "one Host twice": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    },
    (400, "bad-transfer-encoding"): {
        "a coding within chunks": request(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        "an empty coding": request(b"Transfer-Encoding: ", body=b"0\r\n\r\n"),
        "chunked to http/1.0": request(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0", body=b"0\r\n\r\n"),
    },
    (400, "bad-host"): {
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
    },
    (400, "bad-target"): {
        "another scheme": get(b"ftp://pulsar/x"),
        "a user in the URL": get(b"http://user@pulsar/x"),
        "a fragment": get(b"/x#y"),
        "a fragment after the query": get(b"/x?a=b#y"),
        "a fragment of a URL": get(b"http://pulsar/x#y"),
    },
    (405, "method-not-allowed"): {
        "CONNECT": b"CONNECT broker:6650 HTTP/1.1\r\nHost: broker:6650\r\n\r\n",
        "CONNECT to a path": b"CONNECT / HTTP/1.1\r\nHost: broker\r\n\r\n",
    },
    (505, "http-version"): {
        "HTTP/0.9": request(start=b"GET / HTTP/0.9"),
        "HTTP/2.0": request(start=b"GET / HTTP/2.0"),
        "POST with HTTP/2.0": request(start=b"POST / HTTP/2.0"),
        "no version": request(start=b"GET /"),
    },
    (400, "bad-path"): {target.decode(): get(target) for target in BAD_PATHS},
}  # fmt: skip
"""By what they are refused with."""


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        pytest.param(data, refusal, id=f"{refusal[1]}: {name[:60]}")
        for refusal, probes in PROBES.items()
        for name, data in probes.items()
    ],
)
async def test_malformed_or_ambiguous_request_is_refused_and_never_reaches_a_broker(
    start: Start, broker: RawBroker, data: bytes, refusal: tuple[int, str]
) -> None:
    served = await start(broker.url)
    client = await served.client(data + get(b"/smuggled"))
    assert (await client.message()).refusal == refusal
    assert await client.rest() == b""  # what follows is not read
    assert broker.untouched
    assert served.number("requests_total", code=str(refusal[0])) == served.number("requests_total") == 1


LISTENER = b"X-Pulsar-ListenerName: "
NAMES: dict[str, tuple[bytes, tuple[bytes, ...], str]] = {
    "CRLF": (b"?listenerName=external%0d%0aX-Evil:%20yes", (), "bad-listener-name"),
    "LF": (b"?listenerName=a%0ab", (), "bad-listener-name"),
    "NUL": (b"?listenerName=%00", (), "bad-listener-name"),
    "a space": (b"?listenerName=a%20b", (), "bad-listener-name"),
    "a plus": (b"?listenerName=a+b", (), "bad-listener-name"),
    "not ASCII": (b"?listenerName=%C3%A4", (), "bad-listener-name"),
    "not UTF-8": (b"?listenerName=%ff", (), "bad-listener-name"),
    "raw bytes": (b"?listenerName=\xff", (), "bad-request"),
    "an encoded parameter": (b"?listener%4Eame=a%0d%0ab", (), "bad-listener-name"),
    "an endless name": (b"?listenerName=" + b"a" * 300, (), "bad-listener-name"),
    "a list": (b"?listenerName=external,partner", (), "unknown-listener"),
    "a list in a header": (b"", (LISTENER + b"external,partner",), "unknown-listener"),
    "two headers": (b"", (LISTENER + b"external", LISTENER + b"partner"), "conflicting-names"),
    "two headers, spelled differently": (b"", (LISTENER + b"external", LISTENER.upper() + b"b"), "conflicting-names"),
    "two headers and a query": (
        b"?listenerName=external",
        (LISTENER + b"external", LISTENER + b"partner"),
        "conflicting-names",
    ),
}


@pytest.mark.parametrize(("query", "fields", "code"), NAMES.values(), ids=NAMES.keys())
async def test_malformed_or_conflicting_listener_names_get_400_and_count_as_a_miss(
    start: Start, broker: RawBroker, query: bytes, fields: tuple[bytes, ...], code: str
) -> None:
    lines = [{"broker": "b", "listeners": "external:https://b.example.com,partner:https://c.example.com"}]
    served = await start(broker.url, ingresses=[INGRESS], advertisedListeners=lines)
    answer = await served.ask(get(b"/lookup/v2/topic/persistent/t/n/x" + query, b"pulsar.example.com", *fields))
    assert answer.refusal == (400, code)
    assert broker.untouched
    assert served.number("listener_misses_total", reason=code, ingress="public") == (code != "bad-request")


async def test_refusal_of_head_request_has_no_body(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(b"HEAD /admin/../x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await client.head()).status == 400
    assert await client.rest() == b""


async def test_valid_request_is_answered_before_malformed_one_behind_it_gets_400(begin: Begin) -> None:
    """The good one is answered as if nothing had come behind it."""
    _, client, wire = await begin(PUT)
    client.send(b"GET / HTTP/1.1\nHost: bad\n\n")
    assert await wire.take(5) == b"hello"
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert (await client.message()).status == 400
    assert await client.rest() == b""


# Bodies that go wrong when their head is already with the broker.

CHUNKED = chunked(b"3\r\nabc\r\n")
FRAMINGS = pytest.mark.parametrize(
    "data", [CHUNKED, request(b"Content-Length: 10", body=b"3\r\nabc\r\n")], ids=["chunks", "a length"]
)


async def uploading(begin: Begin, data: bytes = CHUNKED) -> tuple[Served, Wire, Wire]:
    """A request of whose body the broker has a part."""
    served, client, wire = await begin(data)
    assert await wire.take(8) == b"3\r\nabc\r\n"
    return served, client, wire


@pytest.mark.parametrize(
    "rest", [b"x\r\nhello\r\n", b"2\r\nhello\r\n", b"5\nhello\r\n"], ids=["a bad size", "longer", "a bare LF"]
)
async def test_malformed_chunk_mid_upload_gets_400_and_never_looks_complete_to_broker(
    begin: Begin, rest: bytes
) -> None:
    served, client, wire = await uploading(begin)
    client.send(rest)
    assert (await client.message()).refusal == (400, "bad-body")
    assert await client.rest() == b""
    assert b"0\r\n\r\n" not in await wire.end()  # or it would count as whole
    assert served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0


async def test_answer_under_way_is_cut_off_when_request_body_turns_malformed(begin: Begin) -> None:
    served, client, wire = await uploading(begin)
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
    client = await served.client(CHUNKED)
    for _ in range(turns):
        await asyncio.sleep(0)
    client.send(b"x\r\n")
    status, code = (await client.message()).refusal
    assert (status, code[:4]) == (400, "bad-")
    assert await client.rest() == b""
    assert not any(b"0\r\n\r\n" in wire.buffer for wire in broker.wires)


@FRAMINGS
async def test_truncated_request_body_never_looks_complete_to_broker(begin: Begin, data: bytes) -> None:
    _, client, wire = await uploading(begin, data)
    client.close()
    assert await wire.end() == b""


@FRAMINGS
async def test_client_that_half_closes_mid_body_gets_400(begin: Begin, data: bytes) -> None:
    _, client, wire = await uploading(begin, data)
    client.transport.write_eof()
    assert (await client.message()).refusal == (400, "bad-body")
    assert await wire.end() == b""


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
