"""What proves who is who: tokens for roles, and certificates of one authority for both worlds."""

import base64
import hashlib
import hmac
import json
import secrets
import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


class Tokens:
    """JSON Web Tokens by a secret of this cluster."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    @property
    def secret_key(self) -> str:
        """As broker.conf wants it."""
        return f"data:;base64,{base64.b64encode(self._secret).decode()}"

    def of(self, role: str) -> str:
        signed = f"{_part({'alg': 'HS256'})}.{_part({'sub': role})}"
        return f"{signed}.{_encoded(hmac.digest(self._secret, signed.encode(), hashlib.sha256))}"


class Authority:
    """A certificate authority that everybody trusts."""

    def __init__(self) -> None:
        self._authority = trustme.CA(key_type=trustme.KeyType.RSA)

    def write(self, folder: Path, name: str, *hosts: str, role: str | None = None) -> None:
        """NAME.crt and NAME.key for those hosts, or a client's, and ca.crt. Brokers want PKCS 8, and RSA."""
        leaf = self._authority.issue_cert(*hosts, common_name=role, key_type=trustme.KeyType.RSA)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        (folder / f"{name}.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / f"{name}.crt").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
        self._authority.cert_pem.write_to_path(str(folder / "ca.crt"))

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context


def _part(content: dict[str, str]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
