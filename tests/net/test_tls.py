"""TLS on both sides: which clients are let in, and what brokers are shown."""

import asyncio
import socket
import ssl
import warnings
from pathlib import Path

import pytest
import trustme
from raw import GET, RawBroker, Served, Start, Wire
from tls_helpers import (
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
    shown,
    towards,
)
from wires import dialed

# Towards clients.


async def test_alpn_selects_http_1_1_even_if_client_prefers_h2(served: Served, ca: trustme.CA) -> None:
    context = client_context(ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = await served.client(b"", context, NAME)
    assert client.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


@VERSIONS
async def test_tls_1_2_and_1_3_clients_are_accepted(
    served: Served, broker: RawBroker, ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = client_context(ca)
    context.minimum_version = context.maximum_version = version
    client = await served.client(GET, context, NAME)
    await broker.answer()
    assert (await client.message()).status == 200


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
async def test_tls_1_0_and_1_1_clients_are_refused(
    served: Served, broker: RawBroker, ca: trustme.CA, version: str
) -> None:
    context, accepting = client_context(ca), broker_context(ca.issue_cert(NAME))
    for either in (context, accepting):
        either.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            either.minimum_version = either.maximum_version = ssl.TLSVersion[version]
    await refused(served, context)
    assert broker.untouched

    lenient = RawBroker()
    await lenient.open(tls=accepting)  # the client does offer it
    (await dialed(Wire, lenient.port, context, NAME)).abort()
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


async def test_sni_to_broker_omits_the_trailing_dot_of_its_hostname(secure: Secure, ca: trustme.CA) -> None:
    context = broker_context(ca.issue_cert("localhost"))
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    await ask_through(*await secure(context, "localhost."))
    assert names == ["localhost"]


@pytest.mark.parametrize(
    ("says", "said"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "TLS failed: wrong version number", id="plain text"),
        pytest.param(b"", "the connection was reset", id="nothing"),
    ],
)
async def test_https_broker_that_does_not_speak_tls_gives_502_and_the_log_says_why(
    start: Start, broker: RawBroker, caplog: pytest.LogCaptureFixture, says: bytes, said: str
) -> None:
    served = await start(broker.url.replace("http:", "https:"))
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.take(1)
    wire.send(says) if says else wire.close()
    assert (await client.message()).status == 502
    assert f"cannot be reached: {said}" in caplog.text


async def test_sidecar_shows_its_own_certificate_to_brokers(secure: Secure, ca: trustme.CA, tmp_path: Path) -> None:
    own = ca.issue_cert("sidecar")
    context = broker_context(ca.issue_cert("127.0.0.1"), clients=ca)
    wire, _ = await ask_through(*await secure(context, **pair_files(tmp_path, own)))
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
    assert answer.refusal == (502, code)
    assert said in caplog.text
