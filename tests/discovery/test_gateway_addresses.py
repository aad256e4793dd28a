"""Object → address: how brokers are reached from outside, by the routes that lead to one of them."""

import pytest
from scenes import addresses, brokers, config, reported, scene

from pulsar_ingress_proxy.discovery.reconciler.store import PodIdentity

# An Ingress for each broker, as ingress-nginx serves them.

INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: broker-0
  namespace: pulsar
  annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}
spec:
  ingressClassName: nginx
  tls: [{hosts: [TLS], secretName: cert}]
  rules:
    - host: broker-0.pulsar.example.com
      http: {paths: [{path: PATH, pathType: Prefix, backend: {service: {name: SERVICE, port: {PORT}}}}]}
"""


def fill(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(name.upper(), value)
    return text


def ingress(**values: str) -> str:
    usual = {
        "annotations": "",
        "tls": "'*.pulsar.example.com'",
        "path": "/",
        "service": "broker-0",
        "port": "name: http",
    }
    return fill(INGRESS, **(usual | values))


@pytest.mark.parametrize(
    ("values", "urls"),
    [
        pytest.param({}, ["https://broker-0.pulsar.example.com"], id="with TLS"),
        pytest.param({"tls": "other.example.com"}, ["http://broker-0.pulsar.example.com"], id="without"),
        pytest.param({"tls": ""}, ["https://broker-0.pulsar.example.com"], id="TLS for all its hosts"),
        pytest.param({"port": "number: 8080"}, ["https://broker-0.pulsar.example.com"], id="a port by number"),
        pytest.param({"port": "number: 8443"}, ["https://broker-0.pulsar.example.com"], id="the broker's own TLS"),
        pytest.param(
            {"annotations": "nginx.ingress.kubernetes.io/ssl-passthrough: 'true'", "port": "name: pulsarssl"},
            ["pulsar+ssl://broker-0.pulsar.example.com:443"],
            id="TLS left to the broker, binary",
        ),
        pytest.param(
            {"annotations": "nginx.ingress.kubernetes.io/ssl-passthrough: 'true'", "port": "name: https"},
            ["https://broker-0.pulsar.example.com"],
            id="TLS left to the broker, web",
        ),
        pytest.param(
            {"annotations": "pulsar-ingress-proxy/external-url: 'https://{host}:443'", "tls": "other.example.com"},
            ["https://broker-0.pulsar.example.com:443"],
            id="a load balancer in front ends TLS",
        ),
        pytest.param(
            {"annotations": "pulsar-ingress-proxy/external-url: 'https://edge.example.com:8443'"},
            ["https://edge.example.com:8443"],
            id="another name and port",
        ),
        pytest.param(
            {"annotations": "pulsar-ingress-proxy/external-url: 'http://{host}:8000,https://{host}:8443'"},
            ["http://broker-0.pulsar.example.com:8000", "https://broker-0.pulsar.example.com:8443"],
            id="both schemes",
        ),
        pytest.param(
            {"annotations": "pulsar-ingress-proxy/external-url: 'pulsar+ssl://{host}'"},
            ["https://broker-0.pulsar.example.com"],
            id="a URL for what it does not lead to",
        ),
        pytest.param(
            {"path": "/admin"}, ["https://broker-0.pulsar.example.com"], id="a part of the paths, and no other"
        ),
    ],
)
def test_ingress_to_one_broker_gives_its_external_address(values: dict[str, str], urls: list[str]) -> None:
    discovered = scene(brokers(), ingress(**values)).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": urls}
    assert reported(discovered) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param(
            {"port": "name: pulsar"}, "is for HTTP, and port 6650 of service/pulsar/broker-0 is binary", id="pulsar"
        ),
        pytest.param(
            {"port": "number: 9999"}, "leads to port 9999 of service/pulsar/broker-0, which it does not", id="9999"
        ),
        pytest.param(
            {"annotations": "pulsar-ingress-proxy/external-url: nonsense"},
            "external-url: 'nonsense' is not a URL",
            id="bad URL",
        ),
    ],
)
def test_ingress_with_unusable_port_or_url_gives_no_address_and_is_reported(values: dict[str, str], said: str) -> None:
    discovered = scene(brokers(), ingress(**values)).discovered()
    assert addresses(discovered) == {}
    assert [said in line for line in reported(discovered)] == [True]


def test_route_to_several_brokers_gives_no_address_and_is_reported_except_for_the_pool() -> None:
    everybody = """
    apiVersion: v1
    kind: Service
    metadata: {name: everybody, namespace: pulsar}
    spec: {selector: {component: broker}, ports: [{name: http, port: 8080}]}
    """
    discovered = scene(brokers(), everybody, ingress(service="everybody")).discovered()
    assert addresses(discovered) == {}
    assert ["and that to several brokers: it is nobody's address" in line for line in reported(discovered)] == [True]
    discovered = scene(brokers(), ingress(service="pulsar-broker")).discovered()
    assert (addresses(discovered), reported(discovered)) == ({}, [])


def test_sole_broker_takes_the_pool_address_unless_it_has_its_own_route() -> None:
    pool = ingress(service="pulsar-broker").replace("broker-0", "pool")
    assert addresses(scene(brokers(1), pool).discovered()) == {"pulsar-broker-0": ["https://pool.pulsar.example.com"]}
    discovered = scene(brokers(1), pool, ingress()).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": ["https://broker-0.pulsar.example.com"]}
    assert reported(discovered) == []


TWO_PATHS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: paths, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: external}}
spec:
  ingressClassName: nginx
  rules:
    - host: b.example.com
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: ROOT, port: {name: http}}}}
          - {path: /ws, pathType: Prefix, backend: {service: {name: WS, port: {name: http}}}}
"""


