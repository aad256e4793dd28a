"""TLS towards clients and towards brokers, with certificates that are taken up again when their files change.

Who asks for `refresh`, and how often, is the service's business.
"""

import logging
import os
import ssl
from collections.abc import Callable, Iterable
from functools import partial

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.config import model as keys
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES

log = logging.getLogger("proxy.tls")

_Stamp = tuple[tuple[int, ...] | None, ...]


class CannotLoad(ValueError):
    """Files that the config names for TLS are of no use: says which, and why. Each fault begins with its key."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class WrongIdentity(OSError):
    """Whoever answered has a good certificate, and is not who was expected."""


class ServerTls:
    """What https and pulsar+ssl sockets show. `context`, for create_server, stays one object as long as they live."""

    def __init__(self, tls: keys.ServerTls) -> None:
        paths = [path for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
        self._loaded = _Loaded(paths, lambda: _server_context(tls))
        self.context = _Newest(self._loaded.context)

    def refresh(self) -> bool:
        """Whether changed files are in force for handshakes from now on; connections that there are stay."""
        changed = self._loaded.refresh()
        self.context.newest = self._loaded.context
        return changed

    def adopt(self, other: "ServerTls") -> None:
        """Show from now on what the other one does: for a new config, whose files may be others."""
        self._loaded = other._loaded
        self.context.newest = self._loaded.context


class BrokerTls:
    """How brokers are dialled over TLS; raises CannotLoad.

    Files that the config names are read at once, also where only discovery may find brokers that want them. To read the
    system's CAs takes 30 ms, so that waits for such a broker.
    """

    def __init__(self, config: Config) -> None:
        self._tls = config.brokers.tls
        self._loaded: dict[str, _Loaded] = {}
        names_files = self._tls.ca is not None or self._tls.certificate is not None
        for scheme in TLS_SCHEMES:
            if names_files or _has_brokers(config, scheme):
                self.context(scheme)

    def context(self, scheme: str) -> ssl.SSLContext:
        """For the next connection to an https or pulsar+ssl broker."""
        if scheme not in self._loaded:
            self._loaded[scheme] = self._load(scheme)
        return self._loaded[scheme].context

    def refresh(self) -> bool:
        """Whether changed files are in force for connections from now on; those that there are stay."""
        refreshed = [loaded.refresh() for loaded in self._loaded.values()]
        return any(refreshed)

    def verify(self, peer: ssl.SSLObject) -> None:
        """Raise WrongIdentity unless the peer is the one that `peerIdentity` names, before anything is sent to it.

        An X.509-SVID has exactly one URI (SPIFFE X509-SVID 2), so that a certificate with two is nobody's.
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


class _Newest(ssl.SSLContext):
    """Stands for whichever context is newest when a handshake begins.

    An sni_callback could swap contexts too, but too late: OpenSSL has then looked for a session to resume among those
    of the first context, where a client can be whose CA is no longer trusted. Here nothing outlives its context.
    """

    newest: ssl.SSLContext

    def __new__(cls, newest: ssl.SSLContext) -> "_Newest":
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
    """A context, and the files that it was made from."""

    def __init__(self, paths: list[str], make: Callable[[], ssl.SSLContext]) -> None:
        self._paths = paths
        self._make = make
        self._stamp = _stamp(paths)  # before reading: what changes meanwhile is read again
        self.context = make()

    def refresh(self) -> bool:
        stamp = _stamp(self._paths)
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # also where it fails, so that a fault is told once
        try:
            self.context = self._make()
        except CannotLoad as fault:
            log.warning("%s; what was loaded before stays in force", fault)
            return False
        log.info("changed certificates are in force: %s", ", ".join(self._paths))
        return True


def _stamp(paths: list[str]) -> _Stamp:
    """What differs when a file has changed, or when a link on the way to it leads elsewhere."""

    def one(path: str) -> tuple[int, ...] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        # The time of change moves with every write, and also when a key is made readable.
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    return tuple(map(one, paths))


def _has_brokers(config: Config, scheme: str) -> bool:
    inside = (line.listeners.get(config.internal_listener_name, {}) for line in config.advertised_listeners)
    pools = (*config.web_pool, *config.function_pool, *config.binary_pool)
    is_dialled = scheme == "https" or bool(config.binary_pool)
    return any(url.scheme == scheme for url in pools) or (is_dialled and any(scheme in urls for urls in inside))


# Contexts are made by hand, not by create_default_context: that turns VERIFY_X509_STRICT on from Python 3.13, which
# refuses the CAs of many clusters.


def _server_context(tls: keys.ServerTls) -> ssl.SSLContext:
    context = _modern(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])  # clients of pulsar+ssl offer none, and one of another is let in
    context.sni_callback = _note_name
    assert tls.certificate is not None
    assert tls.key is not None
    loads = [partial(_load_pair, context, "tls", tls.certificate, tls.key)]
    if tls.client_ca is not None:
        loads.append(partial(_load_ca, context, "tls.clientCa", tls.client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    _load_all(loads)
    return context


def _broker_context(tls: keys.BrokerTls, scheme: str) -> ssl.SSLContext:
    context = _modern(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.peer_identity is None
    protocols = ["http/1.1"] if scheme == "https" else []  # the binary protocol has no name
    if tls.peer_identity is not None:
        # Under PERMISSIVE, Istio takes TLS for the mesh's own only of clients that offer its names for protocols
        # (istio/pilot/pkg/networking/core/listener.go). Who does not know the name chooses the other.
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
    return context


def _modern(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


_NAME = "_name_that_the_client_sent"


def _note_name(peer: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
    setattr(peer, _NAME, name)  # nothing else tells it: `server_hostname` is a client's own


def server_name(peer: ssl.SSLObject | None) -> str | None:
    """The name that a client asked for in its handshake; None where it did not, or there was none."""
    name: str | None = getattr(peer, _NAME, None)
    return name


def _load_all(loads: Iterable[Callable[[], object]]) -> None:
    """Load one after the other; raises CannotLoad with the faults of all."""
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
        problem = f" ({in_words(error)})" if reason else ""
        raise CannotLoad(f"{section}.key: {key} does not hold a key in PEM that can be used{problem}") from None


def _no_passphrase() -> str:
    raise CannotLoad("is locked by a passphrase: give a key without one")  # or OpenSSL would ask the terminal


def _is_chain(data: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):  # the latter where it is empty
        return False
    return True


def _read(place: str, path: str) -> bytes:
    """A file's content; OpenSSL's own complaints do not say which file they mean."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CannotLoad(f"{place}: {path} cannot be read: {error.strerror}: name a readable PEM file") from None


def in_words(error: OSError) -> str:
    """Why a connection failed, without the names and line numbers of OpenSSL's and Python's sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return str(error.strerror or error) or "the connection was reset"


def ends_whole(peer: ssl.SSLObject) -> bool:
    """At the end of a connection: whether its peer has ended it, with a close_notify, and not somebody between.

    asyncio knows, and tells its protocols the same in both cases; uvloop calls their eof_received in the first alone.
    """
    try:
        return not peer.read(1)
    except ssl.SSLError:  # more would be wanted, if there were more
        return False
