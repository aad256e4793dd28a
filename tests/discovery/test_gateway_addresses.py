"""Gateway → address: how a broker is reached from outside by routes of the Gateway API or of Istio that lead to it."""

import pytest
from scenes import BROKER_HOST, addresses, brokers, fill, reported, scene

from pulsar_ingress_proxy.discovery.reconciler.store import PodIdentity

# Envoy Gateway: one Gateway, and routes for each broker.

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge, annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}}
spec:
  gatewayClassName: envoy
  listeners:
    - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
    - name: https
      port: 8443
      protocol: HTTPS
      hostname: "*.pulsar.example.com"
      tls: {certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {pulsar: "true"}}}}
    - name: passthrough
      port: 6651
      protocol: TLS
      tls: {mode: Passthrough}
      allowedRoutes: {namespaces: {from: All}}
    - name: ended
      port: 6652
      protocol: TLS
      tls: {mode: Terminate, certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: All}}
    - {name: tcp, port: 6650, protocol: TCP, allowedRoutes: {namespaces: {from: All}}}
STATUS
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/VERSION
kind: KIND
metadata: {name: broker-0, namespace: pulsar, annotations: {ANNOTATIONS}}
spec:
  parentRefs: [{name: public, namespace: edge, sectionName: SECTION}]
  hostnames: [HOST]
  rules: [{backendRefs: [{name: broker-0, port: PORT}]}]
