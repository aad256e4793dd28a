"""Suggests config for misses and unmapped redirects: ingresses and addresses that are missing.

Every suggestion is verified: with it, the proxy's own functions serve the host or find the address. If events do not
tell enough, such as how to reach a broker with an unknown kind of name, the suggestion is a comment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import chain, count
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import yaml

from pulsar_ingress_pipeline.lake.catalog import Lake
from pulsar_ingress_proxy.config import Config, ConfigFaults, load_mapping
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import decide
from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.redirects import decide_redirect, redirect_to
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES

SUPPORT = 10
"""Hosts and addresses that were seen less often are left out: they may come from scanners."""
_MOST = 1000
_MISSED = ["host", "misses", "first_seen", "last_seen"]
_LOOKUP = Target("lookup", "lookup")
_NO_CONFIG: Mapping[str, Any] = {"brokers": {"webServiceUrl": ["http://broker:8080"]}}


@dataclass(frozen=True, slots=True)
class Seen:
    """A missed host, or an address on a listener, with how often and when it was seen."""

    what: str
    listener: str | None
    count: int
    first: datetime
    last: datetime

    def evidence(self, noun: str) -> str:
        return f"{self.count:,} {noun} between {self.first:%Y-%m-%d %H:%M} and {self.last:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the tables show."""

    hosts: Sequence[Seen]
    addresses: Sequence[Seen]
    listeners: Sequence[str] = ()
    """Listeners with hits, the most used first."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An element for a list of the config; without an element, a comment only."""

    key: str
    element: Mapping[str, Any] | None
    comment: str


def read(lake: Lake) -> Evidence:
    """The evidence in the tables."""
    missed = lake.table("misses", [*_MISSED, "reason"])
    missed = missed.filter(pc.equal(missed.column("reason"), "no-rule")).select(_MISSED)
    if lake.has("hosts"):  # in the binary protocol, ingresses match the server name instead of the host
        is_missed = (pc.field("protocol") == "binary") & pc.field("ingress").is_null() & (pc.field("misses") > 0)
        server_names = lake.table("hosts", [*_MISSED, "protocol", "ingress"]).filter(is_missed)
        missed = pa.concat_tables([missed, server_names.select(_MISSED)])
    hosts = missed.filter(pc.is_valid(missed.column("host"))).group_by("host")
    counted = hosts.aggregate([("misses", "sum"), ("first_seen", "min"), ("last_seen", "max")])
    unmapped = lake.table("unmapped_addresses", ["address", "listener", "redirects", "first_seen", "last_seen"])
    windows = lake.table("listener_windows", ["listener", "hits"])
    return Evidence(
        [Seen(host, None, *rest) for host, *rest in _first(counted, "misses_sum")],
        [Seen(*row) for row in _first(unmapped.drop_null(), "redirects")],
        used_listeners(windows),
    )


def _first(table: pa.Table, measure: str) -> Iterator[tuple[Any, ...]]:
    """The rows with the highest measure, then by the first column."""
    ordered = table.sort_by([(measure, "descending"), (table.column_names[0], "ascending")]).slice(0, _MOST)
    return zip(*(column.to_pylist() for column in ordered.columns), strict=True)


def used_listeners(windows: pa.Table) -> list[str]:
    """Listeners with hits, so that brokers have them, the most used first."""
    hit = windows.filter(pc.and_(pc.is_valid(windows.column("listener")), pc.greater(windows.column("hits"), 0)))
    return [name for name, _ in _first(hit.group_by("listener").aggregate([("hits", "sum")]), "hits_sum")]


def unused_hosts(lake: Lake, config: Config) -> list[tuple[str, str]] | None:
    """Ingress and host of a config that nobody requested; None if the table `hosts` is missing."""
    if not lake.has("hosts"):
        return None
    hosts = lake.table("hosts", ["host"]).column("host")
    # Arrow filters out the hosts that scanners request.
    wanted = [_might_match(hosts, host) for ingress in config.ingresses for host in ingress.hosts]
    return unused(config, pc.unique(hosts.filter(reduce(pc.or_, wanted))).to_pylist()) if wanted else []


def unused(config: Config, asked: Iterable[str]) -> list[tuple[str, str]]:
    """Matches hosts as the sidecar does: a requested host counts for the pattern that decides."""
    configured = [(ingress.name, host) for ingress in build(config).ingresses for host in ingress.hosts]
    # With an ingress for each host, the match tells the host and not only its ingress.
    patterns = Ingresses(Ingress(host, (host,), "any") for _, host in configured)
    left = {host.lower().removesuffix(".") for _, host in configured}
    for name in asked:
        if (authority := parse_authority(name)) is not None:
            found = patterns.by_host(authority.host) or patterns.everywhere
            left -= {found.name.lower().removesuffix(".")} if found is not None else set()
    return [(ingress, host) for ingress, host in configured if host.lower().removesuffix(".") in left]


