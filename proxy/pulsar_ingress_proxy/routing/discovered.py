"""The result of discovery, from which a snapshot is built. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.syntax.listeners import Urls

Source = Literal["config", "annotation", "derived", "admin"]
"""Where an address comes from, the most trusted first."""


@dataclass(frozen=True, slots=True)
class DiscoveredBroker:
    """One broker: all its names, the primary one first, and its addresses."""

    names: tuple[str, ...]
    """Hosts, without a port."""
    listeners: Mapping[str, Urls] = field(default_factory=dict, hash=False)
    sources: Mapping[tuple[str, str], tuple[Source, str]] = field(default_factory=dict, hash=False)
    """By listener and scheme: the source, and the object as kind/namespace/name."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A contradiction or an ambiguity, which is reported and not guessed."""

    subject: str
    """The object, broker or host."""
    text: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """All that was discovered. An equal result makes no new generation."""

    ingresses: tuple[Ingress, ...] = ()
    brokers: tuple[DiscoveredBroker, ...] = ()
    listeners: frozenset[str] = frozenset()
    """Listener names reported by brokers (brokers.discover: admin)."""
    conflicts: tuple[Conflict, ...] = ()


NOTHING = Discovered()
