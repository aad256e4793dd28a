"""TLS on both sides: who is let in, who is dialled, and certificates that change while the sidecar runs."""

import asyncio
import datetime
import json
import os
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from raw import OK, Message, RawBroker, Served, Start, Wire

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.net.tls import BrokerTls, CannotLoad, ServerTls
from pulsar_ingress_proxy.tools.preflight import CannotStart

NAME = "pulsar.example.com"
GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
CLOSING = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
LOOKUP = b"GET /lookup/v2/topic/persistent/public/default/t HTTP/1.1\r\nHost: pulsar.example.com\r\n\r\n"
BROKER_ID = "spiffe://cluster.local/ns/pulsar/sa/broker"
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])

Secure = Callable[[ssl.SSLContext], Awaitable[RawBroker]]


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def stranger() -> trustme.CA:
    """A CA that nobody here trusts."""
    return trustme.CA()


@pytest.fixture
async def secure(tidy: None) -> AsyncIterator[Secure]:
    """Opens brokers with https."""
    async with AsyncExitStack() as stack:

        async def begin(tls: ssl.SSLContext) -> RawBroker:
            broker = RawBroker()
            await broker.open(tls=tls)
            stack.push_async_callback(broker.close)
            return broker

        yield begin


class Secret:
    """A Secret as Kubernetes mounts it: its files are links through ..data, which a change swaps in one step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._generation = 0

    def put(self, **files: bytes) -> None:
        self._generation += 1
        new = self.folder / f"..2024_05_{self._generation}"
        new.mkdir()
        for name, data in files.items():
            (new / name).write_bytes(data)
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        (self.folder / "..data_tmp").symlink_to(new.name)
        old = (self.folder / "..data").resolve()
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        if self._generation > 1:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def put_pair(self, pair: trustme.LeafCert) -> None:
        self.put(certificate=chain(pair), key=pair.private_key_pem.bytes())

    @property
    def pair(self) -> dict[str, str]:
        return {name: str(self.folder / name) for name in ("certificate", "key")}


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


def chain(pair: trustme.LeafCert) -> bytes:
    return b"".join(pem.bytes() for pem in pair.cert_chain_pems)


def der(pair: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert_chain_pems[0].bytes().decode())


def written(path: Path, data: bytes) -> str:
    """Put a file in place, as another one: times alone are too coarse for a test's pace."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.rename(path)
    return str(path)


def pair_files(folder: Path, pair: trustme.LeafCert, name: str = "tls") -> dict[str, str]:
    return {
        "certificate": written(folder / f"{name}.crt", chain(pair)),
        "key": written(folder / f"{name}.key", pair.private_key_pem.bytes()),
    }


def ca_file(folder: Path, *cas: trustme.CA) -> str:
    return written(folder / "ca.crt", b"".join(one.cert_pem.bytes() for one in cas))


