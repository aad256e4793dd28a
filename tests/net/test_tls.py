"""TLS on both sides: which clients are let in, what brokers are sent and shown, and how answers over TLS end."""

import asyncio
import socket
import ssl
import warnings
from pathlib import Path

import pytest
import trustme
from raw import RawBroker, Served, Start, Wire
from tls_helpers import (
    CLOSING,
    GET,
    NAME,
    VERSIONS,
    Secure,
    ask_through,
    broker_context,
    ca_file,
    client_context,
    der,
    https,
    pair_files,
    reason,
    shown,
    towards,
)

LOOKUP = b"GET /lookup/v2/topic/persistent/public/default/t HTTP/1.1\r\nHost: pulsar.example.com\r\n\r\n"


# Towards clients.


async def test_lookup_over_https_is_redirected_to_https_when_listener_has_both_schemes(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path
) -> None:
    """The socket's own scheme is the client's: where the listener has both, the redirect stays with TLS."""
    served = await start(
        broker.url,
        **https(pair_files(tmp_path, ca.issue_cert(NAME))),
        lookupListenerName="external",
        advertisedListeners=[
            {"broker": "b1", "listeners": "external:http://b1.example.com,external:https://b1.example.com"}
        ],
    )
    client = await served.client(LOOKUP, client_context(ca), NAME)
    wire = await broker.accept()
    request = await wire.message()
    assert request.head.one(b"x-pulsar-listenername") == b"external"
    assert request.head.one(b"x-forwarded-proto") == b"http", "the scheme of our own connection"
    wire.send(b"HTTP/1.1 307 TR\r\nLocation: http://b1:8080/lookup/v2/topic/x\r\nContent-Length: 0\r\n\r\n")
    answer = await client.message()
    assert answer.head.one(b"location") == b"https://b1.example.com/lookup/v2/topic/x?listenerName=external"


