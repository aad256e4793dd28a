"""What discovery has found out, for a snapshot to be built of. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.syntax.listeners import Urls

Source = Literal["config", "annotation", "derived", "admin"]
"""Where a line of the address book comes from, in the order of trust."""


@dataclass(frozen=True, slots=True)
class DiscoveredBroker:
    """One broker: every name that it may call itself by, the chief one first, and how it is reached."""

    names: tuple[str, ...]
    """Hosts, without a port."""
    listeners: Mapping[str, Urls] = field(default_factory=dict, hash=False)
    sources: Mapping[tuple[str, str], tuple[Source, str]] = field(default_factory=dict, hash=False)
    """By listener and scheme: the source, and the object that says so, as kind/namespace/name."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two that disagree, or one that says too little: reported, never guessed."""

    subject: str
    """The object, broker or host in question."""
    text: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """All that is known of the cluster at one moment. Equal findings make no new generation."""

    ingresses: tuple[Ingress, ...] = ()
    brokers: tuple[DiscoveredBroker, ...] = ()
    listeners: frozenset[str] = frozenset()
    """Names that brokers themselves say they have (brokers.discover: admin)."""
    conflicts: tuple[Conflict, ...] = ()


NOTHING = Discovered()
