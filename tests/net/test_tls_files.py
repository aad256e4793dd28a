"""TLS files: certificates, keys and CAs that change while the sidecar runs, and those that prevent its start."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from raw import CLOSING, GET, OK, RawBroker, Start, Wire, answer_all
from running_sidecar import while_running
from tls_helpers import (
    NAME,
    VERSIONS,
    Secret,
    Secure,
    ask_through,
    broker_context,
    ca_file,
    chain,
    client_context,
    der,
    https,
    pair_files,
    shown,
    towards,
    unreachable,
    written,
)
from wires import dialed, opened

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.net import tls
from pulsar_ingress_proxy.net.tls import BrokerTls, CannotLoad, ServerTls
from pulsar_ingress_proxy.tools.preflight import CannotStart

# Changes, towards clients.


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

    async with while_running(answer_all(broker)), asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(ask(kept=number % 2 == 0))
        for _ in range(30):
            pair = ca.issue_cert(NAME)
            secret.put_pair(pair)
            assert served.sidecar.refresh_certificates()
            assert shown(await served.client(b"", client_context(ca), NAME)) == der(pair)
        changing = False
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
        ("tls.key", None, "tls.key: {path} cannot be read: No such file or directory"),
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
    spoil: Callable[[bytes], bytes] | None,
    said: str,
) -> None:
    own = ca.issue_cert("client")
    pair = ca.issue_cert(NAME)
    tls = {**pair_files(tmp_path, pair), "clientCa": ca_file(tmp_path, ca)}
    served = await start(broker.url, **https(tls))
    path = tmp_path / name
    whole = path.read_bytes()
    written(path, spoil(whole)) if spoil else path.unlink()
    caplog.clear()
    for _ in range(3):
        assert not served.sidecar.refresh_certificates()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "proxy.tls"]
    assert line.startswith(said.format(path=path, certificate=tls["certificate"]))
    assert line.endswith("; keeping the certificates loaded before")
    assert shown(await served.client(b"", client_context(ca, own), NAME)) == der(pair)

    renewed = ca.issue_cert(NAME)
    written(path, whole)
    pair_files(tmp_path, renewed)
    assert served.sidecar.refresh_certificates()
    assert shown(await served.client(b"", client_context(ca, own), NAME)) == der(renewed)


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
    async with while_running(answer_all(broker)):
        session, _ = await asyncio.to_thread(visit, served.port, context)
        session, resumed = await asyncio.to_thread(visit, served.port, context, session)
        assert resumed, "or the rest would show nothing"
        ca_file(tmp_path, staying)
        assert served.sidecar.refresh_certificates()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(visit, served.port, context, session)
        await asyncio.to_thread(visit, served.port, other)
    assert served.number("requests_total") == 3


async def test_tls_files_of_another_config_are_used_on_existing_sockets(ca: trustme.CA, tmp_path: Path) -> None:
    pairs = [ca.issue_cert(NAME), ca.issue_cert(NAME), ca.issue_cert(NAME)]
    tls, other = (
        ServerTls(
            load_mapping({"brokers": {"webServiceUrl": ["http://b"]}, "tls": pair_files(tmp_path, pair, name)}).tls
        )
        for pair, name in zip(pairs, ("one", "two"), strict=False)
    )
    async with opened(RawBroker(), tls.context) as broker:

        async def showing() -> bytes:
            wire = await dialed(Wire, broker.port, client_context(ca), NAME)
            wire.abort()
            return shown(wire)

        assert await showing() == der(pairs[0])
        tls.adopt(other)
        assert await showing() == der(pairs[1])
        pair_files(tmp_path, pairs[2], "two")
        assert tls.refresh()
        assert await showing() == der(pairs[2])


def test_files_that_are_replaced_while_they_are_read_are_read_again(
    ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = ca.issue_cert(NAME), ca.issue_cert(NAME)
    files = pair_files(tmp_path, old)
    Path(files["key"]).write_bytes(new.private_key_pem.bytes())
    load_pair = tls._load_pair

    def replaced_meanwhile(*arguments: Any) -> None:
        try:
            load_pair(*arguments)
        except CannotLoad:
            pair_files(tmp_path, new)
            raise

    monkeypatch.setattr(tls, "_load_pair", replaced_meanwhile)
    config = load_mapping({"brokers": {"webServiceUrl": ["http://b"]}, "tls": files})
    assert ServerTls(config.tls).refresh() is False


# Changes, towards brokers.


async def test_changed_sidecar_certificate_is_used_for_new_broker_connections(
    secure: Secure, ca: trustme.CA, secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = ca.issue_cert("sidecar"), ca.issue_cert("sidecar")
    secret.put_pair(first)
    served, broker = await secure(broker_context(ca.issue_cert("127.0.0.1"), clients=ca), **secret.pair)
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
    secure: Secure, ca: trustme.CA, stranger: trustme.CA, tmp_path: Path
) -> None:
    served, broker = await secure()
    await ask_through(served, broker, CLOSING)
    ca_file(tmp_path, stranger)
    assert served.sidecar.refresh_certificates()
    await unreachable(served)
    ca_file(tmp_path, stranger, ca)
    assert served.sidecar.refresh_certificates()
    await ask_through(served, broker, CLOSING)


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
