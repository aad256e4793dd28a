"""The decisions on one request, without sending it: what `explain` prints and the console's what-if shows. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field

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
from pulsar_ingress_proxy.routing.answers import (
    URL_KEYS,
    LeakAction,
    decide_leak,
    is_off_listener,
    rewrite_urls,
    rewritten_keys,
)
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest, Decision, dial_url
from pulsar_ingress_proxy.routing.redirects import Action, Redirect, RedirectDecision, decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES, BindAddress
from pulsar_ingress_proxy.tools.reasoning import Step, steps, suggestion

BodyAction = Literal["rewritten", "added", "removed", "kept"] | LeakAction

_NO_LISTENER = "it stays as it is: there is no listener to put it on"


class CannotExplain(Exception):
    """The request cannot be explained with this config."""


class _Shown(BaseModel):
    """What `explain --json` prints, and what the console answers. `from` is a keyword of Python: it is `from_` here."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.removesuffix("_"),
        defer_build=True,
    )


class Redirection(_Shown):
    """What happens to a Location."""

    from_: str
    to: str | None
    action: Action


Redirected = tuple[Redirection, str]
"""What happens to a Location, and why."""


class BodyKey(_Shown):
    """What happens to one URL of a lookup's answer."""

    key: str
    from_: str | None
    to: str | None
    leak: bool = Field(description="the client gets an address that is not on the listener, or would if not blocked")
    action: BodyAction


class Body(_Shown):
    """What happens to the body of a lookup's answer."""

    leak: LeakAction | None
    why: str
    keys: list[BodyKey]


class OwnAnswer(_Shown):
    """The sidecar's own answer, instead of a broker's."""

    status: int
    code: str
    text: str


class Explanation(_Shown):
    """The decisions on one request."""

    ingress: str | None = None
    listener: str | None = None
    rule: str = "none"
    hit: bool = False
    reason: str | None
    upstream: str | None = None
    location: Redirection | None = Field(None, description="null where the request is refused")
    redirect: str | None = Field(None, description="why the location becomes that")
    body: Body | None = Field(None, description="null where the request is refused")
    kind: str = "(refused)"
    refusal: OwnAnswer | None
    route: str = Field("no broker is asked", description="why it goes to that upstream")
    steps: tuple[Step, ...] = Field((), description="rule by rule; empty where the request cannot be read")
    suggestion: str | None = Field(None, description="config, as YAML, that would make a miss a hit")
    shadow: bool = Field(description="whether all this would only be recorded")

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def as_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"request   {self.kind}"
        yield f"ingress   {self.ingress or '(none)'}"
        yield f"listener  {self.listener or '(none)'}"
        yield f"rule      {self.rule}" + (f" ({self.reason})" if self.reason else "")
        for step in self.steps:
            yield f"  {step.rule:<7}  {step.outcome.replace('-', ' '):<11}  {step.text}"
        if self.refusal is not None:
            yield f"answer    {self.refusal.status} {self.refusal.code}: {self.refusal.text}"
        else:
            yield f"upstream  {self.upstream}"
            yield f"  {self.route}"
        if self.location is not None:
            yield f"location  {self.location.from_}"
            yield f"  {self.location.action:<9} {self.location.to or '(the client gets 502)'}"
            yield f"  {self.redirect}"
        if self.body is not None:
            yield f"body      {self.body.why}"
            for key in self.body.keys:
                change = key.from_ if key.from_ == key.to else f"{key.from_ or '(none)'} -> {key.to or '(none)'}"
                yield f"  {key.key:<12}  {key.action:<9}  {change}{'  LEAK' if key.leak else ''}"
        if self.shadow:
            yield "shadow    true: this is counted and recorded, and nothing is changed"
        if self.suggestion is not None:
            yield f"\nSuggested config:\n\n{self.suggestion.rstrip()}"


