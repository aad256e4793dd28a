"""What becomes of a lookup's answer: its five URLs put on the listener, its errors made clear. Pure."""

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

# LookupData's keys and the schemes that each may take, the right one first. A plain key takes a TLS URL where the
# listener has no other, as the C++ client calls an answer without brokerUrl malformed (HTTPLookupService.cc); a Tls
# key never takes a plain one.
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

# 4.x and the extensible load manager of 5.x, then 5.x (NamespaceService, LookupResult).
_LACKS_LISTENER = re.compile(r"the broker do not have \S+ listener|does not have '[^']*' listener configured")


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """A lookup's answer put on a listener."""

    body: bytes
    broker: str | None = None
    """Whose addresses these are."""
    had_leak: bool = False
    """The broker's own body had an address that is not on the listener."""
    has_leak: bool = False
    """This body still has one, which could not be mapped: a leak."""


@dataclass(frozen=True, slots=True)
class RewrittenUrls:
    """The URLs of an answer put on a listener, by the keys of URL_KEYS."""

    urls: Mapping[str, Any]
    broker: Broker | None
    """The one broker that they mean, if it is known."""
    named: str | None
    """What that broker is called, or the address that stands for it."""
    had_leak: bool
    has_leak: bool


def put_on_listener(body: bytes, listener: str, snapshot: Snapshot) -> LookupAnswer:
    """Put a 200 lookup body on the listener; one that is no lookup answer stays as it is."""
    sent = _load(body)
    if sent is None:
        return LookupAnswer(body)
    rewritten = rewrite_urls(sent, rewritten_keys(snapshot), listener, snapshot)
    return LookupAnswer(
        body if rewritten.urls == sent else json.dumps(rewritten.urls, separators=(",", ":")).encode(),
        rewritten.named,
        rewritten.had_leak,
        rewritten.has_leak,
    )


def rewrite_urls(sent: Mapping[str, Any], keys: tuple[str, ...], listener: str, snapshot: Snapshot) -> RewrittenUrls:
    """Put these keys of an answer on the listener; others stay as they are."""
    brokers = {key: _broker_of(sent.get(key), snapshot) for key in URL_KEYS}
    known = {broker.name: broker for broker in brokers.values() if broker is not None}
    only = next(iter(known.values())) if len(known) == 1 else None
    answer = dict(sent)
    for key in keys:
        if broker := only or brokers[key]:
            _put(answer, key, broker, listener, snapshot)
    return RewrittenUrls(
        answer,
        only,
        only.name if only is not None else _named_by(sent),
        had_leak=any(is_off_listener(key, sent.get(key), listener, snapshot) for key in keys),
        has_leak=any(is_off_listener(key, answer.get(key), listener, snapshot) for key in keys),
    )


def decide_leak(policy: LeakPolicy, had_leak: bool, has_leak: bool) -> LeakAction | None:
    """What is counted for an answer, by whether it had an address off the listener, and still has when rewritten.

    None: there is no leak. `blocked`: the client may not have it. Under `observe` it gets what the broker sent, else
    what was rewritten.
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
    """A broker's 500 for a listener that it does not have, which PIP-95 wanted to be a 400."""
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
    """The keys of a lookup's answer that are put on the listener."""
    if snapshot.config.prefer_http_client_listener_over_internal_listener:
        return tuple(URL_KEYS)
    return tuple(key for key in URL_KEYS if key not in _HTTP_KEYS)


def _url(value: object) -> ServiceUrl | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_service_url(value)
    except ValueError:
        return None


def _broker_of(value: object, snapshot: Snapshot) -> Broker | None:
    url = _url(value)
    if url is None:
        return None
    return snapshot.book.resolve(Authority(url.host, int(url.port)), 0, kind_of(url.scheme))


def _put(answer: dict[str, Any], key: str, broker: Broker, listener: str, snapshot: Snapshot) -> None:
    """Give one key the broker's URL on the listener, and leave it where the listener has none of its family."""
    urls = _family(_kind(key), broker, listener, snapshot)
    url = next((urls[scheme] for scheme in URL_KEYS[key] if scheme in urls), None)
    if urls and url is None:
        answer.pop(key, None)
    elif url is not None and _url(answer.get(key)) != url:
        answer[key] = str(url)


def _kind(key: str) -> tuple[str, ...]:
    """The schemes of a key and of the one that goes with it."""
    return URL_KEYS[key.removesuffix("Tls")]


def _family(schemes: tuple[str, ...], broker: Broker, listener: str, snapshot: Snapshot) -> Urls:
    """The broker's binary or web URLs on the listener, else on the default one (PIP-338)."""
    for name in (listener, snapshot.config.lookup_listener_name):
        urls = broker.listeners.get(name, {}) if name is not None else {}
        if found := {scheme: urls[scheme] for scheme in schemes if scheme in urls}:
            return found
    return {}


def is_off_listener(key: str, value: object, listener: str, snapshot: Snapshot) -> bool:
    """Whether what a key holds is not on the listener: another address of a broker, one that nobody knows, or no URL.

    Where the book has no address of that kind on the listener, one that looks public is the broker's own word for the
    listener that it was asked for.
    """
    url, schemes, book = _url(value), _kind(key), snapshot.book
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


def _named_by(answer: Mapping[str, Any]) -> str | None:
    for key in ("brokerUrl", "brokerUrlTls", "httpUrl"):
        if url := _url(answer.get(key)):
            return url.authority
    return None