@pytest.mark.parametrize(
    ("root", "ws", "urls", "conflicts"),
    [
        pytest.param("broker-0", "websocket", ["http://b.example.com"], 0, id="the rest goes elsewhere"),
        pytest.param("broker-0", "broker-0", ["http://b.example.com"], 0, id="all to one"),
        pytest.param("frontend", "broker-0", [], 0, id="a part comes to the broker"),
        pytest.param("broker-0", "broker-1", [], 1, id="to two brokers"),
        pytest.param("frontend", "websocket", [], 0, id="no broker's"),
    ],
)
def test_host_with_several_paths_is_the_address_of_the_only_broker_at_its_root(
    root: str, ws: str, urls: list[str], conflicts: int
) -> None:
    discovered = scene(brokers(), fill(TWO_PATHS, root=root, ws=ws)).discovered()
    assert addresses(discovered).get("pulsar-broker-0", []) == urls
    assert len(reported(discovered)) == conflicts


def test_two_hosts_for_one_broker_are_reported_and_an_annotation_decides() -> None:
    second = ingress().replace("broker-0.pulsar", "b0.pulsar").replace("name: broker-0\n", "name: second\n")
    discovered = scene(brokers(), ingress(), second).discovered()
    assert addresses(discovered) == {}
    (line,) = reported(discovered)
    assert "https://b0.pulsar.example.com (derived, ingress/pulsar/second)" in line
    assert line.endswith("(derived, ingress/pulsar/broker-0) on listener 'external': neither is used")
    noted = ingress(annotations="pulsar-ingress-proxy/external-url: 'https://{host}'")
    discovered = scene(brokers(), noted, second).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": ["https://broker-0.pulsar.example.com"]}
    (line,) = reported(discovered)
    assert "(annotation, ingress/pulsar/broker-0) on listener 'external', not at https://b0." in line


def test_route_without_listener_inherits_that_of_the_ingress_with_its_host() -> None:
    bare = ingress().replace("pulsar-ingress-proxy/listener: external,", "")
    door = ingress(service="sidecar").replace("broker-0", "'*'").replace("name: '*'", "name: door")
    door = door.replace("'*'.pulsar.example.com", "'*.pulsar.example.com'")
    assert addresses(scene(brokers(), bare, door).discovered()) == {
        "pulsar-broker-0": ["https://broker-0.pulsar.example.com"]
    }
    written = "ingresses: [{name: public, hosts: ['*.pulsar.example.com'], listener: partner}]"
    discovered = scene(brokers(), bare, door, changes=written).discovered()
    assert addresses(discovered, "partner") == {"pulsar-broker-0": ["https://broker-0.pulsar.example.com"]}
    store = scene(brokers(), bare)
    assert addresses(store.discovered()) == {}
    (line,) = reported(store.discovered())
    assert line.startswith("ingress/pulsar/broker-0: leads https://broker-0.pulsar.example.com to pulsar-broker-0.")
    assert line.endswith("nothing says on which listener: annotate it with pulsar-ingress-proxy/listener")
    assert len(store.unmapped) == 1


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

URL = "broker-0.pulsar.example.com"


def route(kind: str, section: str, port: int, host: str = URL, annotations: str = "") -> str:
    version = {"HTTPRoute": "v1", "TLSRoute": "v1alpha3", "TCPRoute": "v1alpha2"}[kind]
    return fill(ROUTE, version=version, kind=kind, annotations=annotations, section=section, host=host, port=str(port))


