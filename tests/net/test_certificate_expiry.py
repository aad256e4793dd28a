"""The metrics that tell when certificates expire, also of those that are replaced while the sidecar runs."""

import datetime
import ssl

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from raw import RawBroker, Served, Start
from tls_helpers import NAME, Secret, Secure, broker_context, client_context, https

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.net.tls import Validity, read_validity

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
TIMES = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(9999, 12, 31)).map(
    lambda at: at.replace(microsecond=0)
)


def pem(not_before: datetime.datetime, not_after: datetime.datetime, subject: str = "") -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)] if subject else [])
    made = x509.CertificateBuilder(name, name, KEY.public_key(), 1, not_before, not_after).sign(KEY, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def in_days(days: int) -> datetime.datetime:
    return NOW + datetime.timedelta(days=days)


def expiry(served: Served, use: str) -> float:
    return served.number("certificate_not_after_seconds", use=use)


async def told_to_clients(served: Served, ca: trustme.CA) -> float:
    """The expiry of the certificate that a client is shown, as OpenSSL reads it."""
    client = await served.client(b"", client_context(ca), NAME)
    certificate = client.transport.get_extra_info("ssl_object").getpeercert()
    return ssl.cert_time_to_seconds(certificate["notAfter"])


async def test_expiry_of_the_served_certificate_follows_the_file(
    start: Start, broker: RawBroker, ca: trustme.CA, secret: Secret
) -> None:
    secret.put_pair(ca.issue_cert(NAME, not_after=in_days(5)))
    served = await start(broker.url, **https(secret.pair))
    assert expiry(served, "serve") == await told_to_clients(served, ca) == in_days(5).timestamp()
    assert ("brokers",) not in served.sidecar.metrics.certificate_not_after.values

    secret.put_pair(ca.issue_cert(NAME, not_after=in_days(90)))
    assert served.sidecar.refresh_certificates()
    assert expiry(served, "serve") == await told_to_clients(served, ca) == in_days(90).timestamp()

    secret.put(certificate=b"", key=b"")
    assert not served.sidecar.refresh_certificates()
    assert expiry(served, "serve") == await told_to_clients(served, ca)  # of the one that stays in use


async def test_expiry_of_the_certificate_for_brokers_follows_the_file(
    secure: Secure, ca: trustme.CA, secret: Secret
) -> None:
    secret.put_pair(ca.issue_cert("sidecar", not_after=in_days(1)))
    served, _ = await secure(broker_context(ca.issue_cert("127.0.0.1"), clients=ca), **secret.pair)
    assert expiry(served, "brokers") == in_days(1).timestamp()
    secret.put_pair(ca.issue_cert("sidecar", not_after=in_days(2)))
    assert served.sidecar.refresh_certificates()
    assert expiry(served, "brokers") == in_days(2).timestamp()
    assert served.number("certificate_not_before_seconds", use="brokers") < expiry(served, "brokers")
    assert served.sidecar.metrics.certificate_not_after.values.keys() == {("brokers",)}


async def test_reload_to_a_config_without_certificates_removes_their_expiry(
    start: Start, broker: RawBroker, ca: trustme.CA, secret: Secret
) -> None:
    secret.put_pair(ca.issue_cert(NAME))
    served = await start(broker.url, **https(secret.pair))
    plain = {"bindAddresses": ["http://127.0.0.1:0"], "brokers": {"webServiceUrl": [broker.url]}}
    await served.sidecar.reload(load_mapping(plain))
    assert served.sidecar.metrics.certificate_not_after.values == {}
    assert served.sidecar.metrics.certificate_not_before.values == {}


@given(TIMES, TIMES, st.text("abc", max_size=64))
@settings(max_examples=50)
def test_validity_is_read_as_it_was_written(one: datetime.datetime, other: datetime.datetime, subject: str) -> None:
    """With both of RFC 5280's forms of time, and with lengths of one, two and three bytes."""
    begins, ends = sorted((one, other))
    text = b"Subject: a comment\n" + pem(begins, ends, subject) + pem(in_days(0), in_days(1))
    written = [at.replace(tzinfo=datetime.UTC).timestamp() for at in (begins, ends)]
    assert read_validity(text) == Validity(*written)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_damaged_certificate_has_no_validity_or_some_but_no_error(noise: bytes, at: int) -> None:
    whole = pem(in_days(0), in_days(1))
    der = ssl.PEM_cert_to_DER_cert(whole.decode())
    read_validity(ssl.DER_cert_to_PEM_cert(der[:at] + noise + der[at + len(noise) :]).encode())


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", b"\xff"])
def test_file_without_a_certificate_has_no_validity(text: bytes) -> None:
    assert read_validity(text) is None
