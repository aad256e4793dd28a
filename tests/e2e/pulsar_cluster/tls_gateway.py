"""A real Envoy at the gateway's address that ends TLS for both protocols, before the sidecar and before the brokers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import yaml
from brokers import HOST, HOST_TLS_PORT, Broker
from cluster import Cluster
from networks import GATEWAY
from rivals import program

SIDECAR_WEB_PORT, SIDECAR_BINARY_PORT = 18080, 16650
BINARY_PORT, BROKERS_PORT = 6641, 6681
WEB, BINARY = f"https://{HOST}:{HOST_TLS_PORT}", f"pulsar+ssl://{HOST}:{BINARY_PORT}"
EVERY_HOST = (HOST, f"*.{HOST}")

_EXTENSIONS = "type.googleapis.com/envoy.extensions"
_numbers = count()


@contextmanager
def envoy(
    cluster: Cluster, certificate: Sequence[str] = EVERY_HOST, routed: Sequence[str] = EVERY_HOST
) -> Iterator[None]:
    """The web hosts and one binary port lead to the sidecar; another port leads to each broker by its server name."""
    number = next(_numbers)
    name = f"envoy-{number}"
    for pair, hosts in ((f"web-{number}", certificate), (f"binary-{number}", EVERY_HOST)):
        cluster.authority.write(cluster.folder, pair, *hosts)
    web, binary = (_tls(cluster.folder, f"{kind}-{number}") for kind in ("web", "binary"))
    to_brokers = [
        {
            "filter_chain_match": {"server_names": [broker.external_name]},
            **_passing(f"broker-{broker.number}", binary),
        }
        for broker in cluster.brokers
    ]
    config = {
        "static_resources": {
            "listeners": [
                _listener("web", HOST_TLS_PORT, [_routing(routed, web)]),
                _listener("binary", BINARY_PORT, [_passing("sidecar-binary", binary)]),
                _listener("brokers", BROKERS_PORT, to_brokers, by_server_name=True),
            ],
            "clusters": [
                _cluster("sidecar-web", "127.0.0.1", SIDECAR_WEB_PORT),
                _cluster("sidecar-binary", "127.0.0.1", SIDECAR_BINARY_PORT),
                *(_cluster(f"broker-{broker.number}", broker.address, 6650) for broker in cluster.brokers),
            ],
        }
    }
    path = cluster.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = (program("envoy"), "--concurrency", "1", "--disable-hot-restart", "-l", "info", "-c", path)
    with cluster.started(name, *command) as child:
        child.says("starting main dispatch loop")
        yield


def book_line(broker: Broker, listener: str = "external") -> dict[str, str]:
    """A broker's addresses: with TLS at the gateway, and those that it advertises itself."""
    urls = (
        f"internal:{broker.web}", f"internal:{broker.service}", f"{listener}:{broker.external_service}",
        f"{listener}:https://{broker.external_name}:{HOST_TLS_PORT}",
        f"{listener}:pulsar+ssl://{broker.external_name}:{BROKERS_PORT}",
    )  # fmt: skip
    return {"broker": broker.name, "listeners": ", ".join(urls)}


def _tls(folder: Path, pair: str) -> dict[str, object]:
    files = {
        "certificate_chain": {"filename": str(folder / f"{pair}.crt")},
        "private_key": {"filename": str(folder / f"{pair}.key")},
    }
    kind = f"{_EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext"
    context = {"@type": kind, "common_tls_context": {"tls_certificates": [files]}}
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def _listener(name: str, port: int, chains: list[dict[str, object]], by_server_name: bool = False) -> dict[str, object]:
    inspector = {"@type": f"{_EXTENSIONS}.filters.listener.tls_inspector.v3.TlsInspector"}
    reading = {"listener_filters": [{"name": "envoy.filters.listener.tls_inspector", "typed_config": inspector}]}
    address = {"socket_address": {"address": GATEWAY, "port_value": port}}
    return {"name": name, "address": address, "filter_chains": chains, **(reading if by_server_name else {})}


def _passing(cluster: str, tls: dict[str, object]) -> dict[str, object]:
    kind = f"{_EXTENSIONS}.filters.network.tcp_proxy.v3.TcpProxy"
    proxy = {"@type": kind, "stat_prefix": cluster, "cluster": cluster}
    return {"transport_socket": tls, "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}


def _routing(hosts: Sequence[str], tls: dict[str, object]) -> dict[str, object]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "sidecar-web", "timeout": "0s"}}
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "use_remote_address": True,
        "route_config": {
            "ignore_port_in_host_matching": True,
            "virtual_hosts": [{"name": "pulsar", "domains": list(hosts), "routes": [route]}],
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_EXTENSIONS}.filters.http.router.v3.Router"},
            }
        ],
    }
    name = "envoy.filters.network.http_connection_manager"
    return {"transport_socket": tls, "filters": [{"name": name, "typed_config": manager}]}


def _cluster(name: str, address: str, port: int) -> dict[str, object]:
    endpoint = {"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