def explain(
    snapshot: Snapshot,
    url: str,
    headers: list[tuple[str, str]],
    bind: str | None = None,
    location: str | None = None,
    method: str = "GET",
    trusted: bool = True,
    body: str | None = None,
) -> Explanation:
    """Decide as `run` would for a client that asks for this URL, through a trusted gateway unless told otherwise.

    `location` and `body` are a broker's answers; where the request is refused, no broker is asked, and both are None.
    """
    answer = _answer(body) if body is not None else None
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise CannotExplain(f"'{url}' is not a URL: {fault}") from None
    if parts.scheme in BINARY_SCHEMES and parts.hostname:
        return _explain_binary(snapshot, parts, headers, bind, location, answer)
    if parts.scheme not in WEB_SCHEMES or not parts.netloc:
        raise CannotExplain(f"'{url}' is not a URL: write http://host/path, https://host/path or pulsar://host:port")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {name.lower() for name, _ in headers}
    implied = [("Host", parts.netloc), ("X-Forwarded-Proto", parts.scheme)]
    all_headers = [pair for pair in implied if pair[0].lower() not in given] + headers
    decisions = DecisionCache(snapshot)
    try:
        head = RequestHead([(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers])
        if b"transfer-encoding" in head.special:
            check_transfer_encoding(head)
        path, query, authority = split_target(method, target)
        socket = _socket(snapshot, bind, WEB_SCHEMES)
        decided = read_and_decide(decisions, head, about(method, path), query, authority, socket, trusted)
    except UnicodeEncodeError as fault:
        raise CannotExplain(f"'{fault.object[fault.start]}' cannot stand in a header: encode it") from None
    except BadHead as fault:
        own = OwnAnswer(status=fault.status, code=fault.code, text=str(fault))
        return Explanation(reason=fault.code, refusal=own, shadow=snapshot.config.shadow)
    request, selection, ways = decided.request, decided.decision.selection, decided.decision.route
    pool = snapshot.config.function_pool if ways.pool == "functions" else snapshot.config.web_pool
    return _explanation(
        decided,
        snapshot,
        upstream=str(ways.url or ", ".join(map(str, pool))),
        route=_route(decided.decision),
        location=_redirect(decisions, location, request, selection) if location is not None else None,
        body=_body(decisions, answer, request, selection) if answer is not None else None,
    )


def _explanation(
    decided: DecidedRequest,
    snapshot: Snapshot,
    upstream: str,
    route: str,
    location: Redirected | None,
    body: Body | None,
) -> Explanation:
    """What both protocols have in common."""
    request, decision, selection = decided.request, decided.decision, decided.decision.selection
    refused = decision.refusal
    there, why = location or (None, None)
    answered = {"upstream": upstream, "route": route, "location": there, "redirect": why, "body": body}
    return Explanation(
        ingress=selection.ingress.name if selection.ingress is not None else None,
        listener=selection.listener,
        rule=selection.rule,
        hit=selection.hit and refused is None,
        reason=decision.miss_reason,
        kind=request.target.kind,
        refusal=OwnAnswer(status=refused.status, code=refused.code, text=refused.text) if refused else None,
        steps=steps(request, selection, snapshot),
        suggestion=suggestion(request, decision, snapshot),
        shadow=selection.shadow,
        **({} if refused else answered),
    )


def _explain_binary(
    snapshot: Snapshot,
    parts: SplitResult,
    headers: list[tuple[str, str]],
    bind: str | None,
    location: str | None,
    answer: dict[str, Any] | None,
) -> Explanation:
    """A lookup on a connection to this service URL. The listener that a client names is what a header is to HTTP."""
    schemes = (parts.scheme, *(scheme for scheme in BINARY_SCHEMES if scheme != parts.scheme))  # a gateway may end TLS
    socket = _socket(snapshot, bind, schemes)
    endpoint = endpoints.ClientEndpoint(socket, parts.hostname if socket.scheme == "pulsar+ssl" else None)
    named = next((value for name, value in headers if name.lower() == "x-pulsar-listenername"), "")
    decisions = DecisionCache(snapshot)
    decided = lookups.decide(Lookup(advertised_listener_name=named.encode()), endpoint, decisions)
    selection, target = decided.decision.selection, endpoints.connection_target(Connect(), endpoint, decisions)
    return _explanation(
        decided,
        snapshot,
        upstream=", ".join(map(str, target.urls)),
        route=f"the server name is the address of {target.broker.name}" if target.broker is not None else "any broker",
        location=_binary_redirect(decisions, location, selection, parts.scheme) if location is not None else None,
        body=_binary_body(decisions, answer, selection) if answer is not None else None,
    )


def _answer(body: str) -> dict[str, Any]:
    """A lookup's answer as JSON text."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise CannotExplain(f"the body is not JSON: {fault}") from None
    if not isinstance(answer, dict):
        raise CannotExplain('the body is not a JSON object: write {"brokerUrl": "pulsar://…", …} as a broker answers')
    return answer


def _body(decisions: DecisionCache, sent: dict[str, Any], request: Request, selection: Selection) -> Body:
    """What happens to the body of a lookup's 200."""
    snapshot, listener = decisions.snapshot, selection.listener
    if listener is None or request.target.kind != "lookup":
        reason = _NO_LISTENER if listener is None else "only answers to lookups are rewritten"
        return Body(leak=None, why=reason, keys=_keys(sent, sent, frozenset(), None))
    keys, policy = rewritten_keys(snapshot), snapshot.config.leaks
    rewritten = rewrite_urls(sent, keys, listener, snapshot)
    got = sent if policy == "observe" else rewritten.urls
    leaks = frozenset(key for key in keys if is_off_listener(key, got.get(key), listener, snapshot))
    leak = decide_leak(policy, rewritten.had_leak, rewritten.has_leak)
    shown = _keys(sent, got, leaks, leak)
    return Body(leak=leak, why=_why_body(leak, listener, shown), keys=shown)


def _binary_body(decisions: DecisionCache, sent: dict[str, Any], selection: Selection) -> Body:
    """The same for the two addresses that a binary lookup's answer has."""
    fields = {"brokerUrl": "url", "brokerUrlTls": "url_tls"}
    sent = {key: sent[key] for key in fields if isinstance(sent.get(key), str)}
    if selection.listener is None:
        return Body(leak=None, why=_NO_LISTENER, keys=_keys(sent, sent, frozenset(), None))
    response = LookupResponse(**{fields[key]: url.encode() for key, url in sent.items()})
    leak = answers.decide_found(response, selection, decisions).leak
    got = {key: getattr(response, field).decode() for key, field in fields.items()}
    # Addresses under proxy_through_service_url are names for the sidecar, and lead nobody past it.
    leaks = frozenset(
        key
        for key, url in got.items()
        if not response.proxy_through_service_url and is_off_listener(key, url, selection.listener, decisions.snapshot)
    )
    shown = _keys(sent, got, leaks, leak)
    return Body(leak=leak, why=_why_body(leak, selection.listener, shown), keys=shown)


def _keys(
    sent: Mapping[str, Any], got: Mapping[str, Any], leaks: frozenset[str], leak: LeakAction | None
) -> list[BodyKey]:
    found = []
    for key in URL_KEYS:
        before, after = (str(answer.get(key) or "") or None for answer in (sent, got))
        action: BodyAction = "kept"
        if leak == "blocked":
            after, action = None, leak
        elif before != after:
            action = "added" if before is None else "removed" if after is None else "rewritten"
        elif leak is not None and key in leaks:
            action = leak
        if before is not None or after is not None:
            found.append(BodyKey(key=key, from_=before, to=after, leak=key in leaks, action=action))
    return found


def _why_body(leak: LeakAction | None, listener: str, keys: list[BodyKey]) -> str:
    match leak:
        case "blocked":
            return f"the client gets 502 leak: an address is not on '{listener}', and leaks are blocked"
        case "observed":
            return f"it stays as it is, though an address is not on '{listener}': leaks are only observed"
        case "passed":
            return f"an address that the address book cannot put on '{listener}' passes, and counts as a leak"
        case _:
            return f"all addresses are on '{listener}'" if keys else "it has no addresses"


def _redirect(decisions: DecisionCache, location: str, request: Request, selection: Selection) -> Redirected:
    redirect = decide_redirect(location, request, selection, decisions)
    to = redirect.location
    if redirect.broker is not None:
        to = f"{dial_url(redirect.broker, decisions.snapshot)}{redirect.target}"
    why = _why(redirect, selection.listener)
    rules = decisions.config.redirects
    if (rules.lookup if request.target.kind == "lookup" else rules.admin) == "auto" and not redirect.unmapped:
        if redirect.action == "followed" and request.has_authorization:
            why += " (auto: some clients would not send their Authorization to another host)"
        elif redirect.action == "rewritten":
            why += " (auto: with Authorization, the sidecar would follow the redirect)"
    return Redirection(from_=location, to=to, action=redirect.action), why


def _binary_redirect(decisions: DecisionCache, location: str, selection: Selection, scheme: str) -> Redirected:
    """What becomes of an answer that names the broker to ask next."""
    if selection.listener is None:
        return Redirection(from_=location, to=location, action="passed"), _why(RedirectDecision("passed"), None)
    is_tls = location.startswith("pulsar+ssl:")
    response = LookupResponse(url_tls=location.encode()) if is_tls else LookupResponse(url=location.encode())
    redirect, _ = answers.decide_redirect(response, selection, scheme, decisions, can_follow=True)
    to: str | None = location if redirect.refusal is None else None
    if redirect.broker is not None:
        to = str(dial_url(redirect.broker, decisions.snapshot, BINARY_SCHEMES))
    elif redirect.action == "rewritten":
        answers.put_redirect(response, selection, decisions.snapshot)
        to = ((scheme == "pulsar+ssl" and response.url_tls) or response.url or response.url_tls).decode()
    return Redirection(from_=location, to=to, action=redirect.action), _why(redirect, selection.listener)


def _route(decision: Decision) -> str:
    if decision.route.broker is not None:
        return f"the host is the address of {decision.route.broker.name} on '{decision.selection.listener}'"
    if decision.route.pool == "functions":
        return "the path belongs to the function workers"
    return "the host is not the address of one broker: any broker of the pool may answer"


def _why(redirect: Redirect | RedirectDecision, listener: str | None) -> str:
    """A decision on a redirect, in words."""
    if redirect.refusal is not None:
        return f"{redirect.refusal.code}: {redirect.refusal.text}"
    match redirect.action:
        case "rewritten":
            return f"the address book has that broker's address on '{listener}'"
        case "followed":
            unmapped = f", which has no address on '{listener}'" if redirect.unmapped else ""
            return f"the sidecar asks that broker itself{unmapped}; the client sees no redirect"
        case "kept":
            return f"it is already on '{listener}', or on the same host"
        case _ if listener is None:
            return _NO_LISTENER
        case _ if redirect.unmapped:
            return "it is not in the address book, and redirects.unmapped lets it pass"
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
