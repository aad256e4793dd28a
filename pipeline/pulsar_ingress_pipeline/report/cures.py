"""What would turn a miss into a hit: a line of config, or a word on whose part it is to mend it.

What can be proven is `suggest`'s to say; here is the word for each reason.
"""

import ipaddress
from dataclasses import dataclass
from typing import Any

import yaml

from pulsar_ingress_pipeline.report.records import Miss
from pulsar_ingress_pipeline.suggest import Evidence, Seen, suggest


@dataclass(frozen=True, slots=True)
class Cure:
    said: str
    line: str | None = None
    """YAML for the config."""


_DROP = "clientListenerName: ignore"
_CLIENTS = {
    "conflicting-names": "Two names in one lookup: mend the clients. This drops their word:",
    "bad-listener-name": "What they name is no listener’s name: mend the clients. This drops their word:",
    "client-named": "Clients may not name a listener here: mend them. This drops their word:",
}


def cure(miss: Miss, listener: str | None) -> Cure:
    """`listener` is the one for hosts that nobody knows: the most used."""
    match miss.reason:
        case "no-rule":
            return _new_host(miss, listener)
        case "not-allowed" if miss.named and miss.ingress:
            said = f"They name {miss.named}. Mend the clients, or let the ingress {miss.ingress} allow it"
            return Cure(f"{said}, beside the names it has:", _flow("allowedListeners", [miss.named]))
        case "not-allowed":
            return Cure("Clients name a listener that they may not: mend them, or the ingress’s allowedListeners.")
        case "unknown-listener":
            said = f"No broker has {miss.named}" if miss.named else "No broker has the listener they name"
            return Cure(f"{said}: mend the clients, or add it to advertisedListeners. This drops their word:", _DROP)
        case "conflicting-names" | "bad-listener-name" | "client-named":
            return Cure(_CLIENTS[miss.reason], _DROP)
        case "not-exposed" if miss.ingress:
            said = f"The ingress {miss.ingress} does not let lookups through. Beside what it exposes:"
            return Cure(said, _flow("expose", ["lookup", "client"]))
        case "broker-lacks-listener":
            return Cure("A broker has no such listener: add it to advertisedListeners in that broker’s own config.")
        case "overloaded":
            return Cure("Too many at once: more sidecars, or limits.inFlight if brokers are fast and memory allows.")
        case _:
            return Cure("Look at the events of this host.")


def _new_host(miss: Miss, listener: str | None) -> Cure:
    seen = Seen(miss.host or "", None, miss.misses, miss.first, miss.last)
    found = next(iter(suggest(Evidence((seen,), (), listener), None, support=1)), None)
    if found is None:
        return Cure(
            "It asks for no host that an ingress could have. lookupListenerName would take it, as it takes all."
        )
    if found.element is None:
        return Cure("No lookup has a listener yet: name one in an ingress with this host.")
    line = f"{found.key}:\n  - {_flow(None, dict(found.element))}"
    if _is_address(found.element["hosts"][0]):
        return Cure("It asks by address: a probe, or a client to mend. If it is a door:", line)
    return Cure("Add the host to an ingress, or one of its own:", line)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _flow(key: str | None, value: Any) -> str:
    """YAML on one line."""
    told: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return told.strip() if key is None else f"{key}: {told.strip()}"
