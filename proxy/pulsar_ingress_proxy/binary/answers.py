"""Rewrites the addresses in brokers' commands to the selected listener and detects leaks. Pure.

`commands.CARRIERS` lists the commands that carry addresses. The rules are those of HTTP (`answers.rewrite_urls`,
`redirects.redirect_to`).
"""

from dataclasses import dataclass, replace

from pulsar_ingress_proxy.binary.commands import (
    CARRIERS,
    LOOKUP_RESPONSE,
    REDIRECT,
    SCALABLE_TOPIC_UPDATE,
    TOPIC_MIGRATED,
    Addressed,
)
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse, SegmentBroker
from pulsar_ingress_proxy.binary.endpoints import is_through, name_through
from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.answers import (
    LeakAction,
    LeakPolicy,
    RewrittenUrls,
    decide_leak,
    leak_refusal,
    parsed_url,
    rewrite_urls,
)
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.redirects import Policy, RedirectDecision, redirect_to, unknown_target
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, host_matches
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, ServiceUrl

_KEYS = ("brokerUrl", "brokerUrlTls")


@dataclass(frozen=True, slots=True)
class AddressDecision:
    """The outcome for a command that carries addresses; the command itself is changed in place."""

    changed: bool = False
    broker: str | None = None
    leak: LeakAction | None = None
    refusal: Refusal | None = None
    """Why the command is withheld from the client."""


def rewrite_addresses(message: Addressed, selection: Selection, decisions: DecisionCache) -> RewrittenUrls:
    """Rewrite a message's two addresses to the selected listener; cached."""
    assert selection.listener is not None
    through = is_through(selection)
    key = ("addresses", message.url, message.url_tls, selection.listener, through)
    found = decisions.get(key)
    if isinstance(found, RewrittenUrls):
        return found
    return decisions.keep(key, _rewrite_addresses(message, selection.listener, through, decisions.snapshot))


def _rewrite_addresses(message: Addressed, listener: str, through: bool, snapshot: Snapshot) -> RewrittenUrls:
    sent = {key: _text(url) for key, url in zip(_KEYS, (message.url, message.url_tls), strict=True) if url}
    found = rewrite_urls(sent, _KEYS, listener, snapshot)
    if not through or not sent:
        return found
    name = name_through(found.broker, found.named, listener, snapshot)
    if name is None:
        return replace(found, had_leak=True, has_leak=True)
    # A client reads the URL for its own transport and fails if it is absent, so both are set.
    return replace(
        found, urls=dict(zip(_KEYS, (f"pulsar://{name}", f"pulsar+ssl://{name}"), strict=True)), has_leak=False
    )


def decide_found(response: LookupResponse, selection: Selection, decisions: DecisionCache) -> AddressDecision:
    """Rewrite a lookup response that names the broker to connect to, and apply the leak policy."""
    rewritten, policy = rewrite_addresses(response, selection, decisions), _leak_policy(selection, decisions.snapshot)
    leak = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
    if leak == "blocked":
        return AddressDecision(broker=rewritten.named, leak=leak, refusal=_refusal(rewritten, selection))
    changed = policy != "observe" and _put(response, rewritten, is_through(selection))
    return AddressDecision(changed, rewritten.named, leak)


def decide_pushed(command: Command, selection: Selection, scheme: str, decisions: DecisionCache) -> AddressDecision:
    """Rewrite the addresses in a command that the client did not ask for, and apply the leak policy.

    `scheme` is that of the socket. A blocked address is removed, and the client looks the topic up again. A migration
    or a redirect is useless without its address, so it is refused as a whole.
    """
    snapshot = decisions.snapshot
    policy, through, bypasses = _leak_policy(selection, snapshot), is_through(selection), _bypasses_proxy(command)
    changed, broker = False, None
    leak: LeakAction | None = None
    for message in CARRIERS[command.type](command):
        if not message.url and not message.url_tls:
            continue
        if command.type == TOPIC_MIGRATED and not through and _is_peer(message, snapshot):
            continue
        rewritten = rewrite_addresses(message, selection, decisions)
        if through and bypasses:
            rewritten = replace(rewritten, had_leak=True, has_leak=True)
        broker = broker or rewritten.named
        action = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
        leak = action or leak
        if action == "blocked" and bypasses:
            return AddressDecision(False, broker, action, _refusal(rewritten, selection))
        if action == "blocked":
            changed = True
            message.ClearField("url_tls")
            if isinstance(message, SegmentBroker):
                message.url = b""  # a required field
            else:
                message.ClearField("url")
        elif policy != "observe":
            if scheme == "pulsar+ssl" and command.type == SCALABLE_TOPIC_UPDATE:
                rewritten = _with_tls_in_both(rewritten)
            changed |= _put(message, rewritten, through)
    return AddressDecision(changed, broker, leak)


def _with_tls_in_both(rewritten: RewrittenUrls) -> RewrittenUrls:
    """The TLS address in the plain field, too: V5 clients read no other (ClientSegmentLayout), whatever they use."""
    tls = rewritten.urls.get("brokerUrlTls")
    return rewritten if tls is None else replace(rewritten, urls={**rewritten.urls, "brokerUrl": tls})


