"""Pictures to decide by: snapshots from the YAML that an operator would write, and requests from a URL."""

from typing import Any

import yaml

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.paths import classify
from pulsar_ingress_proxy.routing.requests import Request, listener_names
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import parse_authority, parse_location

INSIDE = "pulsar-broker.pulsar.svc.cluster.local"

CLUSTER = f"""
brokers: {{webServiceUrl: [http://pulsar-broker:8080]}}
ingresses:
  - {{name: public, hosts: [pulsar.example.com, "*.pulsar.example.com"], listener: external}}
  - {{name: partners, hosts: [pulsar.partner.example], listener: partner, allowedListeners: [partner, external]}}
advertisedListeners:
  - broker: pulsar-broker-{{n}}.{INSIDE}
    listeners: >-
      internal:pulsar://pulsar-broker-{{n}}.{INSIDE}:6650,
      internal:http://pulsar-broker-{{n}}.{INSIDE}:8080,
      external:https://broker-{{n}}.pulsar.example.com,
      external:pulsar+ssl://broker-{{n}}.pulsar.example.com:{{n+6651}},
      partner:http://broker-{{n}}.partner.example:8080,
      partner:https://broker-{{n}}.partner.example:8443,
      partner:pulsar://broker-{{n}}.partner.example:6650,
      partner:pulsar+ssl://broker-{{n}}.partner.example:6651
"""
"""Brokers of any number behind two ingresses: `external` has TLS alone, `partner` all four schemes."""

LOOKUP = "/lookup/v2/topic/persistent/acme/orders/paid"
STATS = "/admin/v2/persistent/acme/orders/paid/stats"


def picture(changes: str = "", base: str = CLUSTER) -> Snapshot:
    """The cluster above, with these top-level keys instead of its own."""
    values: dict[str, Any] = yaml.safe_load(base)
    values.update(yaml.safe_load(changes) or {})
    return build(load_mapping(values))


def asks(
    url: str,
    method: str = "GET",
    header: str | tuple[str, ...] = (),
    forwarded_host: str | None = None,
    bind: str | None = None,
) -> Request:
    """What the rim makes of a request: its URL as the client has it, and the X-Pulsar-ListenerName headers it sent."""
    location = parse_location(url)
    assert location is not None, url
    path, _, query = location.target.partition("?")
    return Request(
        target=classify(method, path),
        host=location.authority,
        forwarded_host=None if forwarded_host is None else parse_authority(forwarded_host),
        scheme=location.scheme,
        bind_listener=bind,
        query_names=listener_names(query),
        header_names=(header,) if isinstance(header, str) else header,
    )