"""


def route(
    kind: str, section: str, port: int, host: str = BROKER_HOST, annotations: str = "", version: str = "v1"
) -> str:
    return fill(ROUTE, version=version, kind=kind, annotations=annotations, section=section, host=host, port=str(port))


def gateway(annotations: str = "", status: str = "") -> str:
    return fill(GATEWAY, annotations=annotations, status=status)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        pytest.param(route("HTTPRoute", "http", 8080), [f"http://{BROKER_HOST}"], id="HTTP"),
        pytest.param(
            route("HTTPRoute", "https", 8080), [f"https://{BROKER_HOST}:8443"], id="HTTPS, on the listener's port"
        ),
        pytest.param(
            route("HTTPRoute", "x", 8080).replace(", sectionName: x", ""),
            [f"http://{BROKER_HOST}", f"https://{BROKER_HOST}:8443"],
            id="all listeners that take it",
        ),
        pytest.param(
            route("TLSRoute", "passthrough", 6651), [f"pulsar+ssl://{BROKER_HOST}:6651"], id="passthrough, binary"
        ),
        pytest.param(route("TLSRoute", "passthrough", 8443), [f"https://{BROKER_HOST}:6651"], id="passthrough, web"),
        pytest.param(
            route("TLSRoute", "ended", 6650), [f"pulsar+ssl://{BROKER_HOST}:6652"], id="TLS ends at the gateway"
        ),
        pytest.param(
            route("TLSRoute", "ended", 6651),
            [f"pulsar+ssl://{BROKER_HOST}:6652"],
            id="TLS ends at the gateway, which begins it again",
        ),
        pytest.param(
            route("TLSRoute", "ended", 8080), [f"https://{BROKER_HOST}:6652"], id="TLS ends at the gateway, web"
        ),
        pytest.param(
            route("TCPRoute", "ended", 6650, "", f"external-dns.alpha.kubernetes.io/hostname: {BROKER_HOST}"),
            [f"pulsar+ssl://{BROKER_HOST}:6652"],
            id="bytes behind TLS",
        ),
        pytest.param(
            route("TCPRoute", "tcp", 6650, "", f"external-dns.alpha.kubernetes.io/hostname: {BROKER_HOST}"),
            [f"pulsar://{BROKER_HOST}:6650"],
            id="bytes, with a name",
        ),
        pytest.param(
            route("TCPRoute", "tcp", 6651, "", "pulsar-ingress-proxy/external-url: 'pulsar+ssl://lb.example:16651'"),
            ["pulsar+ssl://lb.example:16651"],
            id="bytes, by annotation",
        ),
        pytest.param(
            route("HTTPRoute", "http", 8080, annotations="pulsar-ingress-proxy/external-url: 'https://{host}'"),
            [f"https://{BROKER_HOST}"],
            id="a load balancer in front ends TLS",
        ),
    ],
)
def test_gateway_api_route_to_one_broker_gives_its_external_address(text: str, urls: list[str]) -> None:
    discovered = scene(brokers(), gateway(), text).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": urls}
    assert reported(discovered) == []


@pytest.mark.parametrize("version", ["v1", "v1alpha3", "v1alpha2"])
@pytest.mark.parametrize(
    ("section", "port", "url"),
    [("passthrough", 6651, f"pulsar+ssl://{BROKER_HOST}:6651"), ("ended", 6650, f"pulsar+ssl://{BROKER_HOST}:6652")],
)
def test_tls_route_of_every_supported_version_gives_the_same_address(
    version: str, section: str, port: int, url: str
) -> None:
    text = route("TLSRoute", section, port, version=version)
    assert addresses(scene(brokers(), gateway(), text).discovered()) == {"pulsar-broker-0": [url]}


@pytest.mark.parametrize(
    ("kind", "section", "port"),
    [
        pytest.param("TCPRoute", "passthrough", 6651, id="TCPRoute where TLS is passed on"),
        pytest.param("TCPRoute", "https", 8080, id="TCPRoute on HTTPS"),
        pytest.param("TLSRoute", "https", 8443, id="TLSRoute on HTTPS"),
        pytest.param("TLSRoute", "tcp", 6651, id="TLSRoute on TCP"),
        pytest.param("HTTPRoute", "ended", 8080, id="HTTPRoute on TLS"),
    ],
)
def test_route_on_a_listener_for_other_route_kinds_gives_no_address(kind: str, section: str, port: int) -> None:
    name = f"external-dns.alpha.kubernetes.io/hostname: {BROKER_HOST}"
    text = route(kind, section, port, "" if kind == "TCPRoute" else BROKER_HOST, name)
    assert addresses(scene(brokers(), gateway(), text).discovered()) == {}


def test_tcp_route_without_host_uses_the_only_address_of_its_gateway() -> None:
    text = route("TCPRoute", "tcp", 6650, "")
    one = gateway(status="status: {addresses: [{type: IPAddress, value: 203.0.113.7}]}")
    assert addresses(scene(brokers(), one, text).discovered()) == {"pulsar-broker-0": ["pulsar://203.0.113.7:6650"]}
    two = gateway(status="status: {addresses: [{value: 203.0.113.7}, {value: 203.0.113.8}]}")
    discovered = scene(brokers(), two, text).discovered()
    assert addresses(discovered) == {}
    assert "its external host is not known (203.0.113.7 or 203.0.113.8)" in reported(discovered)[0]


def test_external_url_annotation_of_a_gateway_applies_to_its_routes() -> None:
    noted = gateway("pulsar-ingress-proxy/external-url: 'https://{host}:443'")
    text = route("HTTPRoute", "http", 8080)
    discovered = scene(brokers(), noted, text).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"https://{BROKER_HOST}:443"]}
    assert discovered.brokers[0].sources["external", "https"] == ("annotation", "httproute/pulsar/broker-0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(route("HTTPRoute", "http", 8080, "'*.b0.example.com'"), "is a wildcard", id="wildcard"),
        pytest.param(route("HTTPRoute", "http", 6650), "is binary", id="binary over HTTP"),
        pytest.param(route("TCPRoute", "tcp", 6650, ""), "its external host is not known", id="no host"),
    ],
)
def test_route_without_usable_host_or_port_gives_no_address_and_is_reported(text: str, said: str) -> None:
    discovered = scene(brokers(), gateway(), text).discovered()
    assert addresses(discovered) == {}
    assert [said in line for line in reported(discovered)] == [True]


def test_route_whose_gateway_is_not_seen_gives_no_address_and_is_reported() -> None:
    text = route("HTTPRoute", "http", 8080, annotations="pulsar-ingress-proxy/listener: external")
    discovered = scene(brokers(), text).discovered()
    assert addresses(discovered) == {}
    assert "its gateway gateway/edge/public is not visible" in reported(discovered)[0]


def test_redirect_rules_and_zero_weight_backends_are_ignored() -> None:
    text = route("HTTPRoute", "http", 8080)
    redirect = text.replace("rules: [{", "rules: [{filters: [{type: RequestRedirect}], ")
    assert addresses(scene(brokers(), gateway(), redirect).discovered()) == {}
    weights = text.replace("port: 8080}", "port: 8080}, {name: broker-1, port: 8080, weight: WEIGHT}")
    assert addresses(scene(brokers(), gateway(), weights.replace("WEIGHT", "0")).discovered()) != {}
    assert addresses(scene(brokers(), gateway(), weights.replace("WEIGHT", "1")).discovered()) == {}


def test_route_on_sections_of_two_listeners_gives_an_address_on_each() -> None:
    text = gateway().replace("listener: external", "listener: 'http=external,https=partner'")
    discovered = scene(brokers(), text, route("HTTPRoute", "x", 8080).replace(", sectionName: x", "")).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"http://{BROKER_HOST}"]}
    assert addresses(discovered, "partner") == {"pulsar-broker-0": [f"https://{BROKER_HOST}:8443"]}


# Istio: a Gateway, its Service, and VirtualServices.

ISTIO = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: pulsar, namespace: edge, annotations: {pulsar-ingress-proxy/listener: external}}
spec:
  selector: {istio: public}
  servers:
    - {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"], tls: {httpsRedirect: true}}
    - {port: {number: 8443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: cert}}
    - {port: {number: 9443, name: passthrough, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}
    - {port: {number: 6652, name: ended, protocol: TLS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: cert}}
    - {port: {number: 6650, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: v1
kind: Service
metadata: {name: public, namespace: edge}
spec:
  type: LoadBalancer
  selector: {app: edge, istio: public}
  ports:
    - {name: http, port: 80, targetPort: 8080}
    - {name: https, port: 443, targetPort: 8443}
    - {name: passthrough, port: 6651, targetPort: 9443}
    - {name: ended, port: 6652, targetPort: 16652}
    - {name: tcp, port: 6650, targetPort: 6650}
status: {loadBalancer: {ingress: [{hostname: lb.cloud.example}]}}
---
apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: edge}
spec: {selector: {app: edge}, ports: [{name: metrics, port: 15020}]}
"""

