"""Config to paste: the ingresses and addresses that misses and unmapped redirects ask for. Pure but for `read`.

Nothing is suggested that does not prove itself: with it, the proxy's own functions serve the host, or find the address.
What cannot be known from events, such as how a broker of a kind never seen is reached, stands there as a comment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.storage import Storage, literal
from pulsar_ingress_pipeline.unseen import Unseen
from pulsar_ingress_proxy.config import Config, ConfigFaults, load_mapping
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import decide
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.redirects import decide_redirect, redirect_to
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES

SUPPORT = 10
"""What was seen less often is not suggested: a scanner's host is no door."""
_MOST = 1000
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
    """What the tables have to say."""

    hosts: Sequence[Seen]
    addresses: Sequence[Seen]
    most_used: str | None
    """The listener that most hits were on."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One element of a list of the config, or, without one, a remark."""

    key: str
    element: Mapping[str, Any] | None
    comment: str


def read(spark: SparkSession, tables: Storage) -> Evidence:
    """The evidence in the tables."""

    def rows(name: str) -> Any:
        return spark.read.parquet(literal(tables.path(name)))

    missed = rows("misses").where((F.col("reason") == "no-rule") & F.col("host").isNotNull())
    if tables.exists("hosts"):  # over the binary protocol the server name is to a door what the host is
        named = (F.col("protocol") == "binary") & F.col("ingress").isNull() & (F.col("misses") > 0)
        columns = ("host", "misses", "first_seen", "last_seen")
        missed = missed.select(*columns).union(rows("hosts").where(named & F.col("host").isNotNull()).select(*columns))
    hosts = missed.groupBy("host").agg(F.sum("misses").alias("n"), F.min("first_seen"), F.max("last_seen"))
    unmapped = rows("unmapped_addresses").where(F.col("address").isNotNull() & F.col("listener").isNotNull())
    used = (
        rows("listener_windows").where(F.col("listener").isNotNull()).groupBy("listener").agg(F.sum("hits").alias("n"))
    )
    most = used.where("n > 0").orderBy(F.desc("n"), "listener").limit(1).collect()
    return Evidence(
        [Seen(host, None, *rest) for host, *rest in hosts.orderBy(F.desc("n"), "host").limit(_MOST).collect()],
        [
            Seen(address, listener, *rest)
            for listener, address, *rest in unmapped.orderBy(F.desc("redirects"), "address").limit(_MOST).collect()
        ],
        most[0][0] if most else None,
    )


def suggest(evidence: Evidence, given: Mapping[str, Any] | None, support: int = SUPPORT) -> list[Suggestion]:
    """What to add to a config, or to one that nobody has shown."""
    values = dict(given if given is not None else _NO_CONFIG)
    return [*_ingresses(evidence, values, support), *_brokers(evidence, values, support)]


def _ingresses(evidence: Evidence, values: dict[str, Any], support: int) -> Iterator[Suggestion]:
    for host, seen in _by_name(evidence.hosts):
        config = load_mapping(values)
        if seen.count < support or _is_served(host, build(config)):
            continue
        listener = config.lookup_listener_name or evidence.most_used
        if listener is None:
            yield Suggestion(
                "ingresses", None, f"{host}: {seen.evidence('misses')}; no listener was ever used: name one"
            )
            continue
        element = {"name": _free_name(host, config), "hosts": [host], "listener": listener} | _manners(listener, config)
        if _take(values, "ingresses", element, lambda snapshot, host=host: _is_served(host, snapshot)):
            yield Suggestion("ingresses", element, seen.evidence("misses (no-rule)"))
        else:
            yield Suggestion("ingresses", None, f"{host}: {seen.evidence('misses')}; the config takes no such host")