def _leak_policy(selection: Selection, snapshot: Snapshot) -> LeakPolicy:
    """The leak policy: with throughSidecar no address may bypass the sidecar, otherwise `leaks` applies."""
    if selection.shadow:
        return "observe"
    return "block" if is_through(selection) else snapshot.config.leaks


def _refusal(rewritten: RewrittenUrls, selection: Selection) -> Refusal:
    if is_through(selection):
        text = "the broker's answer has an address that leads past this sidecar, and the ingress has throughSidecar"
        return Refusal(502, "leak", text, rewritten.named or "")
    assert selection.listener is not None
    return leak_refusal(selection.listener, rewritten.named or "")


def _bypasses_proxy(command: Command) -> bool:
    """Whether clients connect to these addresses directly, even if they reach brokers through a proxy.

    They use the address of a migration (PIP-188, ConnectionHandler.grabCnx) and of a redirect
    (BinaryProtoLookupService.findBroker) as the service URL of the next lookup.
    """
    is_redirect = command.type == LOOKUP_RESPONSE and command.lookup_response.response == REDIRECT
    return is_redirect or command.type == TOPIC_MIGRATED


def _is_peer(message: Addressed, snapshot: Snapshot) -> bool:
    """Whether all addresses belong to peer clusters (`redirects.peers`)."""
    found = [parsed_url(_text(url)) for url in (message.url, message.url_tls) if url]
    return all(url is not None and host_matches(url.host, snapshot.config.redirects.peers) for url in found)


def decide_redirect(
    response: LookupResponse, selection: Selection, scheme: str, decisions: DecisionCache, can_follow: bool
) -> tuple[RedirectDecision, str]:
    """Decide about a response that names the broker to ask next. Also returns the address that it names."""
    assert selection.listener is not None
    snapshot, config = decisions.snapshot, decisions.config
    # Under `observe` no binary answer is changed. `auto` rewrites: binary clients authenticate on each connection.
    wanted = config.redirects.lookup
    policy: Policy = "pass" if config.leaks == "observe" else "rewrite" if wanted == "auto" else wanted
    found: list[ServiceUrl] = [url for text in (response.url, response.url_tls) if (url := parsed_url(_text(text)))]
    named = next((url for url in found if _broker(url, snapshot) is not None), found[0] if found else None)
    shown = str(named) if named is not None else _text(response.url or response.url_tls)
    if is_through(selection):
        redirect = _redirect_through(_broker(named, snapshot) if named is not None else None, shown, can_follow)
    elif named is None:
        redirect = unknown_target("", policy, snapshot)
    else:
        port = int(named.port)
        authority = Authority(named.host, port)
        redirect = redirect_to(authority, port, selection.listener, scheme, policy, can_follow, decisions)
        if redirect.refusal is not None and redirect.refusal.code == "body-not-replayable":
            redirect = replace(redirect, refusal=_cannot_repeat(redirect.refusal.detail))
    return redirect, shown


def _redirect_through(broker: Broker | None, shown: str, can_follow: bool) -> RedirectDecision:
    """Follow or refuse a redirect under throughSidecar, regardless of `redirects`.

    The client would connect to the target directly.
    """
    if broker is None:
        text = "a broker redirects to an address that advertisedListeners lacks, and the ingress has throughSidecar"
        return RedirectDecision("refused", refusal=Refusal(502, "unknown-authority", text, shown), unmapped=True)
    if not can_follow:
        return RedirectDecision("refused", refusal=_cannot_repeat(broker.name))
    return RedirectDecision("followed", broker=broker)


def _cannot_repeat(detail: str) -> Refusal:
    text = "a redirect must be followed, and the client's authentication cannot be repeated to another broker"
    return Refusal(502, "auth-not-replayable", text, detail)


def put_redirect(response: LookupResponse, selection: Selection, snapshot: Snapshot) -> bool:
    """Rewrite a redirect's addresses to the listener. Returns whether anything changed."""
    assert selection.listener is not None
    return _put(response, _rewrite_addresses(response, selection.listener, False, snapshot), False)


def _put(message: Addressed, rewritten: RewrittenUrls, through: bool) -> bool:
    changed = False
    for field, key in zip(("url", "url_tls"), _KEYS, strict=True):
        wanted = rewritten.urls.get(key, "").encode()
        if getattr(message, field) != wanted:
            changed = True
            if wanted:
                setattr(message, field, wanted)
            else:
                message.ClearField(field)
    if not isinstance(message, LookupResponse) or rewritten.has_leak:
        return changed
    # The addresses are only names for CONNECT then: the client keeps using the address it is connected to.
    is_name = through and bool(rewritten.urls)
    if message.proxy_through_service_url != is_name:
        message.proxy_through_service_url = is_name
        return True
    return changed


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _broker(url: ServiceUrl, snapshot: Snapshot) -> Broker | None:
    return snapshot.book.resolve(Authority(url.host, int(url.port)), 0, BINARY_SCHEMES)
