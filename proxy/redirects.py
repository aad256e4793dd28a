"""What becomes of a redirect: `decide(location, request, selection, snapshot)`. Pure.

A broker's 3xx names the broker to ask next by an address of the brokers' own network. The client gets
that broker's address on its listener, or the sidecar asks that broker itself.
"""

from dataclasses import dataclass, replace
from typing import Literal

from proxy.addresses import Broker
from proxy.authorities import Location, host_matches, is_relative, looks_inside, parse_location
from proxy.listeners import ServiceUrl
from proxy.requests import Request, set_listener_name
from proxy.selection import Refusal, Selection
from proxy.snapshot import Snapshot

Action = Literal["rewritten", "followed", "passed", "kept", "refused"]


@dataclass(frozen=True, slots=True)
class Redirect:
    """The decision: what the client gets, or whom the sidecar asks instead."""

    action: Action
    location: str | None = None
    """What the client gets; None where it gets no redirect."""
    broker: Broker | None = None
    """The broker to ask, if followed."""
    target: str = ""
    """The path and query to ask it for."""
    refusal: Refusal | None = None
    unmapped: bool = False
    leak: bool = False


def decide(
    location: str, request: Request, selection: Selection, snapshot: Snapshot, can_follow: bool = True
) -> Redirect:
    """Judge one Location. `can_follow` is false where the request's body is gone and cannot be sent again."""
    listener = selection.listener
    if listener is None:
        return Redirect("passed", location)
    if is_relative(location):
        return Redirect("kept", location)
    parsed = parse_location(location)
    if parsed is None:
        return _unknown(location, None, snapshot, _policy(request, snapshot))
    if host_matches(parsed.authority.host, snapshot.config.redirects.peers):
        return Redirect("passed", location)
    broker = snapshot.book.resolve(parsed.authority, parsed.port)
    if broker is None:
        if snapshot.book.is_web_address(listener, parsed.authority, parsed.port):
            return Redirect("kept", location)
        return _unknown(location, parsed, snapshot, _policy(request, snapshot))
    return _known(location, parsed, broker, listener, request, snapshot, can_follow)


def _policy(request: Request, snapshot: Snapshot) -> Literal["rewrite", "follow", "pass"]:
    config = snapshot.config
    if not config.prefer_http_client_listener_over_internal_listener:
        return "pass"
    return config.redirects.lookup if request.target.kind == "lookup" else config.redirects.admin


def _known(
    location: str,
    parsed: Location,
    broker: Broker,
    listener: str,
    request: Request,
    snapshot: Snapshot,
    can_follow: bool,
) -> Redirect:
    """A Location that names one broker of ours."""
    policy = _policy(request, snapshot)
    on_listener = broker.is_at(listener, parsed.address)
    target = _with_listener(parsed.target, request, listener)
    follow = Redirect("followed", broker=broker, target=target)
    if policy == "pass":
        return Redirect("passed", location, leak=not on_listener)
    if policy == "follow" and can_follow:
        return follow
    if on_listener:
        return Redirect("kept", location)

    url = _reachable(broker, listener, request.scheme, snapshot)
    if url is not None and not snapshot.book.is_shared(broker, url):
        return Redirect("rewritten", f"{url}{target}{parsed.fragment}")
    if url is not None:  # an address that several brokers share leads to any of them
        return follow if can_follow else _refuse_replay(broker, unmapped=False)
    match snapshot.config.redirects.unmapped:
        case "pass":
            return Redirect("passed", location, unmapped=True, leak=True)
        case "follow":
            return replace(follow, unmapped=True) if can_follow else _refuse_replay(broker, unmapped=True)
        case "refuse":
            text = f"a broker redirects to one that has no web address on listener '{listener}'"
            return Redirect("refused", refusal=Refusal(502, "unmapped", text, broker.name), unmapped=True)


def _unknown(
    location: str,
    parsed: Location | None,
    snapshot: Snapshot,
    policy: Literal["rewrite", "follow", "pass"],
) -> Redirect:
    """A Location that names nobody we know: never dialled. It may be a peer cluster, or a name of the inside."""
    host = parsed.authority.host if parsed is not None else ""
    inside = parsed is None or looks_inside(host, snapshot.inside_suffixes)
    unmapped = snapshot.config.redirects.unmapped
    if policy == "pass" or unmapped == "pass" or (unmapped == "follow" and not inside):
        return Redirect("passed", location, unmapped=True, leak=True)
    text = "a broker redirects to a name that neither advertisedListeners nor redirects.peers has"
    refusal = Refusal(502, "unknown-authority", text, host or "(not an http URL)")
    return Redirect("refused", refusal=refusal, unmapped=True)


def _reachable(broker: Broker, listener: str, scheme: str, snapshot: Snapshot) -> ServiceUrl | None:
    """The broker's web address on the listener, else on the default one (PIP-338)."""
    url = broker.web_url(listener, scheme)
    default = snapshot.config.lookup_listener_name
    return url if url is not None or default is None else broker.web_url(default, scheme)


def _with_listener(target: str, request: Request, listener: str) -> str:
    """A lookup's next hop carries the listener's name once; 4.x brokers add it unencoded, 5.x not always."""
    if request.target.kind != "lookup":
        return target
    path, _, query = target.partition("?")
    return f"{path}?{set_listener_name(query, listener)}"


def _refuse_replay(broker: Broker, unmapped: bool) -> Redirect:
    text = "a redirect must be followed, and the request's body is too large for that (redirects.replayBytes)"
    return Redirect("refused", refusal=Refusal(502, "body-not-replayable", text, broker.name), unmapped=unmapped)
