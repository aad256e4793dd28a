"""Merges the results of all objects into ingresses without conflicts, and brokers with their addresses. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER
from pulsar_ingress_proxy.discovery.reconciler.attachment import ClusterView
from pulsar_ingress_proxy.discovery.reconciler.brokers import BrokerId, BrokerPod
from pulsar_ingress_proxy.discovery.reconciler.derivation import Derived
from pulsar_ingress_proxy.discovery.reconciler.ingresses import resolve_hosts
from pulsar_ingress_proxy.discovery.reconciler.objects import Key, ServicePort
from pulsar_ingress_proxy.discovery.reconciler.ports import schemes_of
from pulsar_ingress_proxy.discovery.reconciler.routes import Address, known_ports
from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered
from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.precedence import Claim, in_order, resolve_claims
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl


def merge_objects(
    config: Config, derived: Mapping[Key, Derived], pods: Mapping[BrokerId, BrokerPod], around: ClusterView
) -> tuple[Discovered, tuple[Conflict, ...]]:
    """The merged result in a stable order, and the conflicts for routes to brokers that have no listener."""
    scope = around.scope
    ingresses, disputes = resolve_hosts({key: one.ingresses for key, one in derived.items()}, scope)
    conflicts = [*disputes, *(conflict for one in derived.values() for conflict in one.conflicts)]
    claims: dict[BrokerId, list[Claim]] = {id_: list(_internal(config, pods[id_], around)) for id_ in sorted(pods)}
    listener_of = _ListenerOf(config, (ingress for key, ingress in ingresses if scope.trusts(key.namespace)))
    unmapped = []
    for one in derived.values():
        for address in one.addresses:
            listener = address.listener or listener_of.host(address.url.host)
            if listener is None:
                unmapped.append(_no_listener(address, pods[address.broker]))
            else:
                claim = Claim(listener, address.url, address.source, str(address.by), address.weak)
                claims[address.broker].append(claim)
    brokers = []
    for id_, claimed in claims.items():
        broker, disagreements = resolve_claims(pods[id_].names, claimed)
        brokers.append(broker)
        conflicts += disagreements
    if not brokers:
        conflicts.append(_no_brokers(config, around))
    found = Discovered(
        tuple(ingress for _, ingress in ingresses), tuple(brokers), conflicts=in_order([*conflicts, *unmapped])
    )
    return found, in_order(unmapped)


class _ListenerOf:
    """The listener of a host by its ingress; ingresses of the config come first."""

    def __init__(self, config: Config, found: Iterable[Ingress]) -> None:
        written = (Ingress(one.name, tuple(one.hosts), one.listener) for one in config.ingresses)
        self._ingresses = (Ingresses(written), Ingresses(found))

    def host(self, host: str) -> str | None:
        ingresses = (ingresses.by_host(host) or ingresses.everywhere for ingresses in self._ingresses)
        return next((ingress.listener for ingress in ingresses if ingress is not None), None)


def _internal(config: Config, member: BrokerPod, around: ClusterView) -> Iterator[Claim]:
    """A broker's internal addresses: the ports behind the config's URLs, else the ports of its pod."""
    known = known_ports(member, around) or {
        number: scheme
        for name, number in member.ports
        for scheme in schemes_of(ServicePort(number, number, name), (), {})
    }
    for number, scheme in known.items():
        url = ServiceUrl(scheme, member.names[0], str(number))
        yield Claim(config.internal_listener_name, url, "derived", str(member.by))


def _no_listener(address: Address, member: BrokerPod) -> Conflict:
    text = f"leads {address.url} to {member.names[0]}, but has no listener: annotate it with {LISTENER}"
    return Conflict(str(address.by), text)


def _no_brokers(config: Config, around: ClusterView) -> Conflict:
    """Why no broker was found."""
    scope = around.scope
    if scope.broker_selector is not None:
        where = ", ".join(sorted(scope.broker_namespaces))
        return Conflict("brokers", f"no pod in {where} has the labels of kubernetes.brokerSelector")
    if not scope.pools:
        text = "no URL of the config names a Service of this cluster"
        return Conflict("brokers", f"{text}: say which pods are brokers by kubernetes.brokerSelector")
    service = scope.pools[0].service
    if service.namespace not in scope.namespaces:
        text = f"namespace {service.namespace} of {service} is not watched: add it to kubernetes.namespaces"
        return Conflict("brokers", text)
    is_there = around.service(service) is not None
    return Conflict("brokers", f"{service} {'leads to no pod' if is_there else 'is not there'}: no broker is found")
