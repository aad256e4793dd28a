"""`check`: what a config says, what is questionable about it, and what `run` would refuse at start.

It does not test whether an address can be bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.config import Config, locate
from pulsar_ingress_proxy.discovery.admin import Unanswered, read_token
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore
from pulsar_ingress_proxy.observability.recent import SORTS
from pulsar_ingress_proxy.routing.addresses import Entry
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, TLS_SCHEMES, ServiceUrl
from pulsar_ingress_proxy.tools.config_warnings import config_warnings
from pulsar_ingress_proxy.tools.preflight import CannotStart, prepare

PROCESS = 64 * memory.MIB
"""Memory of a sidecar without connections and without discovery."""
DISCOVERY = 64 * memory.MIB
"""Memory of the Kubernetes client, which is imported only with discovery."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result for one config; the snapshot is None if the config cannot be read."""

    config: str
    faults: Sequence[str]
    warnings: Sequence[str] = ()
    snapshot: Snapshot | None = None
    store: ObjectStore | None = None

    @property
    def is_questionable(self) -> bool:
        return bool(self.warnings) or (self.snapshot is not None and bool(self.snapshot.conflicts))

    def as_json(self) -> dict[str, Any]:
        found = self.snapshot
        return {
            "config": self.config,
            "valid": not self.faults,
            "sockets": [str(bind) for bind in found.config.bind_addresses] if found else [],
            "listeners": sorted(found.known_listeners) if found else [],
            "ingresses": [
                {"name": ingress.name, "hosts": list(ingress.hosts), "listener": ingress.listener}
                for ingress in (found.ingresses if found else ())
            ],
            "brokers": [_as_json(entry) for entry in found.book.entries] if found else [],
            "conflicts": [{"subject": one.subject, "text": one.text} for one in found.conflicts] if found else [],
            "mostMemoryBytes": most_memory(found.config) if found else {},
            "warnings": list(self.warnings),
            "faults": list(self.faults),
        }

    def as_text(self) -> str:
        return "\n".join(self.faults or self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.config}: valid"
        if self.store is not None:
            scope = self.store.scope
            yield f"seen from namespace {scope.own.namespace}, in {', '.join(sorted(scope.namespaces))}"
        if self.snapshot is not None:
            yield from _lines(self.snapshot)
        yield from (f"warning   {warning}" for warning in self.warnings)


def check(path: str, snapshot: Snapshot, store: ObjectStore | None, with_files: bool) -> Report:
    """Check a config that could be read; `with_files`: also the files that it names."""
    faults: list[str] = []
    warnings = list(config_warnings(snapshot, is_discovering=store is not None))
    if with_files:
        try:
            prepare(snapshot.config)
        except CannotStart as fault:
            faults = locate(snapshot.config, str(fault).splitlines())
        warnings += _token(snapshot.config)
    return Report(path, faults, warnings, snapshot, store)


def _token(config: Config) -> Iterator[str]:
    """`run` starts without the token, and asks brokers only once there is one."""
    if config.brokers.discover == "admin":
        try:
            read_token(config.brokers.admin_token_file)
        except Unanswered as refused:
            yield str(refused)


def _lines(snapshot: Snapshot) -> Iterator[str]:
    config = snapshot.config
    for bind in config.bind_addresses:
        yield f"socket    {bind}"
    for name in sorted(snapshot.known_listeners):
        yield f"listener  {name}{' (internal)' if name == config.internal_listener_name else ''}"
    for ingress in snapshot.ingresses:
        yield f"ingress   {ingress.name}: {', '.join(ingress.hosts) or '(no hosts)'} -> {ingress.listener}"
    for entry in snapshot.book.entries:
        yield f"broker    {entry.broker}"
        if entry.names[1:]:
            yield f"            also {', '.join(entry.names[1:])}"
        for listener, urls in entry.listeners.items():
            yield f"            {listener}: {', '.join(_sourced(entry, listener, url) for url in urls.values())}"
    for conflict in snapshot.conflicts:
        yield f"conflict  {conflict.subject}: {conflict.text}"
    parts = {what: size for what, size in most_memory(config).items() if size}
    yield f"memory    {_mebibytes(sum(parts.values()))} MiB at the most, whatever clients do"
    for what, size in parts.items():
        yield f"            {_mebibytes(size)} MiB {what}"


def _mebibytes(size: int) -> int:
    return -(-size // memory.MIB)


def _sourced(entry: Entry, listener: str, url: ServiceUrl) -> str:
    """A URL, with its source if not all addresses are the config's."""
    if all(source == "config" for source, _ in entry.sources.values()):
        return str(url)
    source, by = entry.sources[listener, url.scheme]
    return f"{url} ({source}, {by})"


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "broker": entry.broker,
        "names": list(entry.names),
        "addresses": [
            {"listener": listener, "url": str(entry.listeners[listener][scheme]), "source": source, "by": by}
            for (listener, scheme), (source, by) in entry.sources.items()
        ],
    }


def most_memory(config: Config) -> dict[str, int]:
    """The most bytes that clients can make the sidecar hold, by the config key or the part that they come from."""
    limits, sockets = config.limits, config.bind_addresses
    protocols = len({socket.scheme in BINARY_SCHEMES for socket in sockets})
    binary = sum(socket.scheme in BINARY_SCHEMES for socket in sockets)
    with_tls = any(socket.scheme in TLS_SCHEMES for socket in sockets)
    connection = memory.CONNECTION + 2 * memory.UNSENT + (memory.TLS_CONNECTION if with_tls else 0)
    caches = memory.DECISION_CACHE + binary * memory.FAST_PATH
    events = memory.EVENT_QUEUE + 3 * memory.EVENT_LINES if config.events.path is not None else 0
    return {
        "process": PROCESS + (DISCOVERY if config.kubernetes.enabled else 0),
        "limits.connections": protocols * limits.connections * connection,
        "limits.inFlight": protocols * limits.in_flight * memory.IN_FLIGHT,
        "limits.bufferBytes": limits.buffer_bytes,
        "limits.replayTotalBytes": limits.replay_total_bytes,
        "caches": caches,
        "events": events,
        "console": len(SORTS) * memory.RECENT if config.console.address is not None else 0,
    }
