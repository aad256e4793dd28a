"""HTTP over TLS: what schemes brokers and redirects get, and how answers end (RFC 9112 9.8)."""

from pathlib import Path

import pytest
import trustme
from raw import CLOSING, GET, LOOKUP, RawBroker, Start
from tls_helpers import NAME, Secure, client_context, https, pair_files


async def test_lookup_over_https_is_redirected_to_https_when_listener_has_both_schemes(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path
) -> None:
    """The socket's own scheme is the client's: where the listener has both, the redirect stays with TLS."""
    listeners = "external:http://b1.example.com,external:https://b1.example.com"
    served = await start(
        broker.url,
        **https(pair_files(tmp_path, ca.issue_cert(NAME))),
        lookupListenerName="external",
        advertisedListeners=[{"broker": "b1", "listeners": listeners}],
    )
    client = await served.client(LOOKUP, client_context(ca), NAME)
    moved = b"HTTP/1.1 307 TR\r\nLocation: http://b1:8080/lookup/v2/topic/x\r\nContent-Length: 0\r\n\r\n"
    request = await broker.answer(moved)
    assert request.head.one(b"x-pulsar-listenername") == b"external"
    assert request.head.one(b"x-forwarded-proto") == b"http", "the scheme of our own connection"
    answer = await client.message()
    assert answer.head.one(b"location") == b"https://b1.example.com/lookup/v2/topic/x?listenerName=external"


async def test_https_broker_gets_x_forwarded_proto_https_and_its_own_host(secure: Secure) -> None:
    served, broker = await secure()
    client = await served.client(GET)
    request = await broker.answer()
    assert request.head.one(b"x-forwarded-proto") == b"https"
    assert request.head.one(b"host") == broker.url.removeprefix("https://").encode()
    assert (await client.message()).body == b"ok"


UNTIL_THE_END = b"HTTP/1.1 200 OK\r\n\r\nsome of it"


@pytest.mark.parametrize(
    ("answer", "how", "body"),
    [
        pytest.param(UNTIL_THE_END, "close", b"some of it", id="close_notify ends it"),
        pytest.param(UNTIL_THE_END, "abort", None, id="without one, anybody on the way may have"),
        pytest.param(CLOSING, "abort", b"ok", id="a known length needs none"),
    ],
)
async def test_tls_answer_without_a_length_is_complete_only_with_close_notify(
    secure: Secure, answer: bytes, how: str, body: bytes | None
) -> None:
    served, broker = await secure()
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.message()
    wire.send(answer)
    if body is None:
        await client.take_until(b"some of it")
    getattr(wire, how)()
    if body is not None:
        assert (await client.message()).body == body
    else:
        assert b"0\r\n\r\n" not in await client.end()
    truncated = served.number("upstream_errors_total", reason="broker-truncated")
    assert truncated == served.number("upstream_errors_total") == (body is None)
