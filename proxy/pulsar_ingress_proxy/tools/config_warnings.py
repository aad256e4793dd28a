"""What is questionable about a config that is valid: lines that `check` prints and `run` logs. Pure."""

from collections.abc import Iterator

from pulsar_ingress_proxy.routing.addresses import Broker, Entry
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES, ServiceUrl, is_one_socket, kind_of


def config_warnings(snapshot: Snapshot, is_discovering: bool = False) -> Iterator[str]:
    """Every warning, in the order of the file; `is_discovering`: the snapshot includes discovered objects."""
    yield from _sockets(snapshot)
    yield from _certificates(snapshot)
    yield from _listeners(snapshot)
    yield from _addresses(snapshot)
    yield from _uncovered_hosts(snapshot)
    yield from _discovery(snapshot, is_discovering)
    yield from _console(snapshot)


def _sockets(snapshot: Snapshot) -> Iterator[str]:
    if any(bind.scheme in BINARY_SCHEMES for bind in snapshot.config.bind_addresses) and _is_passed_by(snapshot):
        yield (
            f"redirects.lookup: is {snapshot.config.redirects.lookup}, and over the binary protocol clients follow a "
            "redirect straight to a broker, past this sidecar: set it to follow, unless the brokers' own bindAddresses "
            "have the listener"
        )


def _is_passed_by(snapshot: Snapshot) -> bool:
    """Whether binary clients may be redirected to a broker without a sidecar."""
    ingresses = list(snapshot.ingresses)
    is_through = bool(ingresses) and all(ingress.through_sidecar for ingress in ingresses)
    return snapshot.config.redirects.lookup in ("auto", "rewrite") and not is_through


def _certificates(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.config.brokers.tls.certificate is not None:
        yield (
            "brokers.tls.certificate: brokers that authenticate by certificate will take the sidecar's for everyone's: "
            "clients that have their own need TLS passthrough to the brokers' own bindAddresses, past this sidecar"
        )


def _listeners(snapshot: Snapshot) -> Iterator[str]:
    """Listeners that something names and no broker has. An empty book says nothing of what brokers have."""
    config, known = snapshot.config, snapshot.known_listeners
    if not known:
        return
    named: list[tuple[str, str | None]] = [(f"bindAddresses: {bind}", bind.listener) for bind in config.bind_addresses]
    for ingress in snapshot.ingresses:
        named.append((f"ingresses: '{ingress.name}'", ingress.listener))
        named += [(f"ingresses: '{ingress.name}' allows", name) for name in sorted(ingress.allowed_listeners or ())]
    named.append(("lookupListenerName", config.lookup_listener_name))
    for place, name in named:
        if name is not None and name not in known:
            yield f"{place}: no line of advertisedListeners has listener '{name}'; there are {', '.join(sorted(known))}"


def _addresses(snapshot: Snapshot) -> Iterator[str]:
    """Addresses that do not tell brokers apart."""
    said: set[tuple[str, tuple[str, ...]]] = set()
    for entry in snapshot.book.entries:
        for broker in samples(entry):
            describing = snapshot.book.describing(broker.name)
            if describing is not None and describing.line != entry.line:
                yield f"{entry.line}: broker {broker.name} is described by an earlier line already"
                break
            for listener, urls in broker.listeners.items():
                for url in urls.values():
                    address = url.authority, kind_of(url.scheme)
                    if snapshot.book.is_shared(broker, url) and address not in said:
                        said.add(address)
                        yield _ambiguous(entry.line, listener, url)


def _ambiguous(line: str, listener: str, url: ServiceUrl) -> str:
    effect = "; redirects to these brokers are followed, never rewritten" if url.scheme in WEB_SCHEMES else ""
    return (
        f"{line}: {url.authority} (listener '{listener}') means more than one broker, "
        f"so it means none{effect}: give each broker an address of its own"
    )


def _uncovered_hosts(snapshot: Snapshot) -> Iterator[str]:
    """Hosts that rewritten redirects lead clients to, and that match no ingress."""
    config = snapshot.config
    by_socket = {bind.listener for bind in config.bind_addresses}
    listeners = {ingress.listener for ingress in snapshot.ingresses} | {config.lookup_listener_name}
    said: set[str] = set()
    for entry in snapshot.book.entries:
        for broker in samples(entry):
            for listener in sorted(broker.listeners.keys() & listeners - by_socket - {config.internal_listener_name}):
                url = broker.web_url(listener, "https")
                if url is None or url.host in said or _is_direct(entry, listener, url):
                    continue
                said.add(url.host)
                ingress = snapshot.ingresses.by_host(url.host) or snapshot.ingresses.everywhere
                if ingress is None:
                    yield f"ingresses: no ingress has {url.host}, the address of {broker.name} on '{listener}'"
                elif ingress.listener != listener:
                    yield f"ingresses: '{ingress.name}' ({ingress.listener}) has {url.host}, which is on '{listener}'"


def _is_direct(entry: Entry, listener: str, url: ServiceUrl) -> bool:
    """Whether the address is that of a broker's own Service, which bypasses every ingress."""
    _, by = entry.sources.get((listener, url.scheme), ("", ""))
    return by.startswith("service/")


def _discovery(snapshot: Snapshot, is_discovering: bool) -> Iterator[str]:
    keys = snapshot.config.kubernetes
    if (keys.enabled or is_discovering) and not keys.gateways:
        yield (
            "kubernetes.gateways: is empty, so every annotated object counts, those of other gateways too: "
            "name the gateways that this sidecar stands beside"
        )
    if is_discovering and not keys.enabled:
        yield "kubernetes.enabled: is false, so `run` would find nothing of this"


def _console(snapshot: Snapshot) -> Iterator[str]:
    address = snapshot.config.console.address
    own = parse_authority(address or "")
    if own is not None and own.port is not None:
        for key, host, port in _bound_first(snapshot):
            if is_one_socket(own.host, own.port, host, port):
                yield f"console.address: {address} and {key} are one socket: there is no console until each has its own"
    if address is not None and not address.startswith(("127.", "[::1]:", "localhost:")):
        yield (
            f"console.address: {address}: anyone who can connect there sees topics, hosts and brokers' addresses: "
            "bind 127.0.0.1, which kubectl port-forward reaches"
        )


def _bound_first(snapshot: Snapshot) -> Iterator[tuple[str, str, int]]:
    for bind in snapshot.config.bind_addresses:
        yield f"{bind} of bindAddresses", bind.host, bind.port
    metrics = parse_authority(snapshot.config.metrics.address)
    if metrics is not None and metrics.port is not None:
        yield f"metrics.address {metrics}", metrics.host, metrics.port


def samples(entry: Entry) -> Iterator[Broker]:
    """A line's broker, or the first two of those that a template stands for."""
    for value in ("0", "1") if entry.is_template else ("",):
        if broker := entry.fill(dict.fromkeys(entry.variables, value)):
            yield broker
