"""A gateway for the sidecar to stand beside: a Deployment with a real Envoy, whose config is written by hand.

It is not Istio's, Envoy Gateway's or Traefik's; what these make of the chart's fragment is the same change to such a
Deployment.
"""

import json

from apiclient import Object

PORT = 8080
ADMIN = 9901


def objects(namespace: str, service_account: str, labels: dict[str, str]) -> list[Object]:
    """The gateway as it is before there is a sidecar: ServiceAccount, config, Service and Deployment."""
    metadata = {"name": "gateway", "namespace": namespace}
    account = {"name": service_account, "namespace": namespace}
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 1337,
        "runAsGroup": 1337,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "istio-proxy",
        "image": "envoy",
        "command": ["envoy"],
        "args": ["-c", "/etc/envoy/envoy.json", "--concurrency", "1", "--disable-hot-restart", "-l", "warning"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": ADMIN}},
        "securityContext": security,
        "volumeMounts": [{"name": "envoy", "mountPath": "/etc/envoy"}],
    }
    spec = {
        "serviceAccountName": service_account,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "envoy", "configMap": {"name": "gateway"}}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"envoy.json": json.dumps(_config())}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": PORT}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]


def _config() -> Object:
    """Everything goes to the sidecar on loopback."""
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{types}.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "sidecar"}}],
                }
            ]
        },
        "http_filters": [router],
    }
    http = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    sidecar = {"endpoint": {"address": _address("127.0.0.1", 18080)}}
    return {
        "admin": {"address": _address("0.0.0.0", ADMIN)},
        "static_resources": {
            "listeners": [{"address": _address("0.0.0.0", PORT), "filter_chains": [{"filters": [http]}]}],
            "clusters": [
                {
                    "name": "sidecar",
                    "load_assignment": {"cluster_name": "sidecar", "endpoints": [{"lb_endpoints": [sidecar]}]},
                }
            ],
        },
    }


def _address(host: str, port: int) -> Object:
    return {"socket_address": {"address": host, "port_value": port}}