def gateway(annotations: str = "", status: str = "") -> str:
    return fill(GATEWAY, annotations=annotations, status=status)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        pytest.param(route("HTTPRoute", "http", 8080), [f"http://{URL}"], id="HTTP"),
        pytest.param(route("HTTPRoute", "https", 8080), [f"https://{URL}:8443"], id="HTTPS, on the listener's port"),
        pytest.param(
            route("HTTPRoute", "x", 8080).replace(", sectionName: x", ""),
            [f"http://{URL}", f"https://{URL}:8443"],
            id="all listeners that take it",
        ),
        pytest.param(route("TLSRoute", "passthrough", 6651), [f"pulsar+ssl://{URL}:6651"], id="passthrough, binary"),
        pytest.param(route("TLSRoute", "passthrough", 8443), [f"https://{URL}:6651"], id="passthrough, web"),
        pytest.param(route("TLSRoute", "ended", 6650), [f"pulsar+ssl://{URL}:6652"], id="TLS ends at the gateway"),
        pytest.param(
            route("TCPRoute", "ended", 6650, "", f"external-dns.alpha.kubernetes.io/hostname: {URL}"),
            [f"pulsar+ssl://{URL}:6652"],
            id="bytes behind TLS",
        ),
        pytest.param(
            route("TCPRoute", "tcp", 6650, "", f"external-dns.alpha.kubernetes.io/hostname: {URL}"),
            [f"pulsar://{URL}:6650"],
            id="bytes, with a name",
        ),
        pytest.param(
            route("TCPRoute", "tcp", 6651, "", "pulsar-ingress-proxy/external-url: 'pulsar+ssl://lb.example:16651'"),
            ["pulsar+ssl://lb.example:16651"],
            id="bytes, by annotation",
        ),
        pytest.param(
            route("HTTPRoute", "http", 8080, annotations="pulsar-ingress-proxy/external-url: 'https://{host}'"),
            [f"https://{URL}"],
            id="a load balancer in front ends TLS",
        ),
    ],
)
def test_gateway_api_route_to_one_broker_gives_its_external_address(text: str, urls: list[str]) -> None:
    discovered = scene(brokers(), gateway(), text).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": urls}
    assert reported(discovered) == []


def test_tcp_route_without_host_uses_the_only_address_of_its_gateway() -> None:
    text = route("TCPRoute", "tcp", 6650, "")
    one = gateway(status="status: {addresses: [{type: IPAddress, value: 203.0.113.7}]}")
    assert addresses(scene(brokers(), one, text).discovered()) == {"pulsar-broker-0": ["pulsar://203.0.113.7:6650"]}
    two = gateway(status="status: {addresses: [{value: 203.0.113.7}, {value: 203.0.113.8}]}")
    discovered = scene(brokers(), two, text).discovered()
    assert addresses(discovered) == {}
    assert "by which host it is reached (203.0.113.7 or 203.0.113.8)" in reported(discovered)[0]


def test_external_url_annotation_of_a_gateway_applies_to_its_routes() -> None:
    noted = gateway("pulsar-ingress-proxy/external-url: 'https://{host}:443'")
    text = route("HTTPRoute", "http", 8080)
    discovered = scene(brokers(), noted, text).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"https://{URL}:443"]}
    assert discovered.brokers[0].sources["external", "https"] == ("annotation", "httproute/pulsar/broker-0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(route("HTTPRoute", "http", 8080, "'*.b0.example.com'"), "is a wildcard", id="wildcard"),
        pytest.param(route("HTTPRoute", "http", 6650), "is binary", id="binary over HTTP"),
        pytest.param(route("TCPRoute", "tcp", 6650, ""), "nothing says by which host", id="no host"),
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
    assert "its gateway gateway/edge/public is not seen" in reported(discovered)[0]


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
    assert addresses(discovered) == {"pulsar-broker-0": [f"http://{URL}"]}
    assert addresses(discovered, "partner") == {"pulsar-broker-0": [f"https://{URL}:8443"]}


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
        pytest.param(f"http: [{{{TO_HTTP}}}]", [f"https://{URL}"], id="HTTPS, by the Service's port for that target"),
        pytest.param(
            f"http: [{{match: [{{uri: {{prefix: /}}}}], {TO_HTTP}}}]", [f"https://{URL}"], id="a match of all paths"
        ),
        pytest.param(
            f"http: [{{match: [{{authority: {{exact: b0.example.com}}}}], {TO_HTTP}}}]",
            [],
            id="a host it does not have",
        ),
        pytest.param(
            f"http: [{{match: [{{authority: {{exact: {URL}}}}}], {TO_HTTP}}}]", [f"https://{URL}"], id="a host it has"
        ),
        pytest.param(
            f"tls: [{{match: [{{port: 9443, sniHosts: [{URL}]}}], {TO_TLS}}}]",
            [f"pulsar+ssl://{URL}:6651"],
            id="sniHosts",
        ),
        pytest.param(f"tls: [{{match: [{{port: 443, sniHosts: [{URL}]}}], {TO_TLS}}}]", [], id="another port"),
        pytest.param(
            f"tcp: [{{match: [{{port: 6652}}], {TO_PLAIN}}}]", [f"pulsar+ssl://{URL}:6652"], id="bytes behind TLS"
        ),
        pytest.param(f"tcp: [{{match: [{{port: 6650}}], {TO_PLAIN}}}]", [f"pulsar://{URL}:6650"], id="bytes"),
        pytest.param(f"tcp: [{{match: [{{gateways: [mesh]}}], {TO_PLAIN}}}]", [], id="for the mesh alone"),
        pytest.param("http: [{route: [{destination: {host: broker-0.other}}]}]", [], id="no Service of the cluster"),
    ],
)
def test_virtual_service_to_one_broker_gives_an_address_where_its_match_applies(rules: str, urls: list[str]) -> None:
    discovered = scene(brokers(), ISTIO, fill(VIRTUAL_SERVICE, host=URL, rules=rules), changes=NO_LIST).discovered()
    assert addresses(discovered).get("pulsar-broker-0", []) == urls
    assert reported(discovered) == []