def _might_match(hosts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    name = pattern.lower().removesuffix(".")
    return pc.ends_with(hosts, name.removeprefix("*")) if name.startswith("*") else pc.equal(hosts, name)


def known_listeners(used: Sequence[str], config: Config | None) -> frozenset[str]:
    """Listeners that some broker has: those in the config, or without a config those that were used."""
    if config is None:
        return frozenset(used)
    names = {name for line in config.advertised_listeners for name in line.listeners}
    names |= {ingress.listener for ingress in config.ingresses}
    names |= {name for name in used if name == config.lookup_listener_name}
    return frozenset(names)


def listener_for_new_hosts(used: Sequence[str], config: Config | None) -> str | None:
    """The default listener, or else the most used one; None if no broker is known to have a used one."""
    known = known_listeners(used, config)
    if config is not None and config.lookup_listener_name in known:
        return config.lookup_listener_name
    return next((name for name in used if name in known), None)


def suggest(evidence: Evidence, given: Mapping[str, Any] | None, support: int = SUPPORT) -> list[Suggestion]:
    """Suggestions for a config, or for an unknown one."""
    values = dict(given if given is not None else _NO_CONFIG)
    ingresses = _ingresses(evidence, values, support, has_config=given is not None)
    return [*ingresses, *_brokers(evidence, values, support)]


def _ingresses(evidence: Evidence, values: dict[str, Any], support: int, has_config: bool) -> Iterator[Suggestion]:
    for host, seen in _by_name(evidence.hosts):
        config = load_mapping(values)
        if seen.count < support or _is_served(host, build(config)):
            continue
        listener = listener_for_new_hosts(evidence.listeners, config if has_config else None)
        if listener is None:
            used = ", ".join(evidence.listeners)
            none_of = f"the config has none of the listeners that were used ({used})"
            why = none_of if used else "no listener was ever used"
            yield Suggestion("ingresses", None, f"{host}: {seen.evidence('misses')}; {why}: name one")
            continue
        element = {"name": _free_name(host, config), "hosts": [host], "listener": listener} | _limits(listener, config)
        if _take(values, "ingresses", element, lambda snapshot, host=host: _is_served(host, snapshot)):
            yield Suggestion("ingresses", element, seen.evidence("misses (no-rule)"))
        else:
            yield Suggestion("ingresses", None, f"{host}: {seen.evidence('misses')}; the config takes no such host")


def _by_name(hosts: Iterable[Seen]) -> list[tuple[str, Seen]]:
    """Valid hosts without their port, which ingresses ignore."""
    found: dict[str, Seen] = {}
    for seen in hosts:
        if (authority := parse_authority(seen.what)) is not None:
            host, other = authority.host, found.get(authority.host, replace(seen, count=0))
            first, last = min(seen.first, other.first), max(seen.last, other.last)
            found[host] = Seen(host, None, seen.count + other.count, first, last)
    return sorted(found.items(), key=lambda item: (-item[1].count, item[0]))


def _is_served(host: str, snapshot: Snapshot) -> bool:
    decision = decide(Request(_LOOKUP, parse_authority(host)), snapshot)
    return decision.miss_reason is None and decision.selection.hit


def _free_name(host: str, config: Config) -> str:
    taken = {ingress.name for ingress in config.ingresses}
    name = re.sub(r"[^a-z0-9]+", "-", host).strip("-")
    return next(free for free in chain([name], (f"{name}-{number}" for number in count(2))) if free not in taken)


def _limits(listener: str, config: Config) -> dict[str, Any]:
    """A new ingress allows no more than the existing ingress of its listener."""
    for ingress in config.ingresses:
        if ingress.listener == listener:
            given = {"allowedListeners": ingress.allowed_listeners, "expose": ingress.expose}
            return {key: list(value) for key, value in given.items() if value is not None}
    return {}


def _brokers(evidence: Evidence, values: dict[str, Any], support: int) -> Iterator[Suggestion]:
    for seen in evidence.addresses:
        assert seen.listener is not None
        snapshot = build(load_mapping(values))
        if seen.count < support or _is_mapped(seen, snapshot):
            continue
        for element in _like_others(seen.what.rpartition(":")[0], values):
            if _take(values, "advertisedListeners", element, lambda snapshot, seen=seen: _is_mapped(seen, snapshot)):
                yield Suggestion("advertisedListeners", element, seen.evidence("unmapped redirects"))
                break
        else:
            text = f"{seen.what} has no address on '{seen.listener}': {seen.evidence('unmapped redirects')}"
            yield Suggestion("advertisedListeners", None, f"{text}; say how it is reached")


def _is_mapped(seen: Seen, snapshot: Snapshot) -> bool:
    """Whether a client on this listener that is redirected to this address gets one on its listener."""
    request = Request(_LOOKUP, header_names=(seen.listener or "",))
    selection = select(request, snapshot)
    if selection.listener != seen.listener:
        # The client may not name the listener, so it came through an ingress, which the tables do not tell.
        known = next((ingress for ingress in snapshot.ingresses if ingress.listener == seen.listener), None)
        if known is None or not known.hosts:
            return False
        request = Request(_LOOKUP, parse_authority(known.hosts[0].replace("*.", "any.")))
        selection = select(request, snapshot)
    authority = parse_authority(seen.what)
    if selection.listener != seen.listener or authority is None or authority.port is None:
        return False
    decisions = DecisionCache(snapshot)
    if _is_binary(authority.port, snapshot):
        way = redirect_to(authority, authority.port, selection.listener or "", "pulsar", "rewrite", True, decisions)
        return not way.unmapped
    return not decide_redirect(f"http://{seen.what}/", request, selection, decisions).unmapped


def _is_binary(port: int, snapshot: Snapshot) -> bool:
    """Whether a port is for the binary protocol: the tables do not tell the protocol of an address."""
    urls = [url for entry in snapshot.book.entries for urls in entry.listeners.values() for url in urls.values()]
    known = {url.port for url in (*urls, *snapshot.config.binary_pool) if url.scheme in BINARY_SCHEMES}
    return str(port) in known | {"6650", "6651"}


def _like_others(host: str, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of brokers whose name differs in one number only, with this broker's number."""
    for line in values.get("advertisedListeners") or ():
        theirs, ours = (re.split(r"(\d+)", name.lower()) for name in (str(line.get("broker", "")), host))
        differ = [(before, after) for before, after in zip(theirs, ours, strict=False) if before != after]
        if len(theirs) == len(ours) and len(differ) == 1 and all(part.isdigit() for part in differ[0]):
            before, after = differ[0]
            numbered = re.sub(rf"(?<![0-9:.]){before}(?![0-9])", after, str(line["listeners"]))
            yield {"broker": host, "listeners": numbered}


def _take(values: dict[str, Any], key: str, element: Mapping[str, Any], proves: Any) -> bool:
    """Add an element if the config is valid with it and it has the desired effect."""
    with_it = values | {key: [*(values.get(key) or ()), dict(element)]}
    try:
        if not proves(build(load_mapping(with_it))):
            return False
    except ConfigFaults:
        return False
    values[key] = with_it[key]
    return True


def as_yaml(
    suggestions: Sequence[Suggestion], support: int = SUPPORT, unused: Sequence[tuple[str, str]] | None = ()
) -> str:
    """A mapping of lists to append to those of the config, with the evidence as comments.

    Unused hosts are only mentioned, since they may still be needed; None means that they are not known.
    """
    lines = [f"# Seen at least {support} times each. Append each list to the one that the config has."]
    if unused is None:
        lines.append("# Unused hosts of the config are not known: the table `hosts` is missing; `run` makes it.")
    for ingress, host in unused or ():
        lines.append(f"# ingresses: {ingress} has {host}, which nobody requested")
    for key in ("ingresses", "advertisedListeners"):
        mine = [suggestion for suggestion in suggestions if suggestion.key == key]
        elements = [suggestion for suggestion in mine if suggestion.element is not None]
        lines += [f"# {key}: {_in_a_line(suggestion.comment)}" for suggestion in mine if suggestion.element is None]
        if elements:
            lines.append(f"{key}:")
        for suggestion in elements:
            lines.append(f"  # {_in_a_line(suggestion.comment)}")
            text = yaml.safe_dump([dict(suggestion.element or {})], sort_keys=False, width=1000)
            lines += [f"  {line}" for line in text.splitlines()]
    if not any(suggestion.element for suggestion in suggestions):
        lines.append("{}")
    return "\n".join(lines) + "\n"


def _in_a_line(comment: str) -> str:
    """Hosts and addresses come from clients and brokers, and may contain anything."""
    return "".join(character if character.isprintable() else "?" for character in comment)
