"""Why a request has the listener it has, rule by rule, and what config would make a miss a hit. Pure.

The decision itself is made by `decide`; here it is only put into words.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from pulsar_ingress_proxy.routing.decisions import Decision
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Rule, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import is_host

Outcome = Literal["decided", "refused", "passed-over", "not-reached"]

ORDER: tuple[Rule, ...] = ("query", "header", "bind", "ingress", "default")


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule says about the request."""

    rule: Rule
    outcome: Outcome
    text: str


def steps(request: Request, selection: Selection, snapshot: Snapshot) -> tuple[Step, ...]:
    """All rules in their order, up to the one that decided and beyond it."""
    decided = ORDER.index(selection.rule) if selection.rule in ORDER else len(ORDER)
    found = []
    for place, rule in enumerate(ORDER):
        applies, says = _consider(rule, request, snapshot)
        if place > decided:
            found.append(Step(rule, "not-reached", f"{selection.rule} came first; {says}"))
        elif place < decided:
            found.append(Step(rule, "passed-over", says + _why_not(rule, selection, snapshot) if applies else says))
        elif selection.refusal is not None:
            found.append(Step(rule, "refused", f"{selection.refusal.code}: {selection.refusal.text}"))
        else:
            found.append(Step(rule, "decided", says))
    return tuple(found)


def _consider(rule: Rule, request: Request, snapshot: Snapshot) -> tuple[bool, str]:
    """Whether a rule applies to this request, and what it says, or why it does not apply."""
    match rule:
        case "query":
            return _named("the listenerName parameter", "no listenerName parameter", request.query_names)
        case "header":
            return _named("X-Pulsar-ListenerName", "no X-Pulsar-ListenerName header", request.header_names)
        case "bind" if request.bind_listener is not None:
            return True, f"the socket is bound to listener '{request.bind_listener}'"
        case "bind":
            return False, "the socket is not bound to a listener"
        case "ingress":
            return _ingress(request, snapshot)
        case _ if (default := snapshot.config.lookup_listener_name) is not None:
            return True, f"lookupListenerName is '{default}'"
        case _:
            return False, "lookupListenerName is not set"


def _named(where: str, absent: str, names: tuple[str, ...]) -> tuple[bool, str]:
    name = next((name for name in names if name.strip()), None)
    if name is not None:
        return True, f"{where} names '{name}'"
    return False, f"{where} is blank" if names else absent


def _ingress(request: Request, snapshot: Snapshot) -> tuple[bool, str]:
    hosts = []
    for what, host in (("Host", request.host), ("X-Forwarded-Host", request.forwarded_host)):
        if host is not None:
            hosts.append(str(host))
            if ingress := snapshot.ingresses.by_host(host.host):
                return True, f"{what} {host} matches ingress '{ingress.name}' (listener '{ingress.listener}')"
    if everywhere := snapshot.ingresses.everywhere:
        return True, f"ingress '{everywhere.name}' takes all other hosts (listener '{everywhere.listener}')"
    return False, f"no ingress has the host {' or '.join(hosts)}" if hosts else "no host to match an ingress by"


def _why_not(rule: Rule, selection: Selection, snapshot: Snapshot) -> str:
    """Why a rule that applies, and comes before the deciding one, did not decide."""
    if rule == "header" and selection.client_named_by == "query":
        return ", but the query comes first"
    if snapshot.config.client_listener_name == "ignore" and selection.client_named != selection.listener:
        return ", but clientListenerName is ignore"
    return f", the same as rule {selection.rule} gives, and counts there"


def suggestion(request: Request, decision: Decision, snapshot: Snapshot) -> str | None:
    """Config to paste, as YAML, that makes this request a hit; None where only the client or the brokers can."""
    selection = decision.selection
    ingress, named, brokers_have = selection.ingress, selection.client_named, snapshot.reported_listeners
    match decision.miss_reason:
        case "no-rule":
            return _yaml(_new_ingress(request, snapshot))
        case "not-exposed" if ingress is None:
            return _yaml(_new_ingress(request, snapshot))
        case "not-exposed" if ingress is not None and request.target.area != "other":
            exposed = sorted({*(ingress.expose or ()), request.target.area})
            return _yaml(_changed(ingress, snapshot, expose=exposed), f"Change ingress '{ingress.name}':")
        case "not-allowed" if ingress is not None and named in _client_listeners(snapshot):
            allowed = sorted({*(ingress.allowed_listeners or ()), named})
            return _yaml(_changed(ingress, snapshot, allowedListeners=allowed), f"Change ingress '{ingress.name}':")
        case "unknown-listener" if selection.rule not in ("query", "header"):
            text = (
                f"Add the listener to advertisedListeners of the brokers, which have {', '.join(sorted(brokers_have))}"
            )
            other = next((name for name in _client_listeners(snapshot) if name in brokers_have), None)
            if selection.rule != "ingress" or ingress is None or other is None:
                return f"# {text}.\n"
            return _yaml(_changed(ingress, snapshot, listener=other), f"{text}, or change ingress '{ingress.name}':")
        case "not-allowed" | "unknown-listener" | "client-named" | "bad-listener-name":
            decides = ingress is not None or request.bind_listener or snapshot.config.lookup_listener_name
            ignored = {"clientListenerName": "ignore", **({} if decides else _new_ingress(request, snapshot))}
            return _yaml(ignored, "Fix the client, or ignore the listener it sends:")
        case _:
            return None


class _Dumper(yaml.SafeDumper):
    """Indents lists as people do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(keys: dict[str, Any], text: str = "Add:") -> str:
    lines = [f"# {text}\n"]
    for key, value in keys.items():
        style = None if isinstance(value, list) else False  # only the innermost lists on one line
        lines.append(yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, default_flow_style=style, width=1000))
    return "".join(lines)


def _new_ingress(request: Request, snapshot: Snapshot) -> dict[str, Any]:
    """An ingress for the host of a request; it lets through no more than the one its listener has already."""
    listener = next(iter(_client_listeners(snapshot)), "external")
    host = request.forwarded_host or request.host
    if host is None or not is_host(host.host):
        return {"lookupListenerName": listener}
    like = snapshot.ingresses.by_listener(listener)
    limits: dict[str, Any] = {}
    if like is not None and like.allowed_listeners is not None:
        limits["allowedListeners"] = sorted(like.allowed_listeners)
    if like is not None and like.expose is not None and request.target.area != "other":
        limits["expose"] = sorted({*like.expose, request.target.area})
    name = re.sub(r"[^a-z0-9]+", "-", host.host)
    return {"ingresses": [{"name": name, "hosts": [host.host], "listener": listener, **limits}]}


def _changed(ingress: Ingress, snapshot: Snapshot, **keys: Any) -> dict[str, Any]:
    """An ingress as the config has it, or as it was discovered, but for these keys."""
    for written in snapshot.config.ingresses:
        if written.name == ingress.name:
            return {"ingresses": [written.model_dump(mode="json", by_alias=True, exclude_unset=True) | keys]}
    return {"ingresses": [{"name": ingress.name, "hosts": list(ingress.hosts), "listener": ingress.listener} | keys]}


def _client_listeners(snapshot: Snapshot) -> list[str]:
    """Listeners that clients can have: those of ingresses first, then all others that brokers have."""
    known, internal = snapshot.known_listeners, snapshot.config.internal_listener_name
    names = dict.fromkeys([*(ingress.listener for ingress in snapshot.ingresses), *sorted(known)])
    return [name for name in names if name != internal and (not known or name in known)]
