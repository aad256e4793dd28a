"""One immutable, numbered version of all rules and addresses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.addresses import AddressBook, Broker, Entry
from pulsar_ingress_proxy.routing.discovered import NOTHING, Conflict, Discovered, DiscoveredBroker
from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.precedence import claims, in_order, resolve_claims
from pulsar_ingress_proxy.syntax.hosts import covers


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rules and addresses for a request, from its start to its end."""

    generation: int
    config: Config
    ingresses: Ingresses
    book: AddressBook
    known_listeners: frozenset[str]
    """The names that some broker has; if empty, no name counts as unknown."""
    inside_suffixes: frozenset[str]
    reported_listeners: frozenset[str] = frozenset()
    """All names that brokers report; empty if they were not asked."""
    conflicts: tuple[Conflict, ...] = ()
    """Conflicts within discovery, and between config and discovery."""

    def listener_label(self, name: str | None) -> str:
        """The metrics label of a listener; unknown names become `other`, so that clients cannot create labels."""
        if not name:
            return ""
        return name if name in self.known_listeners or name in self.config.named_listeners else "other"


def build(config: Config, generation: int = 1, discovered: Discovered = NOTHING) -> Snapshot:
    """Combine config and discovery; the config wins."""
    conflicts = list(discovered.conflicts)
    ingresses = [*_ingresses(config), *_found_ingresses(config, discovered, conflicts)]
    book = AddressBook(_entries(config, discovered, conflicts))
    return Snapshot(
        generation=generation,
        config=config,
        ingresses=Ingresses(ingresses),
        book=book,
        known_listeners=_known_listeners(config, discovered, book),
        inside_suffixes=book.inside_suffixes(),
        reported_listeners=discovered.listeners,
        conflicts=in_order(conflicts),
    )


def in_zone(snapshot: Snapshot, zone: str) -> Snapshot:
    """The snapshot with `kubernetes.zoneProperty` added to all ingresses that do not set it."""
    name = snapshot.config.kubernetes.zone_property
    if name is None:
        return snapshot
    ingresses = (
        replace(ingress, lookup_properties={name: zone, **ingress.lookup_properties}) for ingress in snapshot.ingresses
    )
    return replace(snapshot, ingresses=Ingresses(ingresses))


def _ingresses(config: Config) -> Iterable[Ingress]:
    for ingress in config.ingresses:
        yield Ingress(
            name=ingress.name,
            hosts=tuple(ingress.hosts),
            listener=ingress.listener,
            allowed_listeners=None if ingress.allowed_listeners is None else frozenset(ingress.allowed_listeners),
            expose=None if ingress.expose is None else frozenset(ingress.expose),
            lookup_properties=dict(ingress.lookup_properties),
            override_lookup_properties=ingress.override_lookup_properties,
            through_sidecar=ingress.through_sidecar,
            shadow=ingress.shadow,
        )


def _found_ingresses(config: Config, discovered: Discovered, conflicts: list[Conflict]) -> Iterable[Ingress]:
    """The discovered ingresses without hosts that the config covers, so that its restrictions hold."""
    written = [(host, ingress) for ingress in config.ingresses for host in ingress.hosts]
    for found in discovered.ingresses:
        hosts = []
        for host in found.hosts:
            owner = next((ingress for pattern, ingress in written if covers(pattern, host)), None)
            if owner is None:
                hosts.append(host)
            elif owner.listener != found.listener:
                text = f"is of ingress '{owner.name}' ({owner.listener}) by the config"
                conflicts.append(Conflict(host, f"{text}, not of {found.name} ({found.listener})"))
        if hosts:
            yield replace(found, hosts=tuple(hosts))


def _entries(config: Config, discovered: Discovered, conflicts: list[Conflict]) -> Iterable[Entry]:
    """The lines of the config, merged with the discovered brokers that they name; then all other discovered brokers.

    Discovered brokers of a template come before it, so that they take precedence.
    """
    lines = [
        Entry(line.broker, line.listeners, line=f"advertisedListeners.{place}")
        for place, line in enumerate(config.advertised_listeners)
    ]
    described: dict[Entry, list[Entry]] = {}
    others: list[Entry] = []
    for found, written in _matched(discovered.brokers, lines):
        if len({line for line, _ in written if not line.is_template}) > 1:
            names = " and ".join(broker.name for _, broker in written)
            conflicts.append(Conflict(found.names[0], f"is {names} by the config: its discovered addresses are unused"))
        elif not written:
            others.append(Entry(found.names[0], found.listeners, found.sources, found.names[1:], found.names[0]))
        else:
            line, broker = written[0]
            both = [*claims(broker.listeners, line.sources), *claims(found.listeners, found.sources)]
            whole, disagreements = resolve_claims((broker.name, *found.names), both)
            conflicts += disagreements
            entry = Entry(broker.name, whole.listeners, whole.sources, found.names, line.line)
            described.setdefault(line, []).append(entry)
    for line in lines:
        found_of_it = described.get(line, [])
        yield from found_of_it
        if line.is_template or not found_of_it:
            yield line
    yield from others


def _matched(
    brokers: Iterable[DiscoveredBroker], lines: list[Entry]
) -> Iterator[tuple[DiscoveredBroker, list[tuple[Entry, Broker]]]]:
    """Each discovered broker with the config lines that name it, and the broker by each line."""
    plain: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        plain.setdefault(line.host, []).append(place)
    templates = [place for place, line in enumerate(lines) if line.is_template]
    for found in brokers:
        places = {*templates, *(place for name in found.names for place in plain.get(name, ()))}
        written = []
        for line in (lines[place] for place in sorted(places)):
            values = line.hosted(found.names)
            if values is not None and (broker := line.fill(values)) is not None:
                written.append((line, broker))
        yield found, written


def _known_listeners(config: Config, discovered: Discovered, book: AddressBook) -> frozenset[str]:
    """Names that some broker has. Internal addresses of pods do not tell whether their brokers have any listeners."""
    written = {name for line in config.advertised_listeners for name in line.listeners}
    found = {name for broker in discovered.brokers for name in broker.listeners} - {config.internal_listener_name}
    known = written | found | discovered.listeners
    return frozenset(known | book.listeners if known else known)
