"""Gateway -> sidecar -> brokers: a real Envoy that ends TLS, the sidecar as a process, simulated brokers."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import trustme
import yaml
from aiohttp.abc import AbstractResolver, ResolveResult
from processes import BIN, Process, free_port, started
from simulated.cluster import SimulatedCluster

HOST = "pulsar.example.com"


class GatewayNames(AbstractResolver):
    """The DNS outside: the names of the ingress lead to the gateway, and no others exist."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        if host != HOST and not host.endswith("." + HOST):
            raise OSError(f"{host} does not resolve outside")
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=2, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@dataclass
class GatewayStack:
    """All that stands behind one gateway, and a client in front of it."""

    cluster: SimulatedCluster
    sidecar: Process
    envoy: Process
    client: aiohttp.ClientSession
    url: str
    port: int
    h2_url: str
    config: Path
    ca: Path
    metrics: str


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[GatewayStack]:
    authority = trustme.CA()
    pair = authority.issue_cert(HOST, f"*.{HOST}", "localhost")
    pair.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "gateway.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    port, sidecar_port, metrics_port = free_port(), free_port(), free_port()
    async with SimulatedCluster(brokers=3) as cluster:
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump(sidecar_config(cluster, port, sidecar_port, metrics_port)))
        envoy_config = tmp_path / "envoy.yaml"
        envoy_config.write_text(yaml.safe_dump(gateway_config(tmp_path / "gateway.pem", port, sidecar_port)))
        async with (
            started(BIN / "pulsar-ingress-proxy", "run", "--config", config, says="serving") as sidecar,
            started(
                BIN / "envoy", "-c", envoy_config, "--concurrency", "1", "--base-id-path", tmp_path / "id",
                "--use-dynamic-base-id", "-l", "info", says="starting main dispatch loop",
            ) as envoy,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=GatewayNames(), ssl=trust)) as client,
        ):  # fmt: skip
            yield GatewayStack(
                cluster,
                sidecar,
                envoy,
                client,
                f"https://{HOST}:{port}",
                port,
                f"https://h2.{HOST}:{port}",
                config,
                tmp_path / "ca.pem",
                f"http://127.0.0.1:{metrics_port}/metrics",
            )


def sidecar_config(cluster: SimulatedCluster, port: int, sidecar_port: int, metrics_port: int) -> dict[str, object]:
    """Twenty lines, as an operator would write them."""
    return {
        "bindAddresses": [f"http://127.0.0.1:{sidecar_port}"],
        "brokers": {"webServiceUrl": [broker.web for broker in cluster.brokers]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": broker.name,
                "listeners": f"internal:{broker.web}, external:https://broker-{number}.{HOST}:{port}, "
                f"external:pulsar+ssl://broker-{number}.{HOST}:{6651 + number}",
            }
            for number, broker in enumerate(cluster.brokers)
        ],
        "metrics": {"address": f"127.0.0.1:{metrics_port}"},
    }


def gateway_config(pem: Path, port: int, sidecar_port: int) -> dict[str, object]:
    """An Envoy that ends TLS and sends everything to the sidecar; one host by HTTP/2, which is the wrong way."""
    extensions = "type.googleapis.com/envoy.extensions"
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": sidecar_port}}}}
    protocol = f"{extensions}.upstreams.http.v3.HttpProtocolOptions"

    def cluster(name: str, options: dict[str, object]) -> dict[str, object]:
        return {
            "name": name,
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": protocol,
                    "explicit_http_config": options,
                }
            },
        }

    manager = {
        "@type": f"{extensions}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "use_remote_address": True,
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "h2",
                    "domains": [f"h2.{HOST}:{port}"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "by-http2"}}],
                },
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "sidecar", "timeout": "0s"}}],
                },
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{extensions}.filters.http.router.v3.Router"},
            }
        ],
    }
    tls = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{extensions}.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_certificates": [
                    {"certificate_chain": {"filename": str(pem)}, "private_key": {"filename": str(pem)}}
                ]
            },
        },
    }
    chain = {
        "transport_socket": tls,
        "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
    }
    listener = {
        "name": "ingress",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [chain],
    }
    clusters = [
        cluster("sidecar", {"http_protocol_options": {}}),
        cluster("by-http2", {"http2_protocol_options": {}}),
    ]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}