def test_tcp_virtual_service_for_any_host_uses_the_load_balancer_of_its_gateway() -> None:
    text = fill(VIRTUAL_SERVICE, host="'*'", rules=f"tcp: [{{match: [{{port: 6650}}], {TO_PLAIN}}}]")
    discovered = scene(brokers(), ISTIO, text, changes=NO_LIST).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": ["pulsar://lb.cloud.example:6650"]}


@pytest.mark.parametrize(
    ("old", "new", "url", "said"),
    [
        pytest.param("", "", f"https://{URL}", None, id="targetPort to port"),
        pytest.param(
            "port: 443, targetPort: 8443", "port: 8443, targetPort: 1", f"https://{URL}:8443", None, id="by port"
        ),
        pytest.param(
            "type: LoadBalancer", "type: NodePort", f"https://{URL}", None, id="a node's port that is not known"
        ),
        pytest.param(
            "type: LoadBalancer\n  selector: {app: edge, istio: public}\n  ports:",
            "type: NodePort\n  selector: {app: edge}\n  ports:\n    - {port: 8443, nodePort: 31443}",
            f"https://{URL}:31443",
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
        pytest.param("app: edge, istio: public", "app: other", f"https://{URL}:8443", None, id="no Service is ours"),
    ],
)
def test_istio_gateway_port_is_translated_to_the_port_of_its_service(
    old: str, new: str, url: str | None, said: str | None
) -> None:
    text = fill(VIRTUAL_SERVICE, host=URL, rules=f"http: [{{{TO_HTTP}}}]")
    istio = ISTIO.partition("---\napiVersion: v1\nkind: Service\nmetadata: {name: metrics")[0]
    discovered = scene(brokers(), istio.replace(old, new) if old else istio, text, changes=NO_LIST).discovered()
    assert addresses(discovered) == ({"pulsar-broker-0": [url]} if url else {})
    assert [str(said) in line for line in reported(discovered)] == ([True] if said else [])


def test_istio_gateway_service_is_found_by_selector_when_own_labels_are_unknown() -> None:
    text = fill(VIRTUAL_SERVICE, host=URL, rules=f"http: [{{{TO_HTTP}}}]")
    changes = "kubernetes: {gateways: [gateway/edge/pulsar]}"
    discovered = scene(brokers(), ISTIO, text, changes=changes, own=PodIdentity("edge")).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"https://{URL}"]}


# A Service for each broker that is reached from outside.

OUTSIDE = """
apiVersion: v1
kind: Service
metadata:
  name: broker-0-outside
  namespace: pulsar
  annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}
spec:
  type: TYPE
  selector: {statefulset.kubernetes.io/pod-name: pulsar-broker-0}
  ports: [PORTS]
status: {loadBalancer: {ingress: [INGRESS]}}
"""
WEB_AND_BINARY = "{name: web, port: 80, targetPort: http, nodePort: 30080}, {name: tls, port: 6651, nodePort: 30651}"
DNS = "external-dns.alpha.kubernetes.io/hostname: b0.example.com"


