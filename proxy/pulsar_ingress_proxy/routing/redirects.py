"""Decisions about redirects. Pure.

A broker's 3xx names the next broker by an internal address. The client gets that broker's address on its listener, or
the sidecar follows the redirect itself.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import not_exposed
from pulsar_ingress_proxy.routing.paths import BadPath, classify
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import (
    Authority,
    host_matches,
    is_relative,
    looks_inside,
    parse_location,
    split_location,
)
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, ServiceUrl, kind_of

Action = Literal["rewritten", "followed", "passed", "kept", "refused"]
Policy = Literal["rewrite", "follow", "pass"]


class Redirect(NamedTuple):
    """The decision about one redirect: what the client gets, or the next request."""

    action: Action
    location: str | None = None
    """The client's Location; None if it gets no redirect."""
    broker: Broker | None = None
    """The broker to ask, if followed."""
    target: str = ""
    """The request target, if followed."""
    refusal: Refusal | None = None
    unmapped: bool = False
    leak: bool = False


@dataclass(frozen=True, slots=True)
class RedirectDecision:
    """The decision about all redirects to one authority; cached, as authorities are few."""

    action: Action
    base: str = ""
    """Scheme and authority of a rewritten Location."""
    broker: Broker | None = None
    refusal: Refusal | None = None
    unmapped: bool = False
    leak: bool = False


def decide_redirect(
    location: str, request: Request, selection: Selection, decisions: DecisionCache, can_follow: bool = True
) -> Redirect:
    """Decide about one Location. `can_follow` is false if the request's body cannot be replayed."""
    listener = selection.listener
    if listener is None:
        return Redirect("passed", location)
    if is_relative(location):
        return Redirect("kept", location)
    parts = split_location(location)
    policy = _policy(request, decisions.snapshot)
    if parts is None:
        decision = unknown_target("", policy, decisions.snapshot)
    else:
        origin, target, fragment = parts
        decision = _redirect_to_origin(origin, listener, request.scheme, policy, can_follow, decisions)
        if decision.action == "rewritten":
            target = _with_listener(target, request, listener, decisions)
            return Redirect("rewritten", f"{decision.base}{target}{fragment}")
        if decision.action == "followed":
            if not _may_ask_for(target, request, selection, decisions.snapshot):
                text = "a broker redirects to a path that is ambiguous or not exposed here"
                return Redirect("refused", refusal=Refusal(502, "bad-answer", text), unmapped=decision.unmapped)
            target = _with_listener(target, request, listener, decisions)
            return Redirect("followed", broker=decision.broker, target=target, unmapped=decision.unmapped)
    sent = location if decision.refusal is None else None
    return Redirect(decision.action, sent, refusal=decision.refusal, unmapped=decision.unmapped, leak=decision.leak)


def _redirect_to_origin(
    origin: str, listener: str, scheme: str, policy: Policy, can_follow: bool, decisions: DecisionCache
) -> RedirectDecision:
    """Decide about a redirect to the scheme and authority of a Location."""
    question = ("origin", origin, listener, scheme, policy, can_follow)
    found = decisions.get(question)
    if isinstance(found, RedirectDecision):
        return found
    parsed = parse_location(origin)
    if parsed is None:
        return unknown_target("", policy, decisions.snapshot)
    decision = redirect_to(parsed.authority, parsed.port, listener, scheme, policy, can_follow, decisions)
    return decisions.keep(question, decision)


def refuse_hop(hop: tuple[str, object], hops: set[tuple[str, object]], most: int) -> Refusal | None:
    """Add a hop, or refuse it if there is a loop or too many hops.

    A hop is the next broker and what it is asked for.
    """
    if hop in hops:
        return Refusal(502, "redirect-loop", "brokers redirect in a circle", f"{hop[0]} a second time")
    if len(hops) >= most:
        return Refusal(502, "too-many-redirects", f"more than {most} redirects (redirects.maxHops)", hop[0])
    hops.add(hop)
    return None


def _policy(request: Request, snapshot: Snapshot) -> Policy:
    config = snapshot.config
    if not config.prefer_http_client_listener_over_internal_listener:
        return "pass"
    policy = config.redirects.lookup if request.target.kind == "lookup" else config.redirects.admin
    if policy == "auto":
        # C++-based clients (libcurl) drop Authorization on the way to another host, and would get a 401 there.
        return "follow" if request.has_authorization else "rewrite"
    return policy


