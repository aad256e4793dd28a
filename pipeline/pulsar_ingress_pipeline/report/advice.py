"""How to fix a miss: a line of config, or who has to change something. There is a text for each reason."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import yaml

from pulsar_ingress_pipeline.report.records import Row
from pulsar_ingress_pipeline.suggest import Evidence, Seen, suggest
from pulsar_ingress_proxy.syntax.authorities import parse_address


@dataclass(frozen=True, slots=True)
class Advice:
    text: str
    config: str | None = None
    """YAML for the config."""


_DROP = "clientListenerName: ignore"
_FIX_OR_IGNORE = "Fix the clients, or ignore the names that they send:"
_BY_REASON = {
    "not-allowed": Advice("Clients name a listener that is not allowed. Fix them, or the ingress’s allowedListeners."),
    "conflicting-names": Advice(f"A lookup has two different names. {_FIX_OR_IGNORE}", _DROP),
    "bad-listener-name": Advice(f"The name is not a valid listener name. {_FIX_OR_IGNORE}", _DROP),
    "client-named": Advice(f"Clients must not name a listener here. {_FIX_OR_IGNORE}", _DROP),
    "broker-lacks-listener": Advice("A broker has no such listener: add it to that broker’s own advertisedListeners."),
    "overloaded": Advice("Too many requests at once. Run more sidecars, or raise limits.inFlight if memory allows it."),
}


def advise(miss: Row, listener: str | None, known: Collection[str] = ()) -> Advice:
    """`listener` is for hosts that no ingress has; `known` are the listeners that some broker has."""
    ingress, named = miss["ingress"], miss["named"]
    match miss["reason"]:
        case "no-rule":
            return _new_host(miss, listener)
        case "not-allowed" if named and named not in known:
            return Advice(f"Clients name {named}, which no broker is known to have. Fix the clients.")
        case "not-allowed" if named and ingress:
            text = f"Clients name {named}. Fix the clients, or allow it at the ingress {ingress}"
            return Advice(f"{text}, in addition to the names it allows:", f"allowedListeners: {_flow([named])}")
        case "unknown-listener":
            text = f"No broker has {named or 'the listener that clients name'}"
            return Advice(
                f"{text}. Fix the clients, add it to advertisedListeners, or ignore the names that they send:", _DROP
            )
        case "not-exposed" if ingress:
            text = f"The ingress {ingress} does not expose lookups. Add to what it exposes:"
            return Advice(text, "expose: [lookup, client]")
        case reason:
            return _BY_REASON.get(reason, Advice("Look at the events of this host."))


def _new_host(miss: Row, listener: str | None) -> Advice:
    seen = Seen(miss["host"] or "", None, miss["misses"], miss["first_seen"], miss["last_seen"])
    found = next(iter(suggest(Evidence((seen,), (), () if listener is None else (listener,)), None, support=1)), None)
    if found is None:
        return Advice("The lookups have no valid host for an ingress. lookupListenerName would apply to them, too.")
    if found.element is None:
        return Advice("No lookup has a listener yet. Add an ingress with this host and a listener.")
    config = f"{found.key}:\n  - {_flow(dict(found.element))}"
    if parse_address(found.element["hosts"][0].strip("[]")) is not None:
        return Advice("Requested by IP address: a probe, or a client to fix. If it is an ingress:", config)
    return Advice("Add the host to an existing ingress, or add an ingress:", config)


def _flow(value: Any) -> str:
    """YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.strip()
