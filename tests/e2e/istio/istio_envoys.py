"""A plain Envoy with what istiod pushes: the same resources, as a static configuration.

All that differs from Istio's own Envoy is in this file: filters that it lacks, and where it has the rest from. Routes
and endpoints come with the configuration, not by ADS. The ingress's certificate does too, as istiod makes it of the
Secret; those of the workload, which Istio's agent would hand out, are the tests' own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiclient import Object
from istio_certificates import Workload
from istio_program import Pushed

# Filters that only Istio's build of Envoy has, by name. None of them decides where a request goes or who may come.
UNKNOWN = {
    "istio.stats": "counts requests and connections",
    "istio.metadata_exchange": "tells peers about each other, for what istio.stats counts",
    "istio.alpn": "adds istio-http/1.1 to what a client offers; STRICT takes connections with and without",
}


ADMIN = ("127.0.0.1", 15000)  # as Istio has it


def bootstrap(
    pushed: Pushed, workload: Workload, names: Mapping[str, Sequence[str]], shown: Sequence[str] = ()
) -> Object:
    """All that the Envoy of a pod is told, at once: what it would ask istiod and Istio's agent for is in its place.

    So are the addresses that DNS has for names. Statistics are shown if their names match one of these expressions.
    """
    routes = {each["name"]: each for each in pushed["routes"]}
    endpoints = {each["clusterName"]: each for each in pushed["endpoints"]}
    static = {
        "listeners": [_static(each, routes) for each in pushed["listeners"]],
        "clusters": [
            _static(_resolved(_with_endpoints(each, endpoints), names), routes) for each in pushed["clusters"]
        ],
        "secrets": [*pushed["secrets"], *_secrets(workload)],
    }
    return {
        "node": {"id": "envoy", "cluster": "envoy"},
        "admin": {"address": _address(*ADMIN)},
        "statsConfig": _statistics(shown),
        "staticResources": static,
    }


def taking_the_port(pushed: Pushed, address: str, port: int, application: tuple[str, int]) -> Pushed:
    """The inbound side of a sidecar, without the iptables of its pod.

    There, what comes for the application's port is led to port 15006, and Envoy connects to where it was meant for.
    Here Envoy has that port itself, and is told where the application is.
    """
    (inbound,) = (each for each in pushed["listeners"] if each["name"] == "virtualInbound")
    taken = inbound | {
        "address": _address(address, port),
        "listenerFilters": [
            each for each in inbound["listenerFilters"] if each["name"] != "envoy.filters.listener.original_dst"
        ],
    }
    name = f"inbound|{port}||"
    endpoint = {"endpoint": {"address": _address(*application)}}
    behind = {
        "name": name,
        "type": "STATIC",
        "connectTimeout": "10s",
        "loadAssignment": {"clusterName": name, "endpoints": [{"lbEndpoints": [endpoint]}]},
    }
    clusters = [behind if each["name"] == name else each for each in pushed["clusters"]]
    assert behind in clusters
    return pushed | {"listeners": [taken], "clusters": clusters}


def _with_endpoints(cluster: Object, endpoints: dict[str, Object]) -> Object:
    if cluster.get("type") != "EDS":
        return cluster
    left = {key: value for key, value in cluster.items() if key not in ("type", "edsClusterConfig")}
    return left | {"type": "STATIC", "loadAssignment": endpoints[cluster["name"]]}


def _resolved(cluster: Object, names: Mapping[str, Sequence[str]]) -> Object:
    """With an endpoint for each address of a name, which is what Envoy makes of STRICT_DNS."""
    if cluster.get("type") != "STRICT_DNS":
        return cluster
    localities = [
        each | {"lbEndpoints": [one for endpoint in each["lbEndpoints"] for one in _each_address(endpoint, names)]}
        for each in cluster["loadAssignment"]["endpoints"]
    ]
    return cluster | {"loadAssignment": cluster["loadAssignment"] | {"endpoints": localities}}


def _each_address(endpoint: Object, names: Mapping[str, Sequence[str]]) -> list[Object]:
    place = endpoint["endpoint"]["address"]["socketAddress"]
    return [
        endpoint | {"endpoint": endpoint["endpoint"] | {"address": _address(address, place["portValue"])}}
        for address in names.get(place["address"], [place["address"]])
    ]


def _statistics(shown: Sequence[str]) -> Object:
    """As in tools/packaging/common/envoy_bootstrap.json: what proxyStatsMatcher names, with the cluster as a label."""
    patterns: list[Object] = [{"safeRegex": {"regex": each}} for each in shown]
    return {
        "statsTags": [{"tagName": "cluster_name", "regex": r"^cluster(\.(.+);)"}],
        "useAllDefaultTags": False,
        "statsMatcher": {"inclusionList": {"patterns": patterns}} if patterns else {"rejectAll": True},
    }


def _static(value: Any, routes: dict[str, Object]) -> Any:
    """The same, with routes and secrets from here and without what a plain Envoy does not know."""
    if isinstance(value, list):
        return [_static(each, routes) for each in value if not (isinstance(each, dict) and each.get("name") in UNKNOWN)]
    if not isinstance(value, dict):
        return value
    if "rds" in value:
        left = {key: each for key, each in value.items() if key != "rds"}
        return _static(left | {"routeConfig": routes[value["rds"]["routeConfigName"]]}, routes)
    if "sdsConfig" in value:
        return {"name": value["name"]}
    return {key: _static(each, routes) for key, each in value.items()}


def _secrets(workload: Workload) -> list[Object]:
    """As Istio's agent calls them."""
    pair = {"certificateChain": {"inlineString": workload.chain}, "privateKey": {"inlineString": workload.key}}
    return [
        {"name": "default", "tlsCertificate": pair},
        {"name": "ROOTCA", "validationContext": {"trustedCa": {"inlineString": workload.root}}},
    ]


def _address(address: str, port: int) -> Object:
    return {"socketAddress": {"address": address, "portValue": port}}