async def test_alpn_selects_http_1_1_even_if_client_prefers_h2(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path
) -> None:
    served = await start(broker.url, **https(pair_files(tmp_path, ca.issue_cert(NAME))))
    context = client_context(ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = await served.client(b"", context, NAME)
    assert client.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


@VERSIONS
async def test_tls_1_2_and_1_3_clients_are_accepted(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    served = await start(broker.url, **https(pair_files(tmp_path, ca.issue_cert(NAME))))
    context = client_context(ca)
    context.minimum_version = context.maximum_version = version
    client = await served.client(GET, context, NAME)
    await broker.answer()
    assert (await client.message()).status == 200


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
async def test_tls_1_0_and_1_1_clients_are_refused(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path, version: str
) -> None:
    pair = ca.issue_cert(NAME)
    served = await start(broker.url, **https(pair_files(tmp_path, pair)))
    context, lenient = client_context(ca), RawBroker()
    accepting = broker_context(pair)
    for either in (context, accepting):
        either.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            either.minimum_version = either.maximum_version = ssl.TLSVersion[version]
    await refused(served, context)
    assert broker.untouched

    await lenient.open(tls=accepting)  # the client does offer it
    _, wire = await asyncio.get_running_loop().create_connection(
        Wire, "127.0.0.1", lenient.port, ssl=context, server_hostname=NAME
    )
    wire.transport.abort()
    await lenient.close()


@VERSIONS
async def test_only_clients_with_certificate_from_client_ca_are_accepted(
    start: Start, broker: RawBroker, ca: trustme.CA, stranger: trustme.CA, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    clients = trustme.CA()
    tls = {**pair_files(tmp_path, ca.issue_cert(NAME)), "clientCa": ca_file(tmp_path, clients)}
    served = await start(broker.url, **https(tls))
    for own in (None, stranger.issue_cert("client"), ca.issue_cert("client")):
        context = client_context(ca, own)
        context.minimum_version = context.maximum_version = version
        await refused(served, context)
    assert broker.untouched
    client = await served.client(GET, client_context(ca, clients.issue_cert("client")), NAME)
    await broker.answer()
    assert (await client.message()).status == 200


async def refused(served: Served, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client learns that its certificate was refused when it reads: its handshake was done before."""
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        await (await served.client(GET, context, NAME)).head()


# Towards brokers.


async def test_https_broker_gets_x_forwarded_proto_https_and_its_own_host(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    _, request = await ask_through(served, broker)
    assert request.head.one(b"x-forwarded-proto") == b"https"
    assert request.head.one(b"host") == broker.url.removeprefix("https://").encode()


async def test_request_passes_when_client_and_broker_both_use_https(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    tls = https(pair_files(tmp_path, ca.issue_cert(NAME)))
    served = await start(broker.url, **tls, **towards(ca=ca_file(tmp_path, ca)))
    client = await served.client(GET, client_context(ca), NAME)
    await broker.answer()
    assert (await client.message()).body == b"ok"


async def test_sni_to_broker_omits_the_trailing_dot_of_its_hostname(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    context = broker_context(ca.issue_cert("localhost"))
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    broker = await secure(context)
    served = await start(f"https://localhost.:{broker.port}", **towards(ca=ca_file(tmp_path, ca)))
    await ask_through(served, broker)
    assert names == ["localhost"]


async def test_https_broker_that_answers_in_plain_text_gives_502_and_logs_tls_failure(
    start: Start, broker: RawBroker, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start(broker.url.replace("http:", "https:"))
    client = await served.client(GET)
    wire = await broker.accept()
    wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert (await client.message()).status == 502
    assert "cannot be reached: TLS failed: wrong version number" in caplog.text


async def test_broker_that_closes_during_tls_handshake_gives_502_and_is_logged(
    start: Start, broker: RawBroker, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start(broker.url.replace("http:", "https:"))
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.take(1)
    wire.close()
    assert (await client.message()).status == 502
    assert "cannot be reached: the connection was reset" in caplog.text


async def test_sidecar_shows_its_own_certificate_to_brokers(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    own = ca.issue_cert("sidecar")
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1"), clients=ca))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca), **pair_files(tmp_path, own)))
    wire, _ = await ask_through(served, broker)
    assert shown(wire) == der(own)


def refuse(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Let a handshake fail, and say so, which asyncio's server does not."""
    plain, _ = listening.accept()
    with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as wire:
        with pytest.raises(ssl.SSLError):
            wire.do_handshake()
        while socket.socket.recv(wire, 65536):  # or the alert would be lost in a reset
            pass


@VERSIONS
async def test_broker_that_requires_client_certificate_gives_502_when_sidecar_has_none(
    start: Start, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    context = broker_context(ca.issue_cert("127.0.0.1"), clients=ca)
    context.minimum_version = context.maximum_version = version
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = await start(f"https://127.0.0.1:{listening.getsockname()[1]}", **towards(ca=ca_file(tmp_path, ca)))
        answer, _ = await asyncio.gather(served.ask(GET), asyncio.to_thread(refuse, listening, context))
    # With TLS 1.3 the sidecar's handshake is done when the broker refuses.
    expected = {
        ssl.TLSVersion.TLSv1_2: ("broker-unreachable", "cannot be reached: TLS failed: "),
        ssl.TLSVersion.TLSv1_3: ("broker-closed", "without an answer: TLS failed: tlsv13 alert certificate required"),
    }
    code, said = expected[version]
    assert (answer.status, reason(answer)) == (502, code)
    assert said in caplog.text


# How answers end: RFC 9112 9.8.

UNTIL_THE_END = b"HTTP/1.1 200 OK\r\n\r\nsome of it"


async def test_tls_answer_delimited_by_close_notify_is_complete(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.message()
    wire.send(UNTIL_THE_END)
    wire.close()
    assert (await client.message()).body == b"some of it"
    assert served.number("upstream_errors_total") == 0


async def test_tls_answer_cut_off_without_close_notify_is_truncated(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a close_notify anybody on the way may have ended it."""
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.message()
    wire.send(UNTIL_THE_END)
    await client.take_until(b"some of it")
    wire.transport.abort()
    with pytest.raises((EOFError, AssertionError)):
        assert await client.take_until(b"0\r\n\r\n")
    await client.end()
    assert served.number("upstream_errors_total", reason="broker-truncated") == 1


async def test_an_answer_of_known_length_needs_no_close_notify(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.message()
    wire.send(CLOSING)
    wire.transport.abort()
    assert (await client.message()).body == b"ok"
