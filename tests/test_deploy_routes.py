"""The routes in deploy/: they lead to the sidecar, and where it is not there to refuse they let no more through."""

import re
from collections.abc import Iterator

import pytest
from deployed import NEEDED, config, documents, one, patched_pod

from pulsar_ingress_proxy.routing.paths import classify

TOPIC = "persistent/public/default/a%2Fb"
PATHS = [
    ("GET", f"/lookup/v2/topic/{TOPIC}"),
    ("GET", f"/admin/v2/{TOPIC}/partitions"),
    ("GET", f"/admin/v2/non-{TOPIC}/partitions"),
    ("GET", "/admin/v2/namespaces/public/default/topics"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema/3"),
    ("PUT", f"/admin/v2/{TOPIC}/partitions"),
    ("POST", "/admin/v2/schemas/public/default/orders/schema"),
    ("DELETE", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", f"/admin/v2/{TOPIC}/stats"),
    ("GET", "/admin/v2/clusters"),
    ("GET", "/admin/v2/namespaces/public"),
    ("GET", "/admin/v2/namespaces/public/default/more/topics"),
    ("DELETE", f"/admin/v2/{TOPIC}"),
    ("GET", "/admin/v3/functions/public/default"),
    ("GET", "/topics/persistent/public/default/orders"),
    ("GET", "/ws/v2/producer/persistent/public/default/orders"),
    ("GET", "/metrics/"),
    ("GET", "/lookupx"),
    ("GET", "/"),
]


def istio_matches(path: str) -> Iterator[tuple[str | None, str]]:
    """Method and pattern of every match of a route."""
    for rule in one(path, "VirtualService")["spec"]["http"]:
        for match in rule["match"]:
            uri = match["uri"]
            yield match.get("method", {}).get("exact"), uri.get("regex") or re.escape(uri["prefix"]) + ".*"


def fail_open_matches(path: str) -> Iterator[tuple[str | None, str]]:
    """Of the route whose destination has the brokers among its endpoints."""
    (host,) = one(path, "ServiceEntry")["spec"]["hosts"]
    for rule in one(path, "VirtualService")["spec"]["http"]:
        if [each["destination"]["host"] for each in rule["route"]] == [host]:
            assert rule["retries"]["retryOn"] == "connect-failure"
            for match in rule["match"]:
                uri = match["uri"]
                yield match["method"]["exact"], uri.get("regex") or re.escape(uri["prefix"]) + ".*"


def gateway_api_matches(path: str) -> Iterator[tuple[str | None, str]]:
    for rule in one(path, "HTTPRoute")["spec"]["rules"]:
        for match in rule["matches"]:
            value = match["path"]["value"]
            is_prefix = match["path"]["type"] == "PathPrefix"
            yield match.get("method"), re.escape(value) + "(/.*)?" if is_prefix else value


def traefik_matches(path: str) -> Iterator[tuple[str | None, str]]:
    for rule in one(path, "IngressRoute")["spec"]["routes"]:
        assert "&& Method(`GET`) &&" in rule["match"]
        yield from (("GET", re.escape(prefix) + ".*") for prefix in re.findall(r"PathPrefix\(`(.*?)`\)", rule["match"]))
        yield from (("GET", pattern) for pattern in re.findall(r"PathRegexp\(`(.*?)`\)", rule["match"]))


def nginx_matches(path: str) -> Iterator[tuple[str | None, str]]:
    (values,) = documents(path)
    snippet = values["controller"]["config"]["http-snippet"]
    for kind, place in re.findall(r"location (~ )?\"?(/\w+/|\^.*?)\"? \{", snippet):
        yield "GET", place if kind else re.escape(place) + ".*"  # @brokers refuses other methods


ROUTES = {
    "istio/bypass.yaml": istio_matches,
    "istio/fail-open.yaml": fail_open_matches,
    "envoy-gateway/routes.yaml": gateway_api_matches,
    "envoy-gateway/bypass.yaml": gateway_api_matches,
    "traefik/ingressroute.yaml": traefik_matches,
    "traefik/bypass.yaml": traefik_matches,
    "ingress-nginx/ingress-nginx-values.yaml": nginx_matches,
}


@pytest.mark.parametrize("path", ROUTES)
def test_routes_past_the_sidecar_let_through_only_what_clients_need(path: str) -> None:
    """Those that lead past the sidecar."""
    matches = list(ROUTES[path](path))
    assert matches
    for method, asked in PATHS:
        passes = any(verb in (None, method) and re.fullmatch(pattern, asked) for verb, pattern in matches)
        assert passes == (classify(method, asked).area in NEEDED), (method, asked)


@pytest.mark.parametrize(
    ("kind", "bypass", "route"),
    [
        ("VirtualService", "istio/bypass.yaml", "istio/routes.yaml"),
        ("VirtualService", "istio/fail-open.yaml", "istio/routes.yaml"),
        ("HTTPRoute", "envoy-gateway/bypass.yaml", "envoy-gateway/routes.yaml"),
        ("IngressRoute", "traefik/bypass.yaml", "traefik/ingressroute.yaml"),
    ],
)
def test_bypass_route_has_the_name_and_hosts_of_the_route_it_replaces(kind: str, bypass: str, route: str) -> None:
    this, that = one(bypass, kind), one(route, kind)
    for key in ("name", "namespace"):
        assert this["metadata"][key] == that["metadata"][key]
    for key in ("hosts", "gateways", "hostnames", "parentRefs", "tls", "entryPoints"):
        assert this["spec"].get(key) == that["spec"].get(key)


def test_istio_fail_open_is_the_usual_route_with_the_brokers_behind_the_sidecar() -> None:
    usual = {kind: one("istio/routes.yaml", kind)["spec"] for kind in ("ServiceEntry", "VirtualService")}
    entry = one("istio/fail-open.yaml", "ServiceEntry")["spec"]
    assert entry["ports"] == usual["ServiceEntry"]["ports"]
    assert [each["address"] for each in entry["endpoints"]][:1] == [
        each["address"] for each in usual["ServiceEntry"]["endpoints"]
    ]
    assert entry["subjectAltNames"] == [config("istio/configmap.yaml").brokers.tls.peer_identity]
    first, *others = one("istio/fail-open.yaml", "VirtualService")["spec"]["http"]
    assert others == usual["VirtualService"]["http"]
    (bypass,) = one("istio/bypass.yaml", "VirtualService")["spec"]["http"]
    assert (first["match"], first["headers"]) == (bypass["match"], bypass["headers"])


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


def test_istio_route_leads_to_the_sidecar_on_loopback_with_a_longer_timeout() -> None:
    read = config("istio/configmap.yaml")
    entry = one("istio/routes.yaml", "ServiceEntry")["spec"]
    (host,) = entry["hosts"]
    (socket,) = read.bind_addresses
    assert [f"{each['address']}:{port['number']}" for each in entry["endpoints"] for port in entry["ports"]] == [
        socket.address
    ]
    rule = one("istio/routes.yaml", "DestinationRule")["spec"]
    assert rule["host"] == host
    assert rule["trafficPolicy"]["tls"] == {"mode": "DISABLE"}
    pool = rule["trafficPolicy"]["connectionPool"]
    assert seconds(pool["http"]["idleTimeout"]) < read.timeouts.client_idle
    for route in one("istio/routes.yaml", "VirtualService")["spec"]["http"]:
        assert [each["destination"]["host"] for each in route["route"]] == [host]
        assert route["retries"] == {"attempts": 0}
        assert seconds(route["timeout"]) > read.timeouts.request


def test_envoy_gateways_route_leads_to_the_sidecar_by_a_name_for_loopback() -> None:
    (sidecar, brokers) = (each for each in documents("envoy-gateway/routes.yaml") if each["kind"] == "Backend")
    (endpoint,) = sidecar["spec"]["endpoints"]
    pod = patched_pod("envoy-gateway/envoyproxy.yaml")
    assert {"ip": "127.0.0.1", "hostnames": [endpoint["fqdn"]["hostname"]]} in pod["hostAliases"]
    (socket,) = config("envoy-gateway/configmap.yaml").bind_addresses
    assert socket.address == f"127.0.0.1:{endpoint['fqdn']['port']}"
    assert brokers["spec"]["fallback"] is True
    (rule,) = one("envoy-gateway/routes.yaml", "HTTPRoute")["spec"]["rules"]
    names = [sidecar["metadata"]["name"], brokers["metadata"]["name"]]
    assert [each["name"] for each in rule["backendRefs"]] == names
    assert seconds(rule["timeouts"]["request"]) > config("envoy-gateway/configmap.yaml").timeouts.request


def test_traefik_and_nginx_lead_to_the_sidecar_on_loopback() -> None:
    (values,) = documents("traefik/traefik-values.yaml")
    services = values["providers"]["file"]["content"]["http"]["services"]
    (socket,) = config("traefik/configmap.yaml").bind_addresses
    assert services["pulsar-sidecar"]["loadBalancer"]["servers"] == [{"url": f"http://{socket.address}"}]
    health = services["pulsar-sidecar"]["loadBalancer"]["healthCheck"]
    assert config("traefik/configmap.yaml").metrics.address.endswith(f":{health['port']}")
    for path in ("traefik/ingressroute.yaml", "traefik/bypass.yaml"):
        for route in one(path, "IngressRoute")["spec"]["routes"]:
            assert {each["name"].removesuffix("@file") for each in route["services"]} <= services.keys()
    (values,) = documents("ingress-nginx/ingress-nginx-values.yaml")
    (socket,) = config("ingress-nginx/configmap.yaml").bind_addresses
    targets = set(re.findall(r"proxy_pass http://([^$;]+);", values["controller"]["config"]["http-snippet"]))
    assert targets == {socket.address}