def redirect_to(
    authority: Authority,
    port: int,
    listener: str,
    scheme: str,
    policy: Policy,
    can_follow: bool,
    decisions: DecisionCache,
) -> RedirectDecision:
    """Decide about a redirect to an authority; `scheme` is the client's: http, https, pulsar or pulsar+ssl."""
    key = (authority, port, listener, scheme, policy, can_follow)
    found = decisions.get(key)
    return found if isinstance(found, RedirectDecision) else decisions.keep(key, _redirect_to(*key, decisions.snapshot))


def _redirect_to(
    authority: Authority, port: int, listener: str, scheme: str, policy: Policy, can_follow: bool, snapshot: Snapshot
) -> RedirectDecision:
    if host_matches(authority.host, snapshot.config.redirects.peers):
        return RedirectDecision("passed")
    schemes = kind_of(scheme)
    broker = snapshot.book.resolve(authority, port, schemes)
    if broker is None:
        default = snapshot.config.lookup_listener_name
        if snapshot.book.is_web_address(listener, authority, port, schemes, default):
            return RedirectDecision("kept")
        return unknown_target(authority.host, policy, snapshot)
    on_listener = broker.is_at(listener, f"{authority.host}:{port}", schemes)
    if policy == "pass":
        return RedirectDecision("passed", leak=not on_listener)
    if policy == "follow" and can_follow:
        return RedirectDecision("followed", broker=broker)
    if on_listener:
        return RedirectDecision("kept")
    url = _reachable(broker, listener, scheme, snapshot)
    if url is not None and not snapshot.book.is_shared(broker, url):
        return RedirectDecision("rewritten", str(url))
    if url is not None:  # several brokers share the address
        return _followed(broker, can_follow, unmapped=False)
    match snapshot.config.redirects.unmapped:
        case "pass":
            return RedirectDecision("passed", unmapped=True, leak=True)
        case "follow":
            return _followed(broker, can_follow, unmapped=True)
        case "refuse":
            what = "binary" if scheme in BINARY_SCHEMES else "web"
            text = f"a broker redirects to one that has no {what} address on listener '{listener}'"
            return RedirectDecision("refused", refusal=Refusal(502, "unmapped", text, broker.name), unmapped=True)


def _followed(broker: Broker, can_follow: bool, unmapped: bool) -> RedirectDecision:
    if can_follow:
        return RedirectDecision("followed", broker=broker, unmapped=unmapped)
    text = "a redirect must be followed, and the request's body is too large for that (redirects.replayBytes)"
    return RedirectDecision(
        "refused", refusal=Refusal(502, "body-not-replayable", text, broker.name), unmapped=unmapped
    )


def unknown_target(host: str, policy: Policy, snapshot: Snapshot) -> RedirectDecision:
    """Decide about a redirect to an unknown authority: a peer cluster or an internal name. It is never dialled.

    `host` is empty if the Location is not a URL.
    """
    inside = not host or looks_inside(host, snapshot.inside_suffixes)
    unmapped = snapshot.config.redirects.unmapped
    if policy == "pass" or unmapped == "pass" or (unmapped == "follow" and not inside):
        return RedirectDecision("passed", unmapped=True, leak=True)
    text = "a broker redirects to a name that neither advertisedListeners nor redirects.peers has"
    refusal = Refusal(502, "unknown-authority", text, host or "(not a URL)")
    return RedirectDecision("refused", refusal=refusal, unmapped=True)


def _reachable(broker: Broker, listener: str, scheme: str, snapshot: Snapshot) -> ServiceUrl | None:
    """The broker's web or binary address on the listener, else on the default listener (PIP-338)."""
    find = broker.binary_url if scheme in BINARY_SCHEMES else broker.web_url
    url = find(listener, scheme)
    default = snapshot.config.lookup_listener_name
    return url if url is not None or default is None else find(default, scheme)


def _may_ask_for(target: str, request: Request, selection: Selection, snapshot: Snapshot) -> bool:
    """Whether the client itself could send this request, so that `expose` holds for followed redirects, too."""
    # Only the area `client` depends on the method, and its requests are always GET or HEAD.
    method = "GET" if request.target.area == "client" else "POST"
    try:
        found = classify(method, target.partition("?")[0])
    except BadPath:
        return False
    return not_exposed(found.area, selection, snapshot) is None


def _with_listener(target: str, request: Request, listener: str, decisions: DecisionCache) -> str:
    """Set the listener's name in a lookup's query; brokers of 4.x add it unencoded, those of 5.x not always."""
    if request.target.kind != "lookup":
        return target
    path, _, query = target.partition("?")
    return f"{path}?{decisions.query_with(query, listener)}"
