"""`explain`: a dry run of the decisions on one request, with no network. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import SplitResult, urlsplit

from pulsar_ingress_proxy.binary import answers, endpoints, lookups
from pulsar_ingress_proxy.binary.commands_pb2 import Connect, Lookup, LookupResponse
from pulsar_ingress_proxy.http.headers import (
    BadHead,
    RequestHead,
    about,
    check_transfer_encoding,
    read_and_decide,
    split_target,
)
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import Decision, dial_url
from pulsar_ingress_proxy.routing.redirects import Redirect, RedirectDecision, decide_redirect
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES, BindAddress
from pulsar_ingress_proxy.tools.reasoning import Step, steps


class CannotExplain(Exception):
    """A question that this config has no answer to."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """What would become of a Location. `from` is a word of Python's, so it gets its name in `as_json`."""

    from_: str
    to: str | None
    action: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decisions on one request."""

    ingress: str | None
    listener: str | None
    rule: str
    hit: bool
    reason: str | None
    upstream: str | None
    location: Redirection | None
    kind: str
    refusal: Refusal | None
    steps: tuple[Step, ...] = ()
    """Rule by rule, why it is this listener."""
    route: str = ""
    """Why it would go to that upstream."""

    def as_json(self) -> dict[str, object]:
        shown = asdict(self)
        for name in ("kind", "refusal", "steps", "route"):
            del shown[name]
        if self.location is not None:
            shown["location"] = {"from": self.location.from_, "to": self.location.to, "action": self.location.action}
        return shown

    def as_text(self) -> str:
        lines = [
            f"request   {self.kind}",
            f"ingress   {self.ingress or '(none)'}",
            f"listener  {self.listener or '(none)'}",
            f"rule      {self.rule}" + (f" ({self.reason})" if self.reason else ""),
        ]
        if self.refusal is not None:
            return "\n".join([*lines, f"answer    {self.refusal.status} {self.refusal.code}: {self.refusal.text}"])
        lines.append(f"upstream  {self.upstream}")
        if self.location is not None:
            lines += [
                f"location  {self.location.from_}",
                f"  {self.location.action:<9} {self.location.to or '(the client gets 502)'}",
            ]
        return "\n".join(lines)


def explain(
    snapshot: Snapshot,
    url: str,
    headers: list[tuple[str, str]],
    bind: str | None = None,
    location: str | None = None,
    method: str = "GET",
    trusted: bool = True,
) -> Explanation:
    """Decide as `run` would for a client that asks for this URL, through a trusted gateway unless told otherwise."""
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise CannotExplain(f"'{url}' is not a URL: {fault}") from None
    if parts.scheme in BINARY_SCHEMES and parts.hostname:
        return _explain_binary(snapshot, parts, headers, bind, location)
    if parts.scheme not in WEB_SCHEMES or not parts.netloc:
        raise CannotExplain(f"'{url}' is not a URL: write http://host/path, https://host/path or pulsar://host:port")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {name.lower() for name, _ in headers}
    implied = [("Host", parts.netloc), ("X-Forwarded-Proto", parts.scheme)]
    all_headers = [pair for pair in implied if pair[0].lower() not in given] + headers
    decisions = DecisionCache(snapshot)
    try:
        head = RequestHead((name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers)
        if b"transfer-encoding" in head.special:
            check_transfer_encoding(head)
        path, query, authority = split_target(method, target)
        socket = _socket(snapshot, bind, WEB_SCHEMES)
        decided = read_and_decide(decisions, head, about(method, path), query, authority, socket, trusted)
    except UnicodeEncodeError as fault:
        raise CannotExplain(f"'{fault.object[fault.start]}' cannot stand in a header: encode it") from None
    except BadHead as fault:
        refusal = Refusal(fault.status, fault.code, str(fault))
        return Explanation(None, None, "none", False, fault.code, None, None, "(refused)", refusal)
    request, decision = decided.request, decided.decision
    selection, ways = decision.selection, decision.route
    redirection = None
    if location is not None:
        redirect = decide_redirect(location, request, selection, decisions)
        to = redirect.location
        if redirect.broker is not None:
            to = f"{dial_url(redirect.broker, snapshot)}{redirect.target}"
        redirection = Redirection(location, to, redirect.action, _why(redirect, selection.listener))
    pool = snapshot.config.function_pool if ways.pool == "functions" else snapshot.config.web_pool
    return Explanation(
        ingress=selection.ingress.name if selection.ingress is not None else None,
        listener=selection.listener,
        rule=selection.rule,
        hit=selection.hit and decision.refusal is None,
        reason=decision.miss_reason,
        upstream=None if decision.refusal is not None else str(ways.url or ", ".join(map(str, pool))),
        location=redirection,
        kind=request.target.kind,
        refusal=decision.refusal,
        steps=steps(request, selection, snapshot),
        route=_route(decision),
    )


def _explain_binary(
    snapshot: Snapshot, parts: SplitResult, headers: list[tuple[str, str]], bind: str | None, location: str | None
) -> Explanation:
    """A lookup on a connection to this service URL. The listener that a client names is what a header is to HTTP."""
    schemes = (parts.scheme, *(scheme for scheme in BINARY_SCHEMES if scheme != parts.scheme))  # a gateway may end TLS
    socket = _socket(snapshot, bind, schemes)
    endpoint = endpoints.ClientEndpoint(socket, parts.hostname if socket.scheme == "pulsar+ssl" else None)
    named = next((value for name, value in headers if name.lower() == "x-pulsar-listenername"), "")
    decisions = DecisionCache(snapshot)
    decided = lookups.decide(Lookup(advertised_listener_name=named.encode()), endpoint, decisions)
    request, decision = decided.request, decided.decision
    selection, target = decision.selection, endpoints.connection_target(Connect(), endpoint, decisions)
    return Explanation(
        ingress=selection.ingress.name if selection.ingress is not None else None,
        listener=selection.listener,
        rule=selection.rule,
        hit=selection.hit and decision.refusal is None,
        reason=decision.miss_reason,
        upstream=None if decision.refusal is not None else ", ".join(map(str, target.urls)),
        location=_binary_redirect(decisions, location, selection, parts.scheme) if location is not None else None,
        kind=request.target.kind,
        refusal=decision.refusal,
        steps=steps(request, selection, snapshot),
        route=f"its server name is the address of {target.broker.name}" if target.broker is not None else "any broker",
    )


def _binary_redirect(decisions: DecisionCache, location: str, selection: Selection, scheme: str) -> Redirection:
    """What becomes of an answer that names the broker to ask next."""
    if selection.listener is None:
        return Redirection(location, location, "passed", _why(RedirectDecision("passed"), None))
    is_tls = location.startswith("pulsar+ssl:")
    response = LookupResponse(url_tls=location.encode()) if is_tls else LookupResponse(url=location.encode())
    redirect, _ = answers.decide_redirect(response, selection, scheme, decisions, can_follow=True)
    to: str | None = location if redirect.refusal is None else None
    if redirect.broker is not None:
        to = str(dial_url(redirect.broker, decisions.snapshot, BINARY_SCHEMES))
    elif redirect.action == "rewritten":
        answers.put_redirect(response, selection, decisions.snapshot)
        to = ((scheme == "pulsar+ssl" and response.url_tls) or response.url or response.url_tls).decode()
    return Redirection(location, to, redirect.action, _why(redirect, selection.listener))


def _route(decision: Decision) -> str:
    if decision.refusal is not None:
        return "no broker is asked"
    if decision.route.broker is not None:
        return f"its host is the address of {decision.route.broker.name} on '{decision.selection.listener}'"
    if decision.route.pool == "functions":
        return "its path is the function workers'"
    return "its host is no single broker's, so any of the pool may answer"


def _why(redirect: Redirect | RedirectDecision, listener: str | None) -> str:
    """A decision on a redirect, in words."""
    if redirect.refusal is not None:
        return f"{redirect.refusal.code}: {redirect.refusal.text}"
    match redirect.action:
        case "rewritten":
            return f"the address book has that broker's address on '{listener}'"
        case "followed":
            unmapped = f", as it has no address on '{listener}'" if redirect.unmapped else ""
            return f"the sidecar asks that broker itself{unmapped}, and the client sees no redirect"
        case "kept":
            return f"it is on '{listener}' already, or stays with the same host"
        case _ if listener is None:
            return "without a listener there is nothing to put it on"
        case _ if redirect.unmapped:
            return "the address book does not know it, and redirects.unmapped lets it pass"
        case _ if redirect.leak:
            return f"redirects lets it pass, though it is not on '{listener}'"
        case _:
            return "it leads to a peer cluster, or redirects lets it pass"


def _socket(snapshot: Snapshot, wanted: str | None, schemes: Sequence[str]) -> BindAddress:
    """The socket that was asked for; else the first that leaves the choice to the ingress, else the first.

    For the binary protocol one of the first scheme comes before all others.
    """
    binds = snapshot.config.bind_addresses
    sockets = [bind for bind in binds if bind.scheme in schemes and wanted in (None, bind.address)]
    if not sockets:
        known = ", ".join(map(str, binds))
        raise CannotExplain(f"no {schemes[0]} socket is bound to {wanted or 'anything'}; bindAddresses has {known}")
    if schemes[0] in BINARY_SCHEMES:
        sockets.sort(key=lambda bind: bind.scheme != schemes[0])
        sockets = [bind for bind in sockets if bind.scheme == sockets[0].scheme]
    return next((bind for bind in sockets if bind.listener is None), sockets[0])
