"""Rewrites the addresses in brokers' commands to the selected listener and detects leaks. Pure.

`commands.CARRIERS` lists the commands that carry addresses. The rules are those of HTTP (`answers.rewrite_urls`,
`redirects.redirect_to`).
"""

from dataclasses import dataclass, replace

from pulsar_ingress_proxy.binary.commands import CARRIERS, LOOKUP_RESPONSE, REDIRECT, TOPIC_MIGRATED, Addressed
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse, SegmentBroker
from pulsar_ingress_proxy.binary.endpoints import is_through, name_through
from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.answers import LeakAction, LeakPolicy, decide_leak, leak_refusal, rewrite_urls
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.redirects import Policy, RedirectDecision, redirect_to, unknown_target
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, host_matches
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, ServiceUrl, parse_service_url

_KEYS = ("brokerUrl", "brokerUrlTls")


@dataclass(frozen=True, slots=True)
class RewrittenAddresses:
    """A broker's plain and TLS address, rewritten for clients of a listener."""

    url: str | None
    url_tls: str | None
    is_through: bool
    """Whether the addresses are only names for CONNECT: the client keeps using the address it is connected to."""
    broker: str | None
    had_leak: bool
    """Whether the broker's command had an address that is not on the listener."""
    has_leak: bool
    """Whether one remains after rewriting."""


@dataclass(frozen=True, slots=True)
class AddressDecision:
    """The outcome for a command that carries addresses; the command itself is changed in place."""

    changed: bool = False
    broker: str | None = None
    leak: LeakAction | None = None
    refusal: Refusal | None = None
    """Why the command is withheld from the client."""


def rewrite_addresses(message: Addressed, selection: Selection, decisions: DecisionCache) -> RewrittenAddresses:
    """Rewrite a message's two addresses to the selected listener; cached."""
    assert selection.listener is not None
    through = is_through(selection)
    key = ("addresses", message.url, message.url_tls, selection.listener, through)
    found = decisions.get(key)
    if isinstance(found, RewrittenAddresses):
        return found
    url, url_tls = _text(message.url), _text(message.url_tls)
    return decisions.keep(key, _rewrite_addresses(url, url_tls, selection.listener, through, decisions.snapshot))


def _rewrite_addresses(url: str, url_tls: str, listener: str, through: bool, snapshot: Snapshot) -> RewrittenAddresses:
    sent = {key: value for key, value in zip(_KEYS, (url, url_tls), strict=True) if value}
    found = rewrite_urls(sent, _KEYS, listener, snapshot)
    rewritten = RewrittenAddresses(
        found.urls.get("brokerUrl"),
        found.urls.get("brokerUrlTls"),
        False,
        found.named,
        found.had_leak,
        found.has_leak,
    )
    if not through or not sent:
        return rewritten
    name = name_through(found.broker, found.named, listener, snapshot)
    if name is None:
        return replace(rewritten, had_leak=True, has_leak=True)
    # A client reads the URL for its own transport and fails if it is absent, so both are set.
    return replace(rewritten, url=f"pulsar://{name}", url_tls=f"pulsar+ssl://{name}", is_through=True, has_leak=False)


def decide_found(response: LookupResponse, selection: Selection, decisions: DecisionCache) -> AddressDecision:
    """Rewrite a lookup response that names the broker to connect to, and apply the leak policy."""
    rewritten, policy = rewrite_addresses(response, selection, decisions), _leak_policy(selection, decisions.snapshot)
    leak = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
    if leak == "blocked":
        return AddressDecision(broker=rewritten.broker, leak=leak, refusal=_refusal(rewritten, selection))
    changed = policy != "observe" and _put(response, rewritten)
    return AddressDecision(changed, rewritten.broker, leak)


def decide_pushed(command: Command, selection: Selection, decisions: DecisionCache) -> AddressDecision:
    """Rewrite the addresses in a command that the client did not ask for, and apply the leak policy.

    A blocked address is removed, and the client looks the topic up again. A migration or a redirect is useless without
    its address, so it is refused as a whole.
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
        broker = broker or rewritten.broker
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
            changed |= _put(message, rewritten)
    return AddressDecision(changed, broker, leak)


def _leak_policy(selection: Selection, snapshot: Snapshot) -> LeakPolicy:
    """The leak policy: with throughSidecar no address may bypass the sidecar, otherwise `leaks` applies."""
    if selection.shadow:
        return "observe"
    return "block" if is_through(selection) else snapshot.config.leaks


def _refusal(rewritten: RewrittenAddresses, selection: Selection) -> Refusal:
    if is_through(selection):
        text = "the broker's answer has an address that leads past this sidecar, and the ingress has throughSidecar"
        return Refusal(502, "leak", text, rewritten.broker or "")
    assert selection.listener is not None
    return leak_refusal(selection.listener, rewritten.broker or "")


def _bypasses_proxy(command: Command) -> bool:
    """Whether clients connect to these addresses directly, even if they reach brokers through a proxy.

    They use the address of a migration (PIP-188, ConnectionHandler.grabCnx) and of a redirect
    (BinaryProtoLookupService.findBroker) as the service URL of the next lookup.
    """
    is_redirect = command.type == LOOKUP_RESPONSE and command.lookup_response.response == REDIRECT
    return is_redirect or command.type == TOPIC_MIGRATED


def _is_peer(message: Addressed, snapshot: Snapshot) -> bool:
    """Whether all addresses belong to peer clusters (`redirects.peers`)."""
    found = [_url(_text(url)) for url in (message.url, message.url_tls) if url]
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
    found: list[ServiceUrl] = [url for text in (response.url, response.url_tls) if (url := _url(_text(text)))]
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
    return _put(
        response, _rewrite_addresses(_text(response.url), _text(response.url_tls), selection.listener, False, snapshot)
    )


def _put(message: Addressed, rewritten: RewrittenAddresses) -> bool:
    changed = False
    for field, text in (("url", rewritten.url), ("url_tls", rewritten.url_tls)):
        wanted = (text or "").encode()
        if getattr(message, field) != wanted:
            changed = True
            if text:
                setattr(message, field, wanted)
            else:
                message.ClearField(field)
    if not isinstance(message, LookupResponse) or rewritten.has_leak:
        return changed
    if message.proxy_through_service_url != rewritten.is_through:
        message.proxy_through_service_url = rewritten.is_through
        return True
    return changed


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _url(text: str) -> ServiceUrl | None:
    try:
        return parse_service_url(text)
    except ValueError:
        return None


def _broker(url: ServiceUrl, snapshot: Snapshot) -> Broker | None:
    return snapshot.book.resolve(Authority(url.host, int(url.port)), 0, BINARY_SCHEMES)
