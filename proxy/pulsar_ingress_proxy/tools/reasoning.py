"""Rule by rule, why a request has the listener it has: which rule decided, and why those before it did not. Pure.

The decision itself is `select`'s; here it is only put into words.
"""

from dataclasses import dataclass
from typing import Literal

from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Rule, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot

Outcome = Literal["decided", "refused", "passed-over", "not-reached"]

ORDER: tuple[Rule, ...] = ("query", "header", "bind", "ingress", "default")


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule had to say."""

    rule: Rule
    outcome: Outcome
    text: str


def steps(request: Request, selection: Selection, snapshot: Snapshot) -> tuple[Step, ...]:
    """All rules in their order, up to the one that decided and beyond it."""
    decided = ORDER.index(selection.rule) if selection.rule in ORDER else len(ORDER)
    found = []
    for place, rule in enumerate(ORDER):
        says = _offer(rule, request, snapshot)
        if place < decided:
            found.append(Step(rule, "passed-over", _why_not(rule, says, request, selection, snapshot)))
        elif place > decided:
            found.append(Step(rule, "not-reached", f"{selection.rule} came first; {says or _silence(rule, request)}"))
        elif selection.refusal is not None:
            found.append(Step(rule, "refused", f"{selection.refusal.code}: {selection.refusal.text}"))
        else:
            found.append(Step(rule, "decided", says or _silence(rule, request)))
    return tuple(found)


def _offer(rule: Rule, request: Request, snapshot: Snapshot) -> str | None:
    """What a rule has to say of this request; None where it has nothing to say."""
    match rule:
        case "query":
            return _named("the listenerName parameter", request.query_names)
        case "header":
            return _named("X-Pulsar-ListenerName", request.header_names)
        case "bind":
            listener = request.bind_listener
            return f"the socket it came in by is for '{listener}'" if listener is not None else None
        case "ingress":
            return _ingress(request, snapshot)
        case _:
            default = snapshot.config.lookup_listener_name
            return f"lookupListenerName is '{default}'" if default is not None else None


def _silence(rule: Rule, request: Request) -> str:
    """Why a rule has nothing to say."""
    match rule:
        case "query":
            return f"the listenerName parameter is {'blank' if request.query_names else 'not there'}"
        case "header":
            return f"X-Pulsar-ListenerName {'is blank' if request.header_names else 'was not sent'}"
        case "bind":
            return "the socket it came in by leaves the choice to the ingress"
        case "ingress":
            hosts = [str(host) for host in (request.host, request.forwarded_host) if host is not None]
            return f"no ingress has {' or '.join(hosts)}" if hosts else "there is no Host to find an ingress by"
        case _:
            return "lookupListenerName is not set"


def _why_not(rule: Rule, says: str | None, request: Request, selection: Selection, snapshot: Snapshot) -> str:
    """Why a rule was passed over, whose turn it was before the one that decided."""
    if says is None:
        return _silence(rule, request)
    if rule == "header" and selection.client_named_by == "query":
        return f"{says}, but the query named one before it"
    if snapshot.config.client_listener_name == "ignore" and selection.client_named != selection.listener:
        return f"{says}, and clientListenerName: ignore drops it"
    return f"{says}, which is what {selection.rule} gives: it counts there"


def _named(where: str, names: tuple[str, ...]) -> str | None:
    name = next((name for name in names if name.strip()), None)
    return f"{where} names '{name}'" if name is not None else None


def _ingress(request: Request, snapshot: Snapshot) -> str | None:
    for what, host in (("Host", request.host), ("X-Forwarded-Host", request.forwarded_host)):
        ingress = snapshot.ingresses.by_host(host.host) if host is not None else None
        if host is not None and ingress is not None:
            return f"{what} {host} is of ingress '{ingress.name}', which is for '{ingress.listener}'"
    everywhere = snapshot.ingresses.everywhere
    if everywhere is None:
        return None
    return f"ingress '{everywhere.name}' takes every host that no other has, and is for '{everywhere.listener}'"
