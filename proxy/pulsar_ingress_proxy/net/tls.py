"""TLS for clients and brokers. The caller polls `refresh` to reload certificates whose files have changed."""

import base64
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.config import model as keys

log = logging.getLogger("proxy.tls")

_Stamp = tuple[tuple[int, ...] | None, ...]
_Made = tuple[ssl.SSLContext, "Validity | None"]


class CannotLoad(ValueError):
    """TLS files of the config cannot be used. Each fault begins with its config key."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class WrongIdentity(OSError):
    """The peer's certificate is valid, but has another identity than expected."""


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate is valid, in Unix times."""

    not_before: float
    not_after: float


class ServerTls:
    """The certificate of https and pulsar+ssl sockets. `context`, for create_server, stays the same object."""

    def __init__(self, tls: keys.ServerTls) -> None:
        paths = [path for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
        self._loaded = _Loaded(paths, lambda: _server_context(tls))
        self.context = _NewestContext(self._loaded.context)

    @property
    def validity(self) -> Validity | None:
        return self._loaded.validity

    def refresh(self) -> bool:
        """Reload changed files for new handshakes. Returns whether anything changed."""
        changed = self._loaded.refresh()
        self.context.newest = self._loaded.context
        return changed

    def adopt(self, other: "ServerTls") -> None:
        """Use the files of another instance from now on, for a new config."""
        self._loaded = other._loaded
        self.context.newest = self._loaded.context


class BrokerTls:
    """TLS for connections to brokers; raises CannotLoad.

    Files that the config names are read at once, even if only discovery may find brokers that need them. The system's
    CAs take 30 ms to read, so they are read for the first broker that needs them.
    """

    def __init__(self, config: Config) -> None:
        self._tls = config.brokers.tls
        self._loaded: dict[str, _Loaded] = {}
        names_files = self._tls.ca is not None or self._tls.certificate is not None
        for scheme in ("https", "pulsar+ssl"):  # the sidecar never connects to Kafka listeners; `doctor` does
            if names_files or _has_brokers(config, scheme):
                self.context(scheme)

    def context(self, scheme: str) -> ssl.SSLContext:
        """The context for a new connection to an https or pulsar+ssl broker."""
        if scheme not in self._loaded:
            self._loaded[scheme] = self._load(scheme)
        return self._loaded[scheme].context

    @property
    def validity(self) -> Validity | None:
        """Of the certificate that brokers are shown; None without one. Both schemes have the same."""
        return next((loaded.validity for loaded in self._loaded.values()), None)

    def refresh(self) -> bool:
        """Reload changed files for new connections. Returns whether anything changed."""
        refreshed = [loaded.refresh() for loaded in self._loaded.values()]
        return any(refreshed)

    def verify(self, peer: ssl.SSLObject) -> None:
        """Raise WrongIdentity unless the peer is `peerIdentity`; called before anything is sent.

        An X.509-SVID has exactly one URI (SPIFFE X509-SVID 2), so a certificate with two is rejected.
        """
        expected = self._tls.peer_identity
        if expected is None:
            return
        names = (peer.getpeercert() or {}).get("subjectAltName", ())
        found = [str(name[1]) for name in names if name[0] == "URI"]
        if found != [expected]:
            raise WrongIdentity(f"its certificate has the identity {' and '.join(found) or '(none)'}, not {expected}")

    def _load(self, scheme: str) -> "_Loaded":
        tls = self._tls
        paths = [path for path in (tls.ca, tls.certificate, tls.key) if path is not None]
        return _Loaded(paths, lambda: _broker_context(tls, scheme))


class _NewestContext(ssl.SSLContext):
    """Delegates each handshake to the newest context.

    An sni_callback could swap contexts, but too late: OpenSSL has by then looked for a session to resume in the first
    context, which may have one of a client whose CA is no longer trusted.
    """

    newest: ssl.SSLContext

    def __new__(cls, newest: ssl.SSLContext) -> "_NewestContext":
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self.newest = newest
        return self

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class _Loaded:
    """A context, the files it was loaded from, and when its certificate is valid."""

    def __init__(self, paths: list[str], make: Callable[[], _Made]) -> None:
        self._paths = paths
        self._make = make
        self._stamp = _stamp(paths)  # before reading, so that a concurrent change is noticed later
        try:
            self.context, self.validity = make()
        except CannotLoad:
            if (newest := _stamp(paths)) == self._stamp:
                raise
            self._stamp = newest  # the files were replaced while they were read: a certificate and another's key
            self.context, self.validity = make()

    def refresh(self) -> bool:
        stamp = _stamp(self._paths)
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # also on failure, so that it is logged once
        try:
            self.context, self.validity = self._make()
        except CannotLoad as fault:
            log.warning("%s; keeping the certificates loaded before", fault)
            return False
        log.info("reloaded certificates: %s", ", ".join(self._paths))
        return True


def _stamp(paths: list[str]) -> _Stamp:
    """Changes when a file, or a symlink on the way to it, changes."""

    def one(path: str) -> tuple[int, ...] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        # ctime changes with every write, and also when a key is made readable.
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    return tuple(map(one, paths))


def _has_brokers(config: Config, scheme: str) -> bool:
    inside = (line.listeners.get(config.internal_listener_name, {}) for line in config.advertised_listeners)
    pools = (*config.web_pool, *config.function_pool, *config.binary_pool)
    is_dialled = scheme == "https" or bool(config.binary_pool)
    return any(url.scheme == scheme for url in pools) or (is_dialled and any(scheme in urls for urls in inside))


# Not create_default_context: from Python 3.13 it sets VERIFY_X509_STRICT, which rejects the CAs of many clusters.


def _server_context(tls: keys.ServerTls) -> _Made:
    context = _modern(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])  # pulsar+ssl clients offer none; a mismatch is not an error
    context.sni_callback = _store_server_name
    assert tls.certificate is not None
    assert tls.key is not None
    loads = [partial(_load_pair, context, "tls", tls.certificate, tls.key)]
    if tls.client_ca is not None:
        loads.append(partial(_load_ca, context, "tls.clientCa", tls.client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    _load_all(loads)
    return context, read_validity(_read("tls.certificate", tls.certificate))


def _broker_context(tls: keys.BrokerTls, scheme: str) -> _Made:
    context = _modern(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.peer_identity is None
    protocols = ["http/1.1"] if scheme == "https" else []  # the binary protocol has no ALPN name
    if tls.peer_identity is not None:
        # Under PERMISSIVE, Istio recognizes mesh TLS by its own ALPN names
        # (istio/pilot/pkg/networking/core/listener.go). Other servers choose the standard name.
        protocols = ["istio-http/1.1", *protocols] if scheme == "https" else ["istio"]
    if protocols:
        context.set_alpn_protocols(protocols)
    loads: list[Callable[[], object]] = []
    if tls.ca is not None:
        loads.append(partial(_load_ca, context, "brokers.tls.ca", tls.ca))
    else:
        context.load_default_certs()
    if tls.certificate is not None:
        assert tls.key is not None
        loads.append(partial(_load_pair, context, "brokers.tls", tls.certificate, tls.key))
    _load_all(loads)
    if tls.certificate is None:
        return context, None
    return context, read_validity(_read("brokers.tls.certificate", tls.certificate))


def _modern(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


_NAME = "_name_that_the_client_sent"


def _store_server_name(peer: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
    setattr(peer, _NAME, name)  # `server_hostname` is set only for clients


def server_name(peer: ssl.SSLObject | None) -> str | None:
    """The server name (SNI) that a client sent; None without SNI or TLS."""
    name: str | None = getattr(peer, _NAME, None)
    return name


def _load_all(loads: Iterable[Callable[[], object]]) -> None:
    """Load everything; raises CannotLoad with all faults."""
    faults: list[str] = []
    for load in loads:
        try:
            load()
        except CannotLoad as fault:
            faults += fault.faults
    if faults:
        raise CannotLoad(*faults)


def _load_ca(context: ssl.SSLContext, place: str, path: str) -> None:
    _read(place, path)
    try:
        context.load_verify_locations(path)
    except OSError:
        raise CannotLoad(f"{place}: {path} does not hold whole CA certificates in PEM") from None


def _load_pair(context: ssl.SSLContext, section: str, certificate: str, key: str) -> None:
    read_certificate = partial(_read, f"{section}.certificate", certificate)
    _load_all([read_certificate, partial(_read, f"{section}.key", key)])
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except CannotLoad as fault:
        raise CannotLoad(f"{section}.key: {key} {fault}") from None
    except OSError as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise CannotLoad(f"{section}.key: {key} is not the key of {certificate}") from None
        if not _is_chain(read_certificate()):
            raise CannotLoad(f"{section}.certificate: {certificate} does not hold whole certificates in PEM") from None
        problem = f" ({error_text(error)})" if reason else ""
        raise CannotLoad(f"{section}.key: {key} does not hold a key in PEM that can be used{problem}") from None


def _no_passphrase() -> str:
    raise CannotLoad("is locked by a passphrase: give a key without one")  # or OpenSSL would prompt on the terminal


def _is_chain(data: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):  # ValueError: the file is empty
        return False
    return True


def _read(place: str, path: str) -> bytes:
    """A file's content; OpenSSL's own errors do not name the file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CannotLoad(f"{place}: {path} cannot be read: {error.strerror}: name a readable PEM file") from None


