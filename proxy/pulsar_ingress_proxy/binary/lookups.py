"""Lookups on their way to a broker: the decision, the listener's name and lookup properties. Pure."""

from pulsar_ingress_proxy.binary.commands import clear_originals
from pulsar_ingress_proxy.binary.commands_pb2 import KeyValue, Lookup
from pulsar_ingress_proxy.binary.endpoints import LOOKUP, ClientEndpoint
from pulsar_ingress_proxy.binary.endpoints import decide as decide_about
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot


def decide(lookup: Lookup, endpoint: ClientEndpoint, decisions: DecisionCache) -> DecidedRequest:
    """Select the listener by the name that the client sent, if any, and by its endpoint, or refuse."""
    sent = lookup.advertised_listener_name
    name = sent.decode("utf-8", "replace") if sent.strip() else None  # Go and C++ send an empty name if unset
    return decide_about(endpoint, decisions, LOOKUP, name)


def prepare(lookup: Lookup, selection: Selection, snapshot: Snapshot) -> bool:
    """Change a client's lookup into the one that the broker gets. Returns whether anything changed."""
    changed = not snapshot.config.brokers.trust_original_principal and clear_originals(lookup)
    if selection.shadow:
        return changed
    listener = None if selection.listener is None else selection.listener.encode()
    if listener is None:
        if lookup.HasField("advertised_listener_name"):
            lookup.ClearField("advertised_listener_name")
            changed = True
    elif lookup.advertised_listener_name != listener:
        lookup.advertised_listener_name = listener
        changed = True
    if selection.ingress is not None and selection.ingress.lookup_properties:
        changed |= _add_properties(lookup, selection.ingress)
    return changed


def _add_properties(lookup: Lookup, ingress: Ingress) -> bool:
    """Add the ingress's properties (PIP-368), each key once.

    Brokers take the last of two values (ServerCnx fills a HashMap), and a proxy in between might take the first. So a
    key never appears twice: the client's value wins, or ours with overrideLookupProperties.
    """
    ours = {key.encode(): value.encode() for key, value in ingress.lookup_properties.items()}
    theirs = list(lookup.properties)
    if ingress.override_lookup_properties:
        wanted = [each for each in theirs if each.key not in ours]
        wanted += [KeyValue(key=key, value=value) for key, value in ours.items()]
    else:
        named = {each.key for each in theirs}
        wanted = [KeyValue(key=key, value=value) for key, value in ours.items() if key not in named] + theirs
    if wanted == theirs:
        return False
    del lookup.properties[:]
    lookup.properties.extend(wanted)
    return True


def about(topic: bytes) -> Target:
    """A lookup's tenant, namespace and topic, parsed as brokers do (TopicName).

    Names of four parts have the cluster between tenant and namespace; only that of a segment has its range at the end.
    """
    domain, mark, rest = topic.decode("utf-8", "replace").partition("://")
    if not mark:
        domain, rest = "persistent", domain
        rest = rest if rest.count("/") >= 2 else f"public/default/{rest}"
    parts = rest.split("/", 3)
    if len(parts) < 3:
        return Target("lookup", "lookup")
    namespace = parts[1] if domain == "segment" else parts[-2]
    return Target("lookup", "lookup", parts[0], namespace, f"{domain}://{rest}")
