"""Who is believed where several say how a broker is reached: config, annotation, what was derived, the brokers. Pure.

The most trusted source that has web addresses of a broker on a listener says all of them, and likewise for binary
ones: what somebody wrote down is not completed by what merely follows from objects. Two of equal trust that disagree
are both left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple, get_args

from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered, DiscoveredBroker, Source
from pulsar_ingress_proxy.syntax.listeners import WEB_SCHEMES, ServiceUrl

_TRUST = {source: rank for rank, source in enumerate(get_args(Source))}


class Claim(NamedTuple):
    """Somebody's word for an address of a broker."""

    listener: str
    url: ServiceUrl
    source: Source
    by: str
    """The object, or the line of the config."""
    weak: bool = False
    """True only as long as the pool has one broker."""

    @property
    def rank(self) -> tuple[bool, int]:
        return self.weak, _TRUST[self.source]

    @property
    def family(self) -> tuple[str, bool]:
        return self.listener, self.url.scheme in WEB_SCHEMES

    def __str__(self) -> str:
        return f"{self.url} ({self.source}, {self.by})"


def resolve_claims(names: tuple[str, ...], claims: Iterable[Claim]) -> tuple[DiscoveredBroker, list[Conflict]]:
    """A broker as the most trusted of these claims have it, and what they disagree on."""
    listeners: dict[str, dict[str, ServiceUrl]] = {}
    sources: dict[tuple[str, str], tuple[Source, str]] = {}
    conflicts: list[Conflict] = []
    ordered = sorted(claims, key=lambda claim: (claim.family, claim.rank, claim.url.scheme, str(claim.url), claim.by))
    for (listener, _), group in groupby(ordered, key=lambda claim: claim.family):
        claimed = list(group)
        best = [claim for claim in claimed if claim.rank == claimed[0].rank]
        for scheme, same in groupby(best, key=lambda claim: claim.url.scheme):
            rivals = list({claim.url: claim for claim in reversed(list(same))}.values())[::-1]
            if len(rivals) > 1:
                conflicts.append(_undecided(names[0], listener, rivals))
                continue
            chosen = rivals[0]
            listeners.setdefault(listener, {})[scheme] = chosen.url
            sources[listener, scheme] = chosen.source, chosen.by
            conflicts += _overruled(names, chosen, claimed)
    return DiscoveredBroker(names, listeners, sources), conflicts


def _undecided(broker: str, listener: str, rivals: list[Claim]) -> Conflict:
    said = " and ".join(map(str, rivals))
    return Conflict(broker, f"is said to be at {said} on listener '{listener}': neither is used")


def _overruled(names: tuple[str, ...], chosen: Claim, claimed: Iterable[Claim]) -> Iterator[Conflict]:
    for other in claimed:
        # Its own name in another form is no contradiction, nor is the pool's while there is one broker.
        is_name = other.url.port == chosen.url.port and {other.url.host, chosen.url.host} <= {*names}
        if other.url.scheme == chosen.url.scheme and other.url != chosen.url and not is_name and not other.weak:
            yield Conflict(names[0], f"is at {chosen} on listener '{chosen.listener}', not at {other}")


def claims(broker: DiscoveredBroker) -> Iterator[Claim]:
    """What a finding says of a broker, as claims."""
    for listener, urls in broker.listeners.items():
        for scheme, url in urls.items():
            yield Claim(listener, url, *broker.sources[listener, scheme])


def merge(*discovered: Discovered) -> Discovered:
    """All findings as one: brokers that share a name are one broker, with what all say of it."""
    brokers: list[DiscoveredBroker] = []
    conflicts = [conflict for found in discovered for conflict in found.conflicts]
    for found in discovered:
        by_name = _by_name(brokers)
        for broker in found.brokers:
            places = {place for name in broker.names for place in by_name.get(name, ())}
            if len(places) != 1:
                brokers.append(broker)
                continue
            (place,) = places
            known = brokers[place]
            names = tuple(dict.fromkeys((*known.names, *broker.names)))
            brokers[place], disagreements = resolve_claims(names, [*claims(known), *claims(broker)])
            conflicts += disagreements
    return Discovered(
        ingresses=tuple(ingress for found in discovered for ingress in found.ingresses),
        brokers=tuple(brokers),
        listeners=frozenset(name for found in discovered for name in found.listeners),
        conflicts=in_order(conflicts),
    )


def in_order(conflicts: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """Each once, and in the same order every time: equal findings are to be equal."""
    return tuple(sorted(set(conflicts), key=lambda conflict: (conflict.subject, conflict.text)))


def _by_name(brokers: Iterable[DiscoveredBroker]) -> Mapping[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, broker in enumerate(brokers):
        for name in broker.names:
            places.setdefault(name, []).append(place)
    return places
