"""Paths, listeners, redirects and answers that tests of lookups and redirects share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from sidecars import EXTERNAL, PARTNER, PUBLIC, Keys, book, external, named

from pulsar_ingress_proxy.demo.cluster import Answer, Listener, SimulatedCluster, Step, says
from pulsar_ingress_proxy.demo.metadata import Family

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
ADMIN = "/admin/v2/persistent/public/default/orders"
STATS = f"{ADMIN}/stats"
PRODUCE = "/topics/persistent/public/default/orders"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
both_families = pytest.mark.parametrize("family", FAMILIES)
both_kinds = pytest.mark.parametrize(("kind", "target"), [("lookup", LOOKUP), ("admin", STATS)])

LISTENERS: Mapping[str, Listener] = {
    "external": Listener(broker_service_url_tls="pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}"),
    "partner": Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651"),
}
"""What brokers have beside `internal` in tests of lookups: a TLS-only listener, and one with both."""

FOLLOW = {"lookup": "follow", "admin": "follow"}
PARTNERS = {"name": "partners", "hosts": ["partner.example"], "listener": "partner"}
ELSEWHERE = "elsewhere.example.org"

Fields = list[tuple[str, str]]


def inside(n: int) -> str:
    return f"http://{named(n)}:8080"


def load(cluster: SimulatedCluster, *brokers: int) -> None:
    """Give these brokers bundles, so that a new one goes to another."""
    for n, bounds in zip(brokers, ("0x00000000_0x40000000", "0x40000000_0x80000000"), strict=False):
        cluster.own(f"t/n/{bounds}", n)


def asked(cluster: SimulatedCluster) -> list[int]:
    """How many requests each broker got."""
    return [len(broker.requests) for broker in cluster.brokers]


def pointing(*locations: str, status: int = 307) -> Iterable[Step]:
    return [says(Answer(status, location=location)) for location in locations]


def in_full(n: int, broker_id: bool = False) -> dict[str, str]:
    """A lookup's answer on the external listener, which has TLS URLs only."""
    binary, web = f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", external(n)
    answer = {"brokerUrl": binary, "brokerUrlTls": binary, "nativeUrl": binary, "httpUrl": web, "httpUrlTls": web}
    return {**answer, "brokerUrlSsl": "", **({"brokerId": f"{named(n)}:8080"} if broker_id else {})}


def in_partner(n: int) -> dict[str, str]:
    at = f"b{n}.partner.example"
    return {
        "brokerUrl": f"pulsar://{at}:6650",
        "brokerUrlTls": f"pulsar+ssl://{at}:6651",
        "nativeUrl": f"pulsar://{at}:6650",
        "httpUrl": f"http://{at}:8080",
        "httpUrlTls": f"https://{at}:8443",
        "brokerUrlSsl": "",
    }


def as_sent(n: int, listener: str | None = None) -> dict[str, str]:
    """What a broker of 4.x says by itself: the listener's binary URLs, and its internal web URL."""
    web = {"httpUrl": f"http://{named(n)}:8080", "brokerUrlSsl": ""}
    if listener == "external":
        return {"brokerUrlTls": f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", **web}
    return {"brokerUrl": f"pulsar://{named(n)}:6650", "nativeUrl": f"pulsar://{named(n)}:6650", **web}


def both(cluster: SimulatedCluster) -> Keys:
    """The keys of a sidecar with two ingresses, for two listeners."""
    return {"advertisedListeners": book(cluster, *EXTERNAL, *PARTNER), "ingresses": [PUBLIC, PARTNERS]}
