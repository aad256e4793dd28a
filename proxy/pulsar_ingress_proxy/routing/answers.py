"""Rewrites the five URLs in a lookup's answer to the listener, and clarifies errors. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.selection import Refusal
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, looks_inside
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl, Urls, kind_of, parse_service_url

# LookupData's keys and their schemes, the preferred one first. A plain key gets a TLS URL if the listener has no other,
# as the C++ client rejects an answer without brokerUrl (HTTPLookupService.cc); a Tls key never gets a plain URL.
URL_KEYS: Mapping[str, tuple[str, ...]] = {
    "brokerUrl": ("pulsar", "pulsar+ssl"),
    "brokerUrlTls": ("pulsar+ssl",),
    "httpUrl": ("http", "https"),
    "httpUrlTls": ("https",),
    "nativeUrl": ("pulsar", "pulsar+ssl"),
}
LeakPolicy = Literal["rewrite", "block", "observe"]
LeakAction = Literal["observed", "blocked", "passed"]

_HTTP_KEYS = ("httpUrl", "httpUrlTls")
_NAMING_KEYS = ("brokerUrl", "brokerUrlTls", "httpUrl")

# 4.x and the extensible load manager of 5.x, then 5.x (NamespaceService, LookupResult).
_LACKS_LISTENER = re.compile(r"the broker do not have \S+ listener|does not have '[^']*' listener configured")


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """A lookup's answer, rewritten to a listener."""

    body: bytes
    broker: str | None = None
    """The broker that the answer names."""
    had_leak: bool = False
    """Whether the broker's body had an address that is not on the listener."""
    has_leak: bool = False
    """Whether one remains after rewriting."""


@dataclass(frozen=True, slots=True)
class RewrittenUrls:
    """The URLs of an answer, rewritten to a listener, by the keys of URL_KEYS."""

    urls: Mapping[str, Any]
    broker: Broker | None
    """The one broker that they name, if it is known."""
    named: str | None
    """That broker's name, or else an address from the answer."""
    had_leak: bool
    has_leak: bool


def put_on_listener(body: bytes, listener: str, snapshot: Snapshot) -> LookupAnswer:
    """Rewrite the body of a 200 to the listener; a body that is not a lookup answer stays unchanged."""
    sent = _load(body)
    if sent is None:
        return LookupAnswer(body)
    rewritten = rewrite_urls(sent, rewritten_keys(snapshot), listener, snapshot)
    if rewritten.urls != sent:
        body = json.dumps(rewritten.urls, separators=(",", ":")).encode()
    return LookupAnswer(body, rewritten.named, rewritten.had_leak, rewritten.has_leak)


def rewrite_urls(sent: Mapping[str, Any], keys: tuple[str, ...], listener: str, snapshot: Snapshot) -> RewrittenUrls:
    """Rewrite these keys of an answer to the listener; others stay unchanged."""
    brokers = {key: _broker_of(sent.get(key), snapshot) for key in URL_KEYS}
    known = {broker.name: broker for broker in brokers.values() if broker is not None}
    only = next(iter(known.values())) if len(known) == 1 else None
    answer = dict(sent)
    for key in keys:
        if broker := only or brokers[key]:
            _put(answer, key, broker, listener, snapshot)
    addresses = (url.authority for key in _NAMING_KEYS if (url := parsed_url(sent.get(key))) is not None)
    return RewrittenUrls(
        answer,
        only,
        only.name if only is not None else next(addresses, None),
        had_leak=any(is_off_listener(key, sent.get(key), listener, snapshot) for key in keys),
        has_leak=any(is_off_listener(key, answer.get(key), listener, snapshot) for key in keys),
    )


def decide_leak(policy: LeakPolicy, had_leak: bool, has_leak: bool) -> LeakAction | None:
    """Apply the leak policy, by whether an answer had an address off the listener, and whether one remains.

    None: no leak. `blocked`: the client gets a refusal. Otherwise it gets the broker's answer under `observe`, and the
    rewritten one under `rewrite`.
    """
    if policy == "observe":
        return "observed" if had_leak else None
    if not has_leak:
        return None
    return "blocked" if policy == "block" else "passed"


def leak_refusal(listener: str, detail: str = "") -> Refusal:
    text = f"the broker's answer has an address that is not on listener '{listener}'"
    return Refusal(502, "leak", text, detail)


def lacks_listener(status: int, body: bytes, listener: str | None) -> Refusal | None:
    """The refusal for a broker's 500 about an unknown listener, which should be a 400 by PIP-95."""
    if status != 500 or not (match := _LACKS_LISTENER.search(body.decode("utf-8", "replace"))):
        return None
    name = f"'{listener}'" if listener is not None else "that was asked for"
    text = f"the broker does not have the listener {name} in its advertisedListeners ({match[0]})"
    return Refusal(400, "broker-lacks-listener", text)


def _load(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def rewritten_keys(snapshot: Snapshot) -> tuple[str, ...]:
    if snapshot.config.prefer_http_client_listener_over_internal_listener:
        return tuple(URL_KEYS)
    return tuple(key for key in URL_KEYS if key not in _HTTP_KEYS)


def parsed_url(value: object) -> ServiceUrl | None:
    """A broker's URL in an answer; None if there is none, or it is invalid."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_service_url(value)
    except ValueError:
        return None


def _broker_of(value: object, snapshot: Snapshot) -> Broker | None:
    url = parsed_url(value)
    if url is None:
        return None
    return snapshot.book.resolve(Authority(url.host, int(url.port)), 0, kind_of(url.scheme))


def _put(answer: dict[str, Any], key: str, broker: Broker, listener: str, snapshot: Snapshot) -> None:
    """Set one key to the broker's URL on the listener; unchanged if the listener has no URL of its family."""
    urls = _family(_kind(key), broker, listener, snapshot)
    url = next((urls[scheme] for scheme in URL_KEYS[key] if scheme in urls), None)
    if urls and url is None:
        answer.pop(key, None)
    elif url is not None and parsed_url(answer.get(key)) != url:
        answer[key] = str(url)


def _kind(key: str) -> tuple[str, ...]:
    """The schemes of a key and its plain or Tls counterpart."""
    return URL_KEYS[key.removesuffix("Tls")]


def _family(schemes: tuple[str, ...], broker: Broker, listener: str, snapshot: Snapshot) -> Urls:
    """The broker's binary or web URLs on the listener, else on the default listener (PIP-338)."""
    for name in (listener, snapshot.config.lookup_listener_name):
        urls = broker.listeners.get(name, {}) if name is not None else {}
        if found := {scheme: urls[scheme] for scheme in schemes if scheme in urls}:
            return found
    return {}


def is_off_listener(key: str, value: object, listener: str, snapshot: Snapshot) -> bool:
    """Whether a value is not on the listener: a broker's address on another one, an unknown address, or not a URL.

    If the book has no address of that kind on the listener, an address that looks public is accepted as the broker's
    own for the requested listener.
    """
    url, schemes, book = parsed_url(value), _kind(key), snapshot.book
    if url is None or url.scheme not in schemes:
        return isinstance(value, str) and value != ""
    authority = Authority(url.host, int(url.port))
    broker = book.resolve(authority, 0, schemes)
    if broker is not None:
        urls = _family(schemes, broker, listener, snapshot)
        return all(own.authority != url.authority for own in urls.values())
    if book.is_web_address(listener, authority, 0, schemes, snapshot.config.lookup_listener_name):
        return False
    return book.has_on(listener, schemes) or looks_inside(url.host, snapshot.inside_suffixes)
