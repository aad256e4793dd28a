"""Which https brokers are trusted: by CA and host name, or by the identity in their certificate (peerIdentity)."""

import datetime
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from raw import CLOSING, RawBroker, Start
from tls_helpers import Secure, ask_through, broker_context, ca_file, towards, unreachable
from wires import opened

BROKER_ID = "spiffe://cluster.local/ns/pulsar/sa/broker"


async def test_broker_with_certificate_from_untrusted_ca_is_unreachable(
    secure: Secure, stranger: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    served, broker = await secure(broker_context(stranger.issue_cert("127.0.0.1")))
    await unreachable(served, broker)
    assert f"{broker.url} cannot be reached: certificate verify failed: " in caplog.text
    assert "_ssl.c" not in caplog.text


async def test_broker_with_certificate_for_another_host_is_unreachable(
    secure: Secure, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    await unreachable(*await secure(broker_context(ca.issue_cert("127.0.0.2"))))
    assert "certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'" in caplog.text


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
    secure: Secure, ca: trustme.CA
) -> None:
    context = svid(ca, x509.DNSName("somewhere.else"), uri(BROKER_ID))
    _, request = await ask_through(*await secure(context, peerIdentity=BROKER_ID))
    assert request.head.one(b"x-forwarded-proto") == b"https"


@pytest.mark.parametrize(
    ("taken", "agreed"),
    [
        pytest.param(["h2", "http/1.1"], "http/1.1", id="any server"),
        pytest.param(["istio-http/1.1"], "istio-http/1.1", id="Istio where it does not insist"),
    ],
)
async def test_alpn_towards_mesh_broker_offers_http_1_1_and_istio_http_1_1(
    secure: Secure, ca: trustme.CA, taken: list[str], agreed: str
) -> None:
    context = svid(ca, uri(BROKER_ID))
    context.set_alpn_protocols(taken)
    wire, _ = await ask_through(*await secure(context, peerIdentity=BROKER_ID))
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
    secure: Secure, ca: trustme.CA, caplog: pytest.LogCaptureFixture, names: list[x509.GeneralName], found: str
) -> None:
    context = svid(ca, *names)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the broker's handshake is done before the sidecar's
    served, broker = await secure(context, "localhost", peerIdentity=BROKER_ID)
    await unreachable(served, broker)
    assert f"cannot be reached: its certificate has the identity {found}, not {BROKER_ID}" in caplog.text
    await (await broker.accept()).end()


async def test_peer_identity_from_untrusted_ca_is_refused(
    secure: Secure, stranger: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    await unreachable(*await secure(svid(stranger, uri(BROKER_ID)), peerIdentity=BROKER_ID))
    assert "certificate verify failed: " in caplog.text


async def test_next_broker_is_asked_when_one_has_wrong_peer_identity(
    start: Start, ca: trustme.CA, tmp_path: Path
) -> None:
    async with (
        opened(RawBroker(), svid(ca, uri("spiffe://x/y"))) as wrong,
        opened(RawBroker(), svid(ca, uri(BROKER_ID))) as right,
    ):
        served = await start(wrong.url, right.url, **towards(ca=ca_file(tmp_path, ca), peerIdentity=BROKER_ID))
        for _ in range(4):
            await ask_through(served, right, CLOSING)
        assert wrong.untouched
