"""What tests of TLS share: certificates and their files, contexts of both sides, and requests to https brokers."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from raw import GET, OK, Message, RawBroker, Served, Wire

NAME = "pulsar.example.com"
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])

Secure = Callable[..., Awaitable[tuple[Served, RawBroker]]]
"""Opens an https broker and starts a sidecar before it, as the fixture `secure` gives it."""


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
    assert (await served.ask(GET)).refusal == (502, "broker-unreachable")
    assert all(broker.untouched for broker in brokers)
