"""Ingress → address: how a broker is reached from outside by an Ingress that leads to it alone."""

import pytest
from scenes import BROKER_HOST, addresses, brokers, fill, reported, scene

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
    assert ["which leads to several brokers: not used as an address" in line for line in reported(discovered)] == [True]
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
    pool = ingress(service="sidecar").replace("broker-0", "'*'").replace("name: '*'", "name: pool")
    pool = pool.replace("'*'.pulsar.example.com", "'*.pulsar.example.com'")
    assert addresses(scene(brokers(), bare, pool).discovered()) == {
        "pulsar-broker-0": ["https://broker-0.pulsar.example.com"]
    }
    written = "ingresses: [{name: public, hosts: ['*.pulsar.example.com'], listener: partner}]"
    discovered = scene(brokers(), bare, pool, changes=written).discovered()
    assert addresses(discovered, "partner") == {"pulsar-broker-0": ["https://broker-0.pulsar.example.com"]}
    store = scene(brokers(), bare)
    assert addresses(store.discovered()) == {}
    (line,) = reported(store.discovered())
    assert line.startswith("ingress/pulsar/broker-0: leads https://broker-0.pulsar.example.com to pulsar-broker-0.")
    assert line.endswith("but has no listener: annotate it with pulsar-ingress-proxy/listener")
    assert len(store.reconciled().unmapped) == 1


def test_broker_urls_of_the_config_tell_the_protocol_of_unusual_ports() -> None:
    """Brokers on ports that nobody would know, behind the Service that the config names."""
    unusual = brokers().replace("8080", "18000").replace("6650", "16500")
    for name in ("http", "pulsar"):
        unusual = unusual.replace(f"name: {name}, ", f"name: port-{name[0]}, ")
    changes = "brokers: {webServiceUrl: ['http://pulsar-broker.pulsar:18000']}"
    text = ingress(port="number: 18000")
    assert addresses(scene(unusual, text, changes=changes).discovered()) == {
        "pulsar-broker-0": [f"https://{BROKER_HOST}"]
    }
    discovered = scene(unusual, text).discovered()
    assert addresses(discovered) == {}
    assert "is neither known as web nor as binary" in reported(discovered)[0]