def client_context(ca: trustme.CA, own: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    return context


def broker_context(pair: trustme.LeafCert, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair.configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def shown(wire: Wire) -> bytes:
    """The certificate that the other side showed."""
    certificate = wire.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(certificate, bytes)
    return certificate


def https(tls: dict[str, str]) -> dict[str, Any]:
    return {"bindAddresses": ["https://127.0.0.1:0"], "tls": tls}


def towards(**tls: str) -> dict[str, Any]:
    return {"brokers": {"tls": tls}}


def reason(message: Message) -> str:
    return str(json.loads(message.body)["reason"]).partition(":")[0]


async def answer_all(broker: RawBroker, data: bytes = OK) -> None:
    """Answer every request on every connection."""

    async def serve(wire: Wire) -> None:
        try:
            while True:
                await wire.message()
                wire.send(data)
        except EOFError:
            wire.close()

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(serve(await broker.accept()))


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


async def test_changed_certificate_is_used_for_new_connections_and_old_ones_continue(
    start: Start, broker: RawBroker, ca: trustme.CA, secret: Secret
) -> None:
    first, second = ca.issue_cert(NAME), ca.issue_cert(NAME)
    secret.put_pair(first)
    served = await start(broker.url, **https(secret.pair))
    old = await served.client(GET, client_context(ca), NAME)
    await broker.answer()
    assert (await old.message()).status == 200
    assert shown(old) == der(first)
    assert not served.sidecar.refresh_certificates()

    secret.put_pair(second)
    assert served.sidecar.refresh_certificates()
    assert not served.sidecar.refresh_certificates()
    assert shown(await served.client(b"", client_context(ca), NAME)) == der(second)
    nameless = client_context(ca)
    nameless.check_hostname = False
    assert shown(await served.client(b"", nameless, "")) == der(second)

    old.send(GET)
    wire = broker.wires[0]
    await wire.message()
    wire.send(OK)
    assert (await old.message()).status == 200


async def test_no_request_fails_while_certificates_change_under_load(
    start: Start, broker: RawBroker, ca: trustme.CA, secret: Secret
) -> None:
    secret.put_pair(ca.issue_cert(NAME))
    served = await start(broker.url, **https(secret.pair))
    changing = True
    answered = 0

    async def ask(kept: bool) -> None:
        nonlocal answered
        client = None
        while changing:
            client = client or await served.client(b"", client_context(ca), NAME)
            client.send(GET)
            assert (await client.message()).status == 200
            answered += 1
            if not kept:
                client.close()
                client = None

    answering = asyncio.ensure_future(answer_all(broker))
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask(kept=number % 2 == 0))
            for _ in range(30):
                pair = ca.issue_cert(NAME)
                secret.put_pair(pair)
                assert served.sidecar.refresh_certificates()
                assert shown(await served.client(b"", client_context(ca), NAME)) == der(pair)
            changing = False
    finally:
        answering.cancel()
        await asyncio.wait([answering])
    assert answered >= 8
    assert served.number("requests_total", code="200") == served.number("requests_total") == answered


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("tls.crt", cut, "tls.certificate: {path} does not hold whole certificates in PEM"),
        ("tls.crt", lambda data: b"", "tls.certificate: {path} does not hold whole certificates in PEM"),
        ("tls.crt", lambda data: data + cut(data), "tls.certificate: {path} does not hold whole certificates in PEM"),
        ("tls.key", cut, "tls.key: {path} does not hold a key in PEM that can be used"),
        ("tls.key", lambda data: b"", "tls.key: {path} does not hold a key in PEM that can be used"),
        (
            "tls.key",
            lambda data: trustme.CA().issue_cert(NAME).private_key_pem.bytes(),
            "tls.key: {path} is not the key of {certificate}",
        ),
        ("ca.crt", cut, "tls.clientCa: {path} does not hold whole CA certificates in PEM"),
        ("ca.crt", lambda data: b"", "tls.clientCa: {path} does not hold whole CA certificates in PEM"),
    ],
)
async def test_broken_tls_file_is_logged_once_and_old_files_stay_in_force(
    start: Start,
    broker: RawBroker,
    ca: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    spoil: Callable[[bytes], bytes],
    said: str,
) -> None:
    own = ca.issue_cert("client")
    pair = ca.issue_cert(NAME)
    tls = {**pair_files(tmp_path, pair), "clientCa": ca_file(tmp_path, ca)}
    served = await start(broker.url, **https(tls))
    path = tmp_path / name
    whole = path.read_bytes()
    written(path, spoil(whole))
    caplog.clear()
    for _ in range(3):
        assert not served.sidecar.refresh_certificates()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "proxy.tls"]
    assert line.startswith(said.format(path=path, certificate=tls["certificate"]))
    assert line.endswith("; what was loaded before stays in force")
    assert shown(await served.client(b"", client_context(ca, own), NAME)) == der(pair)

    renewed = ca.issue_cert(NAME)
    pair_files(tmp_path, renewed)
    ca_file(tmp_path, ca)
    assert served.sidecar.refresh_certificates()
    assert shown(await served.client(b"", client_context(ca, own), NAME)) == der(renewed)