_PEM = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17


def read_validity(pem: bytes) -> Validity | None:
    """When the first certificate of a file is valid; None if that cannot be told, which OpenSSL finds out later.

    Python's ssl module tells this only of certificates that it has verified.
    """
    found = _PEM.search(pem)
    try:
        (_, certificate), *_ = _elements(base64.b64decode(found[1] if found else b""))
        (_, signed), *_ = _elements(certificate)
        _, _, _, validity, *_ = [content for tag, content in _elements(signed) if tag != _VERSION]  # RFC 5280 4.1
        not_before, not_after = _elements(validity)
        return Validity(_unix_time(*not_before), _unix_time(*not_after))
    except (ValueError, IndexError):
        return None


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of DER elements in a row."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:  # the length of the length
            at, length = at + (length & 0x7F), int.from_bytes(der[at : at + (length & 0x7F)])
        yield tag, der[at : at + length]
        at += length


def _unix_time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year, of 1950 to 2049 (RFC 5280 4.1.2.5.1)
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def error_text(error: OSError) -> str:
    """Why a connection failed, without OpenSSL's and Python's source locations."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return str(error.strerror or error) or "the connection was reset"


def closed_cleanly(peer: ssl.SSLObject) -> bool:
    """Whether the peer closed the connection with a close_notify, so that it was not truncated.

    asyncio calls eof_received in both cases, uvloop only after a close_notify.
    """
    try:
        return not peer.read(1)
    except ssl.SSLError:  # OpenSSL expects more data: no close_notify
        return False