@pytest.mark.parametrize(
    ("type_", "annotations", "ports", "ingress_", "urls"),
    [
        pytest.param(
            "LoadBalancer",
            "",
            WEB_AND_BINARY,
            "{hostname: lb.example}",
            ["http://lb.example", "pulsar+ssl://lb.example:6651"],
            id="a load balancer",
        ),
        pytest.param(
            "LoadBalancer", DNS, "{port: 6650}", "{ip: 203.0.113.7}", ["pulsar://b0.example.com:6650"], id="with a name"
        ),
        pytest.param(
            "LoadBalancer",
            "pulsar-ingress-proxy/external-url: 'https://{host}'",
            WEB_AND_BINARY,
            "{hostname: lb.example}",
            ["https://lb.example", "pulsar+ssl://lb.example:6651"],
            id="that ends TLS for one of them",
        ),
        pytest.param(
            "NodePort",
            DNS,
            WEB_AND_BINARY,
            "",
            ["http://b0.example.com:30080", "pulsar+ssl://b0.example.com:30651"],
            id="nodes' ports, with a name",
        ),
        pytest.param(
            "NodePort",
            "pulsar-ingress-proxy/external-url: 'pulsar://node-1.example:30650'",
            "{name: other, port: 9092}",
            "",
            ["pulsar://node-1.example:30650"],
            id="nodes' ports, by annotation",
        ),
        pytest.param(
            "LoadBalancer",
            "",
            "{port: 6650}, {name: kafka, port: 9092}, {port: 6650, protocol: UDP}",
            "{ip: 203.0.113.7}",
            ["pulsar://203.0.113.7:6650"],
            id="ports that are no broker's",
        ),
    ],
)
def test_external_service_of_one_broker_gives_its_address_but_no_ingress(
    type_: str, annotations: str, ports: str, ingress_: str, urls: list[str]
) -> None:
    text = fill(OUTSIDE, type=type_, annotations=annotations, ports=ports, ingress=ingress_)
    discovered = scene(brokers(), text).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": urls}
    assert reported(discovered) == []
    assert discovered.ingresses == ()  # it leads past every gateway


@pytest.mark.parametrize(
    ("type_", "ports", "ingress_", "said"),
    [
        pytest.param(
            "NodePort", WEB_AND_BINARY, "", "nothing says by which host it is reached: annotate it", id="no host"
        ),
        pytest.param(
            "LoadBalancer",
            WEB_AND_BINARY,
            "{ip: 203.0.113.7}, {ip: 203.0.113.8}",
            "(203.0.113.7 or 203.0.113.8)",
            id="two",
        ),
        pytest.param(
            "LoadBalancer", "{name: kafka, port: 9092}", "{ip: 203.0.113.7}", "which of its ports is web", id="no port"
        ),
        pytest.param(
            "LoadBalancer",
            "{name: pulsar, port: 9, targetPort: 8443}",
            "{ip: 203.0.113.7}",
            "may be https or pulsar",
            id="odd",
        ),
    ],
)
def test_service_without_clear_host_or_port_gives_no_address_and_is_reported(
    type_: str, ports: str, ingress_: str, said: str
) -> None:
    discovered = scene(brokers(), fill(OUTSIDE, type=type_, annotations="", ports=ports, ingress=ingress_)).discovered()
    assert addresses(discovered) == {}
    assert [said in line for line in reported(discovered)] == [True]


def test_broker_urls_of_the_config_tell_the_protocol_of_unusual_ports() -> None:
    """Brokers on ports that nobody would know, behind the Service that the config names."""
    unusual = brokers().replace("8080", "18000").replace("6650", "16500")
    for name in ("http", "pulsar"):
        unusual = unusual.replace(f"name: {name}, ", f"name: port-{name[0]}, ")
    changes = "brokers: {webServiceUrl: ['http://pulsar-broker.pulsar:18000']}"
    text = ingress(port="number: 18000")
    assert addresses(scene(unusual, text, changes=changes).discovered()) == {"pulsar-broker-0": [f"https://{URL}"]}
    discovered = scene(unusual, text).discovered()
    assert addresses(discovered) == {}
    assert "is neither known as web nor as binary" in reported(discovered)[0]


def test_internal_address_uses_the_target_port_behind_the_configured_url() -> None:
    mapped = brokers().replace("{name: http, port: 8080}", "{name: http, port: 80, targetPort: http}")
    discovered = scene(mapped, changes="brokers: {webServiceUrl: ['http://pulsar-broker.pulsar']}").discovered()
    name = "pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local"
    assert addresses(discovered, "internal")["pulsar-broker-0"] == [f"http://{name}:8080"]
    assert discovered.brokers[0].sources["internal", "http"] == ("derived", "pod/pulsar/pulsar-broker-0")
    assert config().internal_listener_name == "internal"
