"""Resolves conflicting addresses of a broker by source: config, annotation, derived, admin. Pure.

The most trusted source with web addresses of a broker on a listener provides all of them, and likewise for binary
and Kafka addresses: explicit addresses are not mixed with derived ones. If two of equal trust disagree, neither is
used.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple, get_args

from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered, DiscoveredBroker, Source
from pulsar_ingress_proxy.syntax.listeners import KAFKA_SCHEMES, WEB_SCHEMES, ServiceUrl, Urls

_TRUST = {source: rank for rank, source in enumerate(get_args(Source))}


class Claim(NamedTuple):
    """An address of a broker, by one source."""

    listener: str
    url: ServiceUrl
    source: Source
    by: str
    """The object or config line."""
    weak: bool = False
    """Whether it holds only while the pool has one broker."""

    @property
    def rank(self) -> tuple[bool, int]:
        return self.weak, _TRUST[self.source]

    @property
    def family(self) -> tuple[str, bool, bool]:
        return self.listener, self.url.scheme in WEB_SCHEMES, self.url.scheme in KAFKA_SCHEMES

    def __str__(self) -> str:
        return f"{self.url} ({self.source}, {self.by})"


def resolve_claims(names: tuple[str, ...], claims: Iterable[Claim]) -> tuple[DiscoveredBroker, list[Conflict]]:
    """The broker by its most trusted claims, and the conflicts between claims."""
    listeners: dict[str, dict[str, ServiceUrl]] = {}
    sources: dict[tuple[str, str], tuple[Source, str]] = {}
    conflicts: list[Conflict] = []
    ordered = sorted(claims, key=lambda claim: (claim.family, claim.rank, claim.url.scheme, str(claim.url), claim.by))
    for (listener, *_), group in groupby(ordered, key=lambda claim: claim.family):
        claimed = list(group)
        best = [claim for claim in claimed if claim.rank == claimed[0].rank]
        for scheme, same in groupby(best, key=lambda claim: claim.url.scheme):
            rivals = list({claim.url: claim for claim in reversed(list(same))}.values())[::-1]
            if len(rivals) > 1:
                said = " and ".join(map(str, rivals))
                text = f"is said to be at {said} on listener '{listener}': neither is used"
                conflicts.append(Conflict(names[0], text))
                continue
            chosen = rivals[0]
            listeners.setdefault(listener, {})[scheme] = chosen.url
            sources[listener, scheme] = chosen.source, chosen.by
            conflicts += _overruled(names, chosen, claimed)
    return DiscoveredBroker(names, listeners, sources), conflicts


def _overruled(names: tuple[str, ...], chosen: Claim, claimed: Iterable[Claim]) -> Iterator[Conflict]:
    for other in claimed:
        # Another form of its own name is not a conflict, nor is the pool's name while there is one broker.
        is_name = other.url.port == chosen.url.port and {other.url.host, chosen.url.host} <= {*names}
        if other.url.scheme == chosen.url.scheme and other.url != chosen.url and not is_name and not other.weak:
            yield Conflict(names[0], f"is at {chosen} on listener '{chosen.listener}', not at {other}")


def claims(listeners: Mapping[str, Urls], sources: Mapping[tuple[str, str], tuple[Source, str]]) -> Iterator[Claim]:
    """The claims of a broker, by its URLs and the source of each."""
    for listener, urls in listeners.items():
        for scheme, url in urls.items():
            yield Claim(listener, url, *sources[listener, scheme])


def merge(observed: Discovered, reported: Discovered) -> Discovered:
    """Merge what Kubernetes shows and what brokers report: brokers that share a name are one broker."""
    brokers = [*observed.brokers]
    conflicts = [*observed.conflicts, *reported.conflicts]
    by_name: dict[str, list[int]] = {}
    for place, broker in enumerate(brokers):
        for name in broker.names:
            by_name.setdefault(name, []).append(place)
    for broker in reported.brokers:
        places = {place for name in broker.names for place in by_name.get(name, ())}
        if len(places) != 1:
            brokers.append(broker)
            continue
        (place,) = places
        known = brokers[place]
        names = tuple(dict.fromkeys((*known.names, *broker.names)))
        both = [*claims(known.listeners, known.sources), *claims(broker.listeners, broker.sources)]
        brokers[place], disagreements = resolve_claims(names, both)
        conflicts += disagreements
    return Discovered(
        ingresses=(*observed.ingresses, *reported.ingresses),
        brokers=tuple(brokers),
        listeners=observed.listeners | reported.listeners,
        conflicts=in_order(conflicts),
    )


def in_order(conflicts: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """Sort and deduplicate, so that equal results compare equal."""
    return tuple(sorted(set(conflicts), key=lambda conflict: (conflict.subject, conflict.text)))
