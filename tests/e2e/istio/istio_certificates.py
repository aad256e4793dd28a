"""Certificates as a mesh has them: a root of its own, and workloads that have a SPIFFE identity and no host name."""

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GATEWAY = "spiffe://cluster.local/ns/istio-ingress/sa/istio-ingress"
BROKER = "spiffe://cluster.local/ns/pulsar/sa/pulsar-broker"

_LIFE = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Workload:
    """What Istio's agent has of a workload, as its OUTPUT_CERTS."""

    key: str
    chain: str
    root: str

    def write(self, folder: Path) -> None:
        """As the agent does: in this order, each file at once, readable for all where it is in Kubernetes.

        security/pkg/nodeagent/util/util.go, OutputKeyCertToDir. Between the first two, key and certificate differ.
        """
        for name, content in (("key.pem", self.key), ("cert-chain.pem", self.chain), ("root-cert.pem", self.root)):
            new = folder / f".{name}.new"
            new.write_text(content)
            new.chmod(0o644)
            os.replace(new, folder / name)


class Authority:
    """istiod's, with a certificate that it has signed itself."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "cluster.local")])
        usage = x509.KeyUsage(False, False, False, False, False, True, False, False, False)
        self._root = (
            _certificate(name, name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, identity: str) -> Workload:
        """security/pkg/pki/util: no subject, so that the name is critical; both ends of mutual TLS."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(True, False, True, False, False, False, False, False, False)
        ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _certificate(x509.Name([]), self._root.subject, key)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(ends), critical=False)
            .add_extension(by, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Workload(pem.decode(), _pem(certificate), _pem(self._root))


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=2))
        .not_valid_after(now + _LIFE)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
