"""Which pods are brokers, and what they call themselves."""

import pytest
from scenes import POOL, brokers, objects, own_service, pod, reported, scene

from pulsar_ingress_proxy.routing.discovered import Discovered

FULL = "pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local"

SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: SERVICE-abc, namespace: pulsar, labels: {kubernetes.io/service-name: SERVICE}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: pulsar, port: 6650}]
endpoints: [ENDPOINTS]
"""


def names(discovered: Discovered) -> list[tuple[str, ...]]:
    return [broker.names for broker in discovered.brokers]


def slice_(endpoints: str, service: str = "pulsar-broker") -> str:
    return SLICE.replace("SERVICE", service).replace("ENDPOINTS", endpoints)


def test_broker_pod_is_known_by_all_its_dns_names_and_its_ip() -> None:
    assert names(scene(brokers(1)).discovered()) == [
        (
            FULL,
            "pulsar-broker-0.pulsar-broker.pulsar.svc",
            "pulsar-broker-0.pulsar-broker.pulsar",
            "pulsar-broker-0.pulsar-broker",
            "pulsar-broker-0",
            "10.0.0.10",
        )
    ]


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("http://pulsar-broker.pulsar:8080", "cluster.local"),
        ("http://pulsar-broker.pulsar.svc:8080", "cluster.local"),
        ("http://pulsar-broker.pulsar.svc.k8s.corp.example:8080", "k8s.corp.example"),
        ("http://pulsar-broker-0.pulsar-broker.pulsar.svc.k8s.corp.example:8080", "k8s.corp.example"),
    ],
)
def test_web_service_url_of_any_form_names_the_service_and_cluster_domain(url: str, domain: str) -> None:
    discovered = scene(brokers(1), changes=f"brokers: {{webServiceUrl: ['{url}']}}").discovered()
    assert names(discovered)[0][0] == f"pulsar-broker-0.pulsar-broker.pulsar.svc.{domain}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            "brokers: {webServiceUrl: ['http://pulsar.example.com']}",
            "no URL of the config names a Service",
            id="public",
        ),
        pytest.param(
            "brokers: {webServiceUrl: ['http://10.0.0.1:8080']}", "no URL of the config names", id="an address"
        ),
        pytest.param(
            "brokers: {webServiceUrl: ['http://nobody.pulsar']}", "service/pulsar/nobody is not there", id="no Service"
        ),
        pytest.param(
            "{brokers: {webServiceUrl: ['http://pulsar-broker.pulsar']}, kubernetes: {brokerSelector: a=b}}",
            "no pod in pulsar has the labels of kubernetes.brokerSelector",
            id="no label",
        ),
    ],
)
def test_reason_is_reported_when_no_broker_is_found(changes: str, said: str) -> None:
    discovered = scene(brokers(1), changes=changes).discovered()
    assert discovered.brokers == ()
    assert [said in line for line in reported(discovered)] == [True]


def test_broker_service_without_pods_is_reported() -> None:
    assert reported(scene(POOL).discovered()) == [
        "brokers: service/pulsar/pulsar-broker leads to no pod: no broker is found"
    ]


def test_broker_selector_decides_which_pods_are_brokers() -> None:
    proxies = pod(5).replace("component: broker", "component: proxy")
    discovered = scene(brokers(1), proxies, changes="kubernetes: {brokerSelector: component in (proxy)}").discovered()
    assert [one[-1] for one in names(discovered)] == ["10.0.0.15"]


def test_a_pod_without_a_subdomain_is_dialled_by_its_address() -> None:
    text = pod(0).replace("  hostname: pulsar-broker-0\n  subdomain: pulsar-broker\n", "")
    discovered = scene(POOL, text).discovered()
    assert names(discovered) == [("10.0.0.10", "pulsar-broker-0")]
    assert str(discovered.brokers[0].listeners["internal"]["http"]) == "http://10.0.0.10:8080"


def test_ipv4_and_ipv6_addresses_of_a_pod_are_both_broker_names() -> None:
    text = pod(0).replace("podIP: 10.0.0.10", "podIPs: [{ip: 10.0.0.10}, {ip: 'fd00:0:0::a'}]")
    assert names(scene(POOL, text).discovered())[0][-2:] == ("10.0.0.10", "[fd00::a]")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_succeeded_or_failed_pod_is_not_a_broker(phase: str) -> None:
    assert names(scene(POOL, pod(0).replace("Running", phase)).discovered()) == []


def test_brokers_come_from_endpoint_slices_when_pods_are_not_watched() -> None:
    endpoints = """
    {addresses: [10.0.0.10], hostname: pulsar-broker-0, targetRef: {kind: Pod, name: pulsar-broker-0}},
    {addresses: [10.0.0.11], targetRef: {kind: Pod, name: pulsar-broker-1}, conditions: {ready: false}},
    {addresses: [192.0.2.1]}
    """
    discovered = scene(POOL, slice_(endpoints)).discovered()
    assert [one[0] for one in names(discovered)] == ["192.0.2.1", FULL, "10.0.0.11"]
    assert str(discovered.brokers[0].listeners["internal"]["pulsar"]) == "pulsar://192.0.2.1:6650"


def test_endpoints_of_missing_pods_are_ignored_while_pods_are_watched() -> None:
    endpoints = "{addresses: [10.0.0.99], targetRef: {kind: Pod, name: pulsar-broker-9}}, {addresses: [192.0.2.1]}"
    store = scene(POOL, pod(0), slice_(endpoints))
    assert [one[0] for one in names(store.discovered())] == ["192.0.2.1", FULL]
    store.remove("Pod", "pulsar", "pulsar-broker-0")
    assert [one[0] for one in names(store.discovered())] == ["192.0.2.1", "10.0.0.99"]


def test_terminating_pod_yields_its_service_address_to_its_successor() -> None:
    ingress = """
    apiVersion: networking.k8s.io/v1
    kind: Ingress
    metadata: {name: only, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: external}}
    spec:
      ingressClassName: nginx
      rules:
        - host: only.example.com
          http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: only, port: {name: http}}}}]}
    """
    service = (
        own_service(0)
        .replace("name: broker-0", "name: only")
        .replace(", statefulset.kubernetes.io/pod-name: pulsar-broker-0", "")
    )
    store = scene(POOL, pod(0), service, ingress)

    def holders() -> list[str]:
        return [broker.names[-1] for broker in store.discovered().brokers if "external" in broker.listeners]

    assert holders() == ["10.0.0.10"]
    for obj in objects(pod(0, "deletionTimestamp: 2026-01-01T00:00:00Z")):
        assert store.put(obj)
    assert holders() == ["10.0.0.10"]  # nobody else is there
    for obj in objects(pod(1)):
        assert store.put(obj)
    assert holders() == ["10.0.0.11"]
    assert [len(broker.listeners) for broker in store.discovered().brokers] == [1, 2]  # it still answers to its names


def test_service_without_selector_leads_to_the_brokers_of_its_endpoints() -> None:
    manual = """
    apiVersion: v1
    kind: Service
    metadata:
      name: manual
      namespace: pulsar
      annotations: {pulsar-ingress-proxy/listener: external}
    spec: {type: LoadBalancer, ports: [{name: http, port: 8080}]}
    status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}
    """
    endpoint = "{addresses: [10.0.0.11], targetRef: {kind: Pod, name: pulsar-broker-1}}"
    discovered = scene(brokers(2), manual, slice_(endpoint, "manual")).discovered()
    assert ["external" in broker.listeners for broker in discovered.brokers] == [False, True]
