"""Service → address: how a broker is reached from outside by a Service of its own, and inside by its port."""

import pytest
from scenes import addresses, brokers, config, fill, reported, scene

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
        pytest.param("NodePort", WEB_AND_BINARY, "", "its external host is not known: annotate it", id="no host"),
        pytest.param(
            "LoadBalancer",
            WEB_AND_BINARY,
            "{ip: 203.0.113.7}, {ip: 203.0.113.8}",
            "(203.0.113.7 or 203.0.113.8)",
            id="two",
        ),
        pytest.param(
            "LoadBalancer", "{name: kafka, port: 9092}", "{ip: 203.0.113.7}", "cannot be told apart", id="no port"
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


def test_internal_address_uses_the_target_port_behind_the_configured_url() -> None:
    mapped = brokers().replace("{name: http, port: 8080}", "{name: http, port: 80, targetPort: http}")
    discovered = scene(mapped, changes="brokers: {webServiceUrl: ['http://pulsar-broker.pulsar']}").discovered()
    name = "pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local"
    assert addresses(discovered, "internal")["pulsar-broker-0"] == [f"http://{name}:8080"]
    assert discovered.brokers[0].sources["internal", "http"] == ("derived", "pod/pulsar/pulsar-broker-0")
    assert config().internal_listener_name == "internal"