async def test_missing_tls_key_keeps_old_certificate_and_is_reloaded_when_back(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = pair_files(tmp_path, pair := ca.issue_cert(NAME))
    served = await start(broker.url, **https(tls))
    os.rename(tls["key"], tls["key"] + ".away")
    assert not served.sidecar.refresh_certificates()
    assert f"tls.key: {tls['key']} cannot be read: No such file or directory" in caplog.text
    assert shown(await served.client(b"", client_context(ca), NAME)) == der(pair)
    os.rename(tls["key"] + ".away", tls["key"])
    assert served.sidecar.refresh_certificates()


def visit(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLSession | None, bool | None]:
    """Ask, with a session to resume; the session to resume the next time, and whether this one was."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=NAME, session=session) as wire,
    ):
        wire.sendall(GET)
        if not (answer := wire.recv(65536)):
            raise ConnectionError("the connection ended without an answer")
        assert answer.startswith(b"HTTP/1.1 200 ")
        return wire.session, wire.session_reused


@VERSIONS
async def test_removed_client_ca_admits_no_client_even_by_session_resumption(
    start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    leaving, staying = trustme.CA(), trustme.CA()
    tls = {**pair_files(tmp_path, ca.issue_cert(NAME)), "clientCa": ca_file(tmp_path, leaving, staying)}
    served = await start(broker.url, **https(tls))
    context, other = (client_context(ca, one.issue_cert("client")) for one in (leaving, staying))
    context.minimum_version = context.maximum_version = version
    answering = asyncio.ensure_future(answer_all(broker))
    try:
        session, _ = await asyncio.to_thread(visit, served.port, context)
        session, resumed = await asyncio.to_thread(visit, served.port, context, session)
        assert resumed, "or the rest would show nothing"
        ca_file(tmp_path, staying)
        assert served.sidecar.refresh_certificates()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(visit, served.port, context, session)
        await asyncio.to_thread(visit, served.port, other)
    finally:
        answering.cancel()
        await asyncio.wait([answering])
    assert served.number("requests_total") == 3


async def test_tls_files_of_another_config_are_used_on_existing_sockets(ca: trustme.CA, tmp_path: Path) -> None:
    pairs = [ca.issue_cert(NAME), ca.issue_cert(NAME), ca.issue_cert(NAME)]
    tls, other = (
        ServerTls(
            load_mapping({"brokers": {"webServiceUrl": ["http://b"]}, "tls": pair_files(tmp_path, pair, name)}).tls
        )
        for pair, name in zip(pairs, ("one", "two"), strict=False)
    )
    broker = RawBroker()
    await broker.open(tls=tls.context)

    async def showing() -> bytes:
        _, wire = await asyncio.get_running_loop().create_connection(
            Wire, "127.0.0.1", broker.port, ssl=client_context(ca), server_hostname=NAME
        )
        wire.transport.abort()
        return shown(wire)

    assert await showing() == der(pairs[0])
    tls.adopt(other)
    assert await showing() == der(pairs[1])
    pair_files(tmp_path, pairs[2], "two")
    assert tls.refresh()
    assert await showing() == der(pairs[2])
    await broker.close()


# Starting.


def locked(pair: trustme.LeafCert) -> bytes:
    key = serialization.load_pem_private_key(pair.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("certificate", b"x", "does not hold whole certificates in PEM"),
        ("certificate", None, "cannot be read: No such file or directory"),
        ("key", b"x", "does not hold a key in PEM that can be used"),
        ("key", locked(trustme.CA().issue_cert(NAME)), "is locked by a passphrase: give a key without one"),
        ("key", trustme.CA().issue_cert(NAME).private_key_pem.bytes(), "is not the key of {certificate}"),
        ("ca", b"x", "does not hold whole CA certificates in PEM"),
        ("ca", None, "cannot be read: No such file or directory"),
    ],
)
@pytest.mark.parametrize("side", ["tls", "brokers.tls"])
async def test_unusable_tls_file_prevents_start_with_a_one_line_reason(
    start: Start, ca: trustme.CA, tmp_path: Path, side: str, name: str, data: bytes | None, said: str
) -> None:
    tls = pair_files(tmp_path, ca.issue_cert(NAME))
    key = "clientCa" if side == "tls" and name == "ca" else name
    tls[key] = str(tmp_path / "bad.pem")
    if data is not None:
        written(tmp_path / "bad.pem", data)
    with pytest.raises(CannotStart) as fault:
        await start("https://127.0.0.1:1", **(https(tls) if side == "tls" else towards(**tls)))
    assert str(fault.value).startswith(f"{side}.{key}: {tls[key]} {said.format(**tls)}")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("named", [{"ca": "nowhere.pem"}, {"certificate": "nowhere.pem", "key": "nowhere.pem"}])
def test_broker_tls_files_are_read_at_start_even_without_https_brokers(named: dict[str, str]) -> None:
    """Discovery may find one that does, later."""
    config = load_mapping({"brokers": {"webServiceUrl": ["http://b"], "tls": named}})
    with pytest.raises(CannotLoad, match=r"brokers\.tls\.(ca|certificate): nowhere\.pem cannot be read"):
        BrokerTls(config)


def test_every_unusable_broker_tls_file_is_reported(ca: trustme.CA, tmp_path: Path) -> None:
    other = trustme.CA().issue_cert(NAME)
    tls = {**pair_files(tmp_path, ca.issue_cert(NAME)), "ca": str(tmp_path / "none.pem")}
    written(tmp_path / "tls.key", other.private_key_pem.bytes())
    with pytest.raises(CannotLoad) as raised:
        BrokerTls(load_mapping({"brokers": {"webServiceUrl": ["https://b"], "tls": tls}}))
    assert [fault.partition(": ")[0] for fault in raised.value.faults] == ["brokers.tls.ca", "brokers.tls.key"]


# Towards brokers.


async def ask_through(served: Served, broker: RawBroker, data: bytes = OK) -> tuple[Wire, Message]:
    """One request, answered by the broker on a new connection; that connection, and what the broker got."""
    client = await served.client(GET)
    wire = await broker.accept()
    request = await wire.message()
    wire.send(data)
    assert (await client.message()).status == 200
    client.close()
    return wire, request


async def unreachable(served: Served, *brokers: RawBroker) -> None:
    answer = await served.ask(GET)
    assert (answer.status, reason(answer)) == (502, "broker-unreachable")
    assert all(broker.untouched for broker in brokers)


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


async def test_broker_with_certificate_from_untrusted_ca_is_unreachable(
    start: Start,
    secure: Secure,
    ca: trustme.CA,
    stranger: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await secure(broker_context(stranger.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    await unreachable(served, broker)
    assert f"{broker.url} cannot be reached: certificate verify failed: " in caplog.text
    assert "_ssl.c" not in caplog.text


async def test_broker_with_certificate_for_another_host_is_unreachable(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.2")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    await unreachable(served, broker)
    assert "certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'" in caplog.text


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


async def test_changed_sidecar_certificate_is_used_for_new_broker_connections(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path, secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = ca.issue_cert("sidecar"), ca.issue_cert("sidecar")
    secret.put_pair(first)
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1"), clients=ca))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca), **secret.pair))
    kept, _ = await ask_through(served, broker)
    assert shown(kept) == der(first)

    secret.put(certificate=chain(second), key=first.private_key_pem.bytes())
    assert not served.sidecar.refresh_certificates()
    assert "brokers.tls.key: " in caplog.text
    secret.put_pair(second)
    assert served.sidecar.refresh_certificates()

    client = await served.client(GET)
    await kept.message()  # a connection that there is goes on
    another, _ = await ask_through(served, broker)
    assert shown(another) == der(second)
    kept.send(OK)
    assert (await client.message()).status == 200


async def test_broker_is_unreachable_while_its_ca_is_removed_from_the_ca_file(
    start: Start, secure: Secure, ca: trustme.CA, stranger: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(broker_context(ca.issue_cert("127.0.0.1")))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca)))
    await ask_through(served, broker, CLOSING)
    ca_file(tmp_path, stranger)
    assert served.sidecar.refresh_certificates()
    await unreachable(served)
    ca_file(tmp_path, stranger, ca)
    assert served.sidecar.refresh_certificates()
    await ask_through(served, broker, CLOSING)


# Identities instead of names.


def svid(ca: trustme.CA, *names: x509.GeneralName) -> ssl.SSLContext:
    """A broker whose certificate has these names, and that of no host."""
    signer = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return broker_context(trustme.LeafCert(private, certificate.public_bytes(serialization.Encoding.PEM), []))


def uri(identity: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(identity)


async def test_broker_with_expected_peer_identity_is_accepted_without_hostname_match(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    broker = await secure(svid(ca, x509.DNSName("somewhere.else"), uri(BROKER_ID)))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID))
    _, request = await ask_through(served, broker)
    assert request.head.one(b"x-forwarded-proto") == b"https"


@pytest.mark.parametrize(
    ("taken", "agreed"),
    [
        pytest.param(["h2", "http/1.1"], "http/1.1", id="any server"),
        pytest.param(["istio-http/1.1"], "istio-http/1.1", id="Istio where it does not insist"),
    ],
)
async def test_alpn_towards_mesh_broker_offers_http_1_1_and_istio_http_1_1(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path, taken: list[str], agreed: str
) -> None:
    context = svid(ca, uri(BROKER_ID))
    context.set_alpn_protocols(taken)
    broker = await secure(context)
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID))
    await ask_through(served, broker)
    (wire,) = broker.wires
    assert wire.transport.get_extra_info("ssl_object").selected_alpn_protocol() == agreed


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param([uri("spiffe://cluster.local/ns/x/sa/y")], "spiffe://cluster.local/ns/x/sa/y", id="another"),
        pytest.param([uri(BROKER_ID + "/x")], BROKER_ID + "/x", id="longer"),
        pytest.param([uri(BROKER_ID.upper())], BROKER_ID.upper(), id="case"),
        pytest.param([x509.DNSName("localhost")], "(none)", id="a name alone"),
        pytest.param([x509.DNSName(BROKER_ID)], "(none)", id="as a DNS name"),
        pytest.param([uri(BROKER_ID), uri("spiffe://x/y")], f"{BROKER_ID} and spiffe://x/y", id="two"),
    ],
)
async def test_broker_with_other_peer_identity_is_unreachable(
    start: Start,
    secure: Secure,
    ca: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    names: list[x509.GeneralName],
    found: str,
) -> None:
    context = svid(ca, *names)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the broker's handshake is done before the sidecar's
    broker = await secure(context)
    served = await start(
        f"https://localhost:{broker.port}", **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID)
    )
    await unreachable(served, broker)
    assert f"cannot be reached: its certificate has the identity {found}, not {BROKER_ID}" in caplog.text
    await (await broker.accept()).end()


async def test_peer_identity_from_untrusted_ca_is_refused(
    start: Start,
    secure: Secure,
    ca: trustme.CA,
    stranger: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await secure(svid(stranger, uri(BROKER_ID)))
    served = await start(broker.url, **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID))
    await unreachable(served, broker)
    assert "certificate verify failed: " in caplog.text


async def test_next_broker_is_asked_when_one_has_wrong_peer_identity(
    start: Start, secure: Secure, ca: trustme.CA, tmp_path: Path
) -> None:
    wrong, right = await secure(svid(ca, uri("spiffe://x/y"))), await secure(svid(ca, uri(BROKER_ID)))
    served = await start(wrong.url, right.url, **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID))
    for _ in range(4):
        await ask_through(served, right, CLOSING)
    assert wrong.untouched


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
