"""What would turn a miss into a hit: a line of config, or a word on whose part it is to mend it.

What can be proven is `suggest`'s to say; here is the word for each reason.
"""

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
_BY_REASON = {
    "not-allowed": Advice("Clients name a listener that they may not: mend them, or the ingress’s allowedListeners."),
    "conflicting-names": Advice("Two names in one lookup: mend the clients. This drops their word:", _DROP),
    "bad-listener-name": Advice(
        "What they name is no listener’s name: mend the clients. This drops their word:", _DROP
    ),
    "client-named": Advice("Clients may not name a listener here: mend them. This drops their word:", _DROP),
    "broker-lacks-listener": Advice(
        "A broker has no such listener: add it to advertisedListeners in that broker’s own config."
    ),
    "overloaded": Advice("Too many at once: more sidecars, or limits.inFlight if brokers are fast and memory allows."),
}


def advise(miss: Row, listener: str | None, known: Collection[str] = ()) -> Advice:
    """`listener` is the one for hosts that no ingress has, and `known` are those that some broker has."""
    ingress, named = miss["ingress"], miss["named"]
    match miss["reason"]:
        case "no-rule":
            return _new_host(miss, listener)
        case "not-allowed" if named and named not in known:
            return Advice(f"They name {named}, which no broker is known to have: mend the clients.")
        case "not-allowed" if named and ingress:
            text = f"They name {named}. Mend the clients, or let the ingress {ingress} allow it"
            return Advice(f"{text}, beside the names it has:", _flow("allowedListeners", [named]))
        case "unknown-listener":
            text = f"No broker has {named or 'the listener they name'}"
            return Advice(f"{text}: mend the clients, or add it to advertisedListeners. This drops their word:", _DROP)
        case "not-exposed" if ingress:
            text = f"The ingress {ingress} does not let lookups through. Beside what it exposes:"
            return Advice(text, _flow("expose", ["lookup", "client"]))
        case reason:
            return _BY_REASON.get(reason, Advice("Look at the events of this host."))


def _new_host(miss: Row, listener: str | None) -> Advice:
    seen = Seen(miss["host"] or "", None, miss["misses"], miss["first_seen"], miss["last_seen"])
    found = next(iter(suggest(Evidence((seen,), (), () if listener is None else (listener,)), None, support=1)), None)
    if found is None:
        return Advice(
            "It asks for no host that an ingress could have. lookupListenerName would take it, as it takes all."
        )
    if found.element is None:
        return Advice("No lookup has a listener yet: name one in an ingress with this host.")
    config = f"{found.key}:\n  - {_flow(None, dict(found.element))}"
    if parse_address(found.element["hosts"][0].strip("[]")) is not None:
        return Advice("It asks by address: a probe, or a client to mend. If it is a door:", config)
    return Advice("Add the host to an ingress, or one of its own:", config)


def _flow(key: str | None, value: Any) -> str:
    """YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.strip() if key is None else f"{key}: {text.strip()}"
