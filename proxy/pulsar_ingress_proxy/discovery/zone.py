"""The zone of the gateway's node among the lookup properties of every ingress (PIP-368). Pure."""

from dataclasses import replace

from pulsar_ingress_proxy.routing.ingresses import Ingresses
from pulsar_ingress_proxy.routing.snapshot import Snapshot


def in_zone(snapshot: Snapshot, zone: str) -> Snapshot:
    """The snapshot with `kubernetes.zoneProperty` at all doors that do not say it otherwise themselves."""
    name = snapshot.config.kubernetes.zone_property
    if name is None:
        return snapshot
    doors = (
        replace(ingress, lookup_properties={name: zone, **ingress.lookup_properties}) for ingress in snapshot.ingresses
    )
    return replace(snapshot, ingresses=Ingresses(doors))
