"""The sidecar with binary sockets at the gateway's address, beside the routes that lead to brokers past it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from brokers import HOST, Broker
from children import Child
from cluster import Cluster
from gateways import sidecar
from networks import GATEWAY

PLAIN_PORT, TLS_PORT = 6640, 6641
PLAIN, TLS = f"pulsar://{HOST}:{PLAIN_PORT}", f"pulsar+ssl://{HOST}:{TLS_PORT}"
PUBLIC: Mapping[str, object] = {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}


@contextmanager
def plain_socket(cluster: Cluster, **keys: object) -> Iterator[Child]:
    """A socket for `external`; redirects are followed, as the routes to brokers lead past the sidecar."""
    settings = {
        "bindAddresses": [f"external:pulsar://{GATEWAY}:{PLAIN_PORT}"],
        "brokers": {"brokerServiceUrl": [broker.service for broker in cluster.brokers]},
        "redirects": {"lookup": "follow"},
    }
    with sidecar(cluster, **settings | keys) as child:
        yield child


@contextmanager
def through_socket(cluster: Cluster, **keys: object) -> Iterator[Child]:
    """A socket that messages go through too: no broker needs an address outside."""
    book = [
        {"broker": broker.name, "listeners": f"internal:{broker.web}, internal:{broker.service}"}
        for broker in cluster.brokers
    ]
    ingress = {**PUBLIC, "listener": "internal", "throughSidecar": True}
    bind = f"pulsar://{GATEWAY}:{PLAIN_PORT}"
    settings = {"bindAddresses": [f"internal:{bind}"], "ingresses": [ingress], "advertisedListeners": book}
    with plain_socket(cluster, **settings | keys) as child:
        yield child


@contextmanager
def tls_socket(cluster: Cluster, book: list[dict[str, str]], **keys: object) -> Iterator[Path]:
    """A socket for many hosts, with TLS on both sides; the file of the CA that clients trust."""
    names = [broker.external_name for broker in cluster.brokers]
    cluster.authority.write(cluster.folder, "ingress", HOST, *names)
    folder = cluster.folder
    with plain_socket(
        cluster,
        bindAddresses=[f"pulsar+ssl://{GATEWAY}:{TLS_PORT}"],
        tls={"certificate": str(folder / "ingress.crt"), "key": str(folder / "ingress.key")},
        brokers={
            "brokerServiceUrl": [broker.service_tls for broker in cluster.brokers],
            "tls": {"ca": str(folder / "ca.crt")},
        },
        advertisedListeners=book,
        **keys,
    ):
        yield folder / "ca.crt"


def line(broker: Broker, *urls: str) -> dict[str, str]:
    inside = f"internal:{broker.web}, internal:{broker.service}, internal:{broker.service_tls}"
    return {"broker": broker.name, "listeners": ", ".join((inside, *urls))}
