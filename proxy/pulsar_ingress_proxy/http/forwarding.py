"""The head of a request as a broker gets it: the client's own fields, and those that the proxy answers for."""

from functools import lru_cache

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.http.headers import Fields, RequestHead
from pulsar_ingress_proxy.memory import LOOKUP_FIELDS
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")


def fields(
    head: RequestHead,
    url: ServiceUrl,
    config: Config,
    trusted: bool,
    peer: bytes,
    is_lookup: bool,
    listener: str | None,
) -> Fields:
    """What a request has: Host is the upstream's, the peer stands at the end of X-Forwarded-For, lookups are tagged."""
    forwarded_for = head.special.get(b"x-forwarded-for") if trusted else None
    found = [url.host_field, *head.passed]
    found.append(b"X-Forwarded-For: " + (b"%b, %b" % (forwarded_for, peer) if forwarded_for else peer))
    if head.principals and config.brokers.trust_original_principal:
        found += [b"X-Original-Principal: " + value for value in head.principals]
    if is_lookup and not config.shadow:
        found.append(_lookup_fields(url.scheme, listener))
    else:
        found += _other_fields(head, url, config)
    return found


def _lookup_fields(scheme: str, listener: str | None) -> bytes:
    is_short = listener is None or len(listener) <= LOOKUP_FIELDS.longest
    return _remembered_fields(scheme, listener) if is_short else _make_lookup_fields(scheme, listener)


def _make_lookup_fields(scheme: str, listener: str | None) -> bytes:
    """What every lookup on a listener has in common: the tag, and no content coding, as its answer is to be read."""
    tag = f"\r\nX-Pulsar-ListenerName: {listener}" if listener is not None else ""
    return f"X-Forwarded-Proto: {scheme}\r\nAccept-Encoding: identity{tag}".encode()


_remembered_fields = lru_cache(LOOKUP_FIELDS.entries)(_make_lookup_fields)


def _other_fields(head: RequestHead, url: ServiceUrl, config: Config) -> Fields:
    """What other requests have; in a shadow, lookups too, with the listener that the client itself named."""
    found = [b"X-Forwarded-Proto: " + url.scheme.encode()]
    if b"accept-encoding" in head.special:
        found.append(b"Accept-Encoding: " + head.special[b"accept-encoding"])
    if config.shadow:
        found += [b"X-Pulsar-ListenerName: " + value for value in head.listener_names]
    return found


def wants_websocket(method: str, head: RequestHead) -> bool:
    """Whether a request asks for the one switch of protocols that brokers know."""
    options = (option.strip() for option in head.text(b"connection").lower().split(","))
    return method == "GET" and head.text(b"upgrade").lower() == "websocket" and "upgrade" in options