def _by_name(hosts: Iterable[Seen]) -> list[tuple[str, Seen]]:
    """Hosts without their port, which ingresses do not look at; what is no host is left out."""
    found: dict[str, Seen] = {}
    for seen in hosts:
        if (authority := parse_authority(seen.what)) is None:
            continue
        other = found.get(authority.host)
        first, last = (
            (seen.first, seen.last) if other is None else (min(seen.first, other.first), max(seen.last, other.last))
        )
        count = seen.count + (other.count if other is not None else 0)
        found[authority.host] = Seen(authority.host, None, count, first, last)
    return sorted(found.items(), key=lambda item: (-item[1].count, item[0]))


def _is_served(host: str, snapshot: Snapshot) -> bool:
    decision = decide(Request(_LOOKUP, parse_authority(host)), snapshot)
    return decision.miss_reason is None and decision.selection.hit


def _free_name(host: str, config: Config) -> str:
    taken = {ingress.name for ingress in config.ingresses}
    name, number = re.sub(r"[^a-z0-9]+", "-", host).strip("-"), 1
    while name in taken:
        number += 1
        name = f"{name.removesuffix(f'-{number - 1}')}-{number}"
    return name


def _manners(listener: str, config: Config) -> dict[str, Any]:
    """A new door lets no more through than the one that its listener has already."""
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
    """Whether a client on the listener that is redirected there would get an address."""
    request = Request(_LOOKUP, header_names=(seen.listener or "",))
    selection = select(request, snapshot)
    if selection.listener != seen.listener:  # the client may not name it, and comes by a door that is not known here
        door = next((ingress for ingress in snapshot.ingresses if ingress.listener == seen.listener), None)
        if door is None or not door.hosts:
            return False
        request = Request(_LOOKUP, parse_authority(door.hosts[0].replace("*.", "any.")))
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
    """Whether a port is one of the binary protocol: the tables do not say by which an address was told."""
    urls = [url for entry in snapshot.book.entries for urls in entry.listeners.values() for url in urls.values()]
    known = {url.port for url in (*urls, *snapshot.config.binary_pool) if url.scheme in BINARY_SCHEMES}
    return str(port) in known | {"6650", "6651"}


def _like_others(host: str, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of brokers whose name is the same but for one number, with this broker's number in place of theirs."""
    for line in values.get("advertisedListeners") or ():
        theirs = _numbers(str(line.get("broker", "")))
        ours = _numbers(host)
        if len(theirs) != len(ours):
            continue
        differ = [(one, other) for one, other in zip(theirs, ours, strict=True) if one != other]
        if len(differ) == 1 and all(part.isdigit() for part in differ[0]):
            before, after = differ[0]
            numbered = re.sub(rf"(?<![0-9:.]){before}(?![0-9])", after, str(line["listeners"]))
            yield {"broker": host, "listeners": numbered}


def _numbers(text: str) -> list[str]:
    return re.split(r"(\d+)", text.lower())


def _take(values: dict[str, Any], key: str, element: Mapping[str, Any], proves: Any) -> bool:
    """Add an element if the config is valid with it and it does what it is for."""
    with_it = values | {key: [*(values.get(key) or ()), dict(element)]}
    try:
        is_good = bool(proves(build(load_mapping(with_it))))
    except ConfigFaults:
        return False
    if is_good:
        values[key] = with_it[key]
    return is_good


def as_yaml(suggestions: Sequence[Suggestion], support: int = SUPPORT, quiet: Sequence[Unseen] | None = ()) -> str:
    """A mapping of lists to append to those of the config, with the evidence as comments.

    What nobody asks for may still be wanted, so it is told and nothing more; None is where that is not known.
    """
    lines = [f"# Seen at least {support} times each. Append each list to the one that the config has."]
    if quiet is None:
        lines.append(
            "# Which hosts of the config nobody asks for is not known: there is no table `hosts`; `run` makes it."
        )
    lines += [
        f"# ingresses: {row.ingress} has {row.host}, which no request of these tables asked for" for row in quiet or ()
    ]
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
    """Hosts and addresses are what clients and brokers say."""
    return "".join(character if character.isprintable() else "?" for character in comment)
