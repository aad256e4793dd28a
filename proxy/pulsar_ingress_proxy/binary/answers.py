"""What becomes of the addresses that brokers tell clients: put on the listener, or found to be a leak. Pure.

Which commands carry any stands in `commands.CARRIERS`. The addresses are chosen by the functions that choose them for
HTTP (`answers.rewrite_urls`, `redirects.redirect_to`).
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
    """Two addresses of a broker, as a client of a listener may have them."""

    url: str | None
    url_tls: str | None
    is_through: bool
    """Whether they are names for CONNECT only: the client stays with the address that it has."""
    broker: str | None
    had_leak: bool
    """What the broker said had an address that is not on the listener."""
    has_leak: bool
    """This still has."""


@dataclass(frozen=True, slots=True)
class AddressDecision:
    """What was found of a command that carries addresses; the command itself is changed in place."""

    changed: bool = False
    broker: str | None = None
    leak: LeakAction | None = None
    refusal: Refusal | None = None
    """Why the client may not have it."""


def rewrite_addresses(message: Addressed, selection: Selection, decisions: DecisionCache) -> RewrittenAddresses:
    """Two addresses put on the selected listener."""
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
    # A client reads the one that goes with its own transport and fails where it is absent, so both are there.
    return replace(rewritten, url=f"pulsar://{name}", url_tls=f"pulsar+ssl://{name}", is_through=True, has_leak=False)


def decide_found(response: LookupResponse, selection: Selection, decisions: DecisionCache) -> AddressDecision:
    """A lookup's answer that names the broker to connect to."""
    rewritten, policy = rewrite_addresses(response, selection, decisions), _leak_policy(selection, decisions.snapshot)
    leak = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
    if leak == "blocked":
        return AddressDecision(broker=rewritten.broker, leak=leak, refusal=_refusal(rewritten, selection))
    changed = policy != "observe" and _put(response, rewritten)
    return AddressDecision(changed, rewritten.broker, leak)


def decide_pushed(command: Command, selection: Selection, decisions: DecisionCache) -> AddressDecision:
    """Addresses that the client has not asked for, all those of one command.

    Blocked is what is not on the listener: without it the client looks the topic up again. Of a migration or a
    redirect nothing would be left, so that is refused whole.
    """
    snapshot = decisions.snapshot
    policy, through, is_straight = _leak_policy(selection, snapshot), is_through(selection), _leads_straight(command)
    changed, broker = False, None
    leak: LeakAction | None = None
    for message in CARRIERS[command.type](command):
        if not message.url and not message.url_tls:
            continue
        if command.type == TOPIC_MIGRATED and not through and _is_peers(message, snapshot):
            continue
        rewritten = rewrite_addresses(message, selection, decisions)
        if through and is_straight:
            rewritten = replace(rewritten, had_leak=True, has_leak=True)
        broker = broker or rewritten.broker
        action = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
        leak = action or leak
        if action == "blocked" and is_straight:
            return AddressDecision(False, broker, action, _refusal(rewritten, selection))
        if action == "blocked":
            changed = True
            message.ClearField("url_tls")
            if isinstance(message, SegmentBroker):
                message.url = b""  # which has to be there
            else:
                message.ClearField("url")
        elif policy != "observe":
            changed |= _put(message, rewritten)
    return AddressDecision(changed, broker, leak)


def _leak_policy(selection: Selection, snapshot: Snapshot) -> LeakPolicy:
    """What becomes of addresses off the listener. Where clients come through the sidecar, none may lead past it."""
    if snapshot.config.shadow:
        return "observe"
    return "block" if is_through(selection) else snapshot.config.leaks


def _refusal(rewritten: RewrittenAddresses, selection: Selection) -> Refusal:
    if is_through(selection):
        text = "the broker's answer has an address that leads past this sidecar, and the ingress has throughSidecar"
        return Refusal(502, "leak", text, rewritten.broker or "")
    assert selection.listener is not None
    return leak_refusal(selection.listener, rewritten.broker or "")


def _leads_straight(command: Command) -> bool:
    """Whether clients go to these addresses themselves, even where they reach brokers through a proxy.

    A migration's (PIP-188) is the service URL of a new lookup (ConnectionHandler.grabCnx), a redirect's that of the
    next (BinaryProtoLookupService.findBroker).
    """
    is_redirect = command.type == LOOKUP_RESPONSE and command.lookup_response.response == REDIRECT
    return is_redirect or command.type == TOPIC_MIGRATED


def _is_peers(message: Addressed, snapshot: Snapshot) -> bool:
    """Whether these are addresses of a cluster that clients may be sent to (`redirects.peers`)."""
    found = [_url(_text(url)) for url in (message.url, message.url_tls) if url]
    return all(url is not None and host_matches(url.host, snapshot.config.redirects.peers) for url in found)


def decide_redirect(
    response: LookupResponse, selection: Selection, scheme: str, decisions: DecisionCache, can_follow: bool
) -> tuple[RedirectDecision, str]:
    """What becomes of an answer that names the broker to ask next, and the address by which it does."""
    assert selection.listener is not None
    snapshot, config = decisions.snapshot, decisions.config
    # Under `observe` no binary answer is changed.
    policy: Policy = "pass" if config.leaks == "observe" else config.redirects.lookup
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
    """A redirect of a client that reaches brokers through the sidecar: followed or refused, whatever `redirects` says.

    The client would go straight to where it leads.
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
    """Give a redirect its addresses on the listener; whether that changes any."""
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