VIRTUAL_SERVICE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broker-0, namespace: pulsar}
spec:
  gateways: [edge/pulsar]
  hosts: [HOST]
  RULES
"""

TO_HTTP = "route: [{destination: {host: broker-0, port: {number: 8080}}}]"
TO_TLS = "route: [{destination: {host: broker-0.pulsar.svc.cluster.local, port: {number: 6651}}}]"
TO_PLAIN = "route: [{destination: {host: broker-0, port: {number: 6650}}}]"
NO_LIST = "kubernetes: {gateways: []}"


@pytest.mark.parametrize(
    ("rules", "urls"),
    [
        pytest.param(
            f"http: [{{{TO_HTTP}}}]", [f"https://{BROKER_HOST}"], id="HTTPS, by the Service's port for that target"
        ),
        pytest.param(
            f"http: [{{match: [{{uri: {{prefix: /}}}}], {TO_HTTP}}}]",
            [f"https://{BROKER_HOST}"],
            id="a match of all paths",
        ),
        pytest.param(
            f"http: [{{match: [{{authority: {{exact: b0.example.com}}}}], {TO_HTTP}}}]",
            [],
            id="a host it does not have",
        ),
        pytest.param(
            f"http: [{{match: [{{authority: {{exact: {BROKER_HOST}}}}}], {TO_HTTP}}}]",
            [f"https://{BROKER_HOST}"],
            id="a host it has",
        ),
        pytest.param(
            f"tls: [{{match: [{{port: 9443, sniHosts: [{BROKER_HOST}]}}], {TO_TLS}}}]",
            [f"pulsar+ssl://{BROKER_HOST}:6651"],
            id="sniHosts",
        ),
        pytest.param(f"tls: [{{match: [{{port: 443, sniHosts: [{BROKER_HOST}]}}], {TO_TLS}}}]", [], id="another port"),
        pytest.param(
            f"tcp: [{{match: [{{port: 6652}}], {TO_PLAIN}}}]",
            [f"pulsar+ssl://{BROKER_HOST}:6652"],
            id="bytes behind TLS",
        ),
        pytest.param(f"tcp: [{{match: [{{port: 6650}}], {TO_PLAIN}}}]", [f"pulsar://{BROKER_HOST}:6650"], id="bytes"),
        pytest.param(f"tcp: [{{match: [{{gateways: [mesh]}}], {TO_PLAIN}}}]", [], id="for the mesh alone"),
        pytest.param("http: [{route: [{destination: {host: broker-0.other}}]}]", [], id="no Service of the cluster"),
    ],
)
def test_virtual_service_to_one_broker_gives_an_address_where_its_match_applies(rules: str, urls: list[str]) -> None:
    discovered = scene(
        brokers(), ISTIO, fill(VIRTUAL_SERVICE, host=BROKER_HOST, rules=rules), changes=NO_LIST
    ).discovered()
    assert addresses(discovered).get("pulsar-broker-0", []) == urls
    assert reported(discovered) == []


def test_tcp_virtual_service_for_any_host_uses_the_load_balancer_of_its_gateway() -> None:
    text = fill(VIRTUAL_SERVICE, host="'*'", rules=f"tcp: [{{match: [{{port: 6650}}], {TO_PLAIN}}}]")
    discovered = scene(brokers(), ISTIO, text, changes=NO_LIST).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": ["pulsar://lb.cloud.example:6650"]}


@pytest.mark.parametrize(
    ("old", "new", "url", "said"),
    [
        pytest.param("", "", f"https://{BROKER_HOST}", None, id="targetPort to port"),
        pytest.param(
            "port: 443, targetPort: 8443",
            "port: 8443, targetPort: 1",
            f"https://{BROKER_HOST}:8443",
            None,
            id="by port",
        ),
        pytest.param(
            "type: LoadBalancer", "type: NodePort", f"https://{BROKER_HOST}", None, id="a node's port that is not known"
        ),
        pytest.param(
            "type: LoadBalancer\n  selector: {app: edge, istio: public}\n  ports:",
            "type: NodePort\n  selector: {app: edge}\n  ports:\n    - {port: 8443, nodePort: 31443}",
            f"https://{BROKER_HOST}:31443",
            None,
            id="a node's port",
        ),
        pytest.param(
            "targetPort: 8443", "targetPort: 1", None, "no port of service/edge/public leads to port 8443", id="no"
        ),
        pytest.param(
            "port: 80, targetPort: 8080",
            "port: 444, targetPort: 8443",
            None,
            "ports 443, 444 of service/edge/public lead to port 8443 of gateway/edge/pulsar",
            id="two ports lead there",
        ),
        pytest.param(
            "app: edge, istio: public", "app: other", f"https://{BROKER_HOST}:8443", None, id="no Service is ours"
        ),
    ],
)
def test_istio_gateway_port_is_translated_to_the_port_of_its_service(
    old: str, new: str, url: str | None, said: str | None
) -> None:
    text = fill(VIRTUAL_SERVICE, host=BROKER_HOST, rules=f"http: [{{{TO_HTTP}}}]")
    istio = ISTIO.partition("---\napiVersion: v1\nkind: Service\nmetadata: {name: metrics")[0]
    discovered = scene(brokers(), istio.replace(old, new) if old else istio, text, changes=NO_LIST).discovered()
    assert addresses(discovered) == ({"pulsar-broker-0": [url]} if url else {})
    assert [str(said) in line for line in reported(discovered)] == ([True] if said else [])


def test_istio_gateway_service_is_found_by_selector_when_own_labels_are_unknown() -> None:
    text = fill(VIRTUAL_SERVICE, host=BROKER_HOST, rules=f"http: [{{{TO_HTTP}}}]")
    changes = "kubernetes: {gateways: [gateway/edge/pulsar]}"
    discovered = scene(brokers(), ISTIO, text, changes=changes, own=PodIdentity("edge")).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"https://{BROKER_HOST}"]}
