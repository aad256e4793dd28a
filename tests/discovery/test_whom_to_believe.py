"""Whom discovery believes: nobody gets at a listener, or at clients' tokens, by writing objects where he may."""

from typing import Any

import pytest
from scenes import POOL, addresses, brokers, config, fill, ingresses, objects, pod, reported, scene

from pulsar_ingress_proxy.discovery.reconciler.store import PodIdentity
from pulsar_ingress_proxy.routing.snapshot import build

INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: broker-0
  namespace: NAMESPACE
  annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}
spec:
  ingressClassName: CLASS
  rules:
    - host: HOST
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: broker-0, port: {name: http}}}}]}
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: mine, namespace: NAMESPACE, annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}}
spec:
  parentRefs: [{name: public, namespace: edge}]
  hostnames: [HOST]
  rules: [{backendRefs: [{name: broker-0, namespace: pulsar, port: 8080}]}]
"""

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: mine
  namespace: NAMESPACE
  annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}
spec: {type: LoadBalancer, selector: {component: broker}, ports: [{name: http, port: 8080}]}
status: {loadBalancer: {ingress: [{hostname: mine.example.com}]}}
"""

URL = "pulsar-ingress-proxy/external-url: 'https://mine.example.com'"


def ingress(
    namespace: str = "pulsar", class_: str = "nginx", host: str = "b0.example.com", annotations: str = ""
) -> str:
    return fill(INGRESS, namespace=namespace, host=host, annotations=annotations).replace("CLASS", class_)


@pytest.mark.parametrize("annotations", ["", URL])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(fill(ROUTE, host="mine.example.com"), id="a route to a broker's Service"),
        pytest.param(fill(SERVICE), id="a Service with the brokers' labels"),
        pytest.param(fill(INGRESS, host="mine.example.com").replace("CLASS", "nginx"), id="an Ingress"),
    ],
)
def test_no_address_comes_from_a_namespace_that_is_neither_the_brokers_nor_the_gateways(
    text: str, annotations: str
) -> None:
    own_pod = pod(0).replace("namespace: pulsar", "namespace: tenant")
    # Watched, and yet not believed.
    discovered = scene(
        brokers(), GATEWAY, own_pod, fill(text, namespace="tenant", annotations=annotations)
    ).discovered()
    assert addresses(discovered) == {}
    assert discovered.brokers == scene(brokers()).discovered().brokers
    # Not watched: as if it were not there.
    discovered = scene(
        brokers(), GATEWAY, own_pod, fill(text, namespace="unwatched", annotations=annotations)
    ).discovered()
    assert discovered == scene(brokers(), GATEWAY).discovered()


@pytest.mark.parametrize("namespace", ["pulsar", "edge"])
def test_addresses_come_from_the_brokers_namespace_and_the_gateways(namespace: str) -> None:
    text = fill(ROUTE, namespace=namespace, host="b0.example.com", annotations="")
    assert addresses(scene(brokers(), GATEWAY, text).discovered()) == {"pulsar-broker-0": ["http://b0.example.com"]}


def test_pods_outside_the_broker_namespace_are_never_brokers() -> None:
    elsewhere = pod(7).replace("namespace: pulsar", "namespace: tenant")
    for changes in ("", "kubernetes: {brokerSelector: component=broker}"):
        discovered = scene(brokers(), elsewhere, changes=changes).discovered()
        assert [broker.names[-1] for broker in discovered.brokers] == ["10.0.0.10", "10.0.0.11"]


def test_external_url_of_an_untrusted_gateway_is_ignored() -> None:
    """Without a list every annotated gateway counts, but not what it says about where brokers are."""
    theirs = GATEWAY.replace("edge}", f"tenant, annotations: {{pulsar-ingress-proxy/listener: external, {URL}}}}}")
    route = fill(ROUTE, namespace="pulsar", host="b0.example.com", annotations="").replace("edge}]", "tenant}]")
    discovered = scene(brokers(), theirs, route, changes="kubernetes: {gateways: []}").discovered()
    assert addresses(discovered) == {"pulsar-broker-0": ["http://b0.example.com"]}


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("b0.pulsar.example.com", True),
        ("pulsar.example.com", True),
        ("b0.example.com", False),
        ("evilpulsar.example.com", False),
        ("pulsar.example.com.evil.example", False),
    ],
)
@pytest.mark.parametrize("suffix", ["pulsar.example.com", ".pulsar.example.com", "'*.Pulsar.example.com'"])
def test_hosts_must_fall_under_the_allowed_suffixes(suffix: str, host: str, is_allowed: bool) -> None:
    changes = f"kubernetes: {{allowedHostSuffixes: [other.example, {suffix}]}}"
    discovered = scene(brokers(), ingress(host=host), changes=changes).discovered()
    assert addresses(discovered) == ({"pulsar-broker-0": [f"http://{host}"]} if is_allowed else {})
    assert ingresses(discovered) == ({"ingress/pulsar/broker-0": ("external", [host])} if is_allowed else {})
    assert all("is not under kubernetes.allowedHostSuffixes: left out" in line for line in reported(discovered))
    assert bool(reported(discovered)) is not is_allowed


def test_an_annotation_does_not_get_around_the_allowed_suffixes() -> None:
    changes = "kubernetes: {allowedHostSuffixes: [pulsar.example.com]}"
    discovered = scene(brokers(), ingress(host="b0.pulsar.example.com", annotations=URL), changes=changes).discovered()
    assert addresses(discovered) == {}
    assert "https://mine.example.com is not under kubernetes.allowedHostSuffixes" in reported(discovered)[0]


def test_host_of_an_ingress_of_another_class_is_unknown_to_this_sidecar() -> None:
    private = ingress(class_="nginx-private", host="private.example.com").replace("external", "private")
    public = ingress(host="pulsar.example.com").replace("name: broker-0\n", "name: public\n")
    own = config()
    snapshot = build(own, 1, scene(brokers(), private, public).discovered())
    assert snapshot.ingresses.by_host("private.example.com") is None
    assert "private" not in snapshot.known_listeners
    found = snapshot.ingresses.by_host("pulsar.example.com")
    assert found is not None
    assert found.listener == "external"


def test_ingress_of_an_untrusted_namespace_cannot_take_a_host_or_set_a_listener() -> None:
    theirs = ingress("tenant", host="pulsar.example.com").replace("external", "internal")
    ours = ingress(host="pulsar.example.com")
    discovered = scene(brokers(), theirs, ours).discovered()
    assert ingresses(discovered) == {"ingress/pulsar/broker-0": ("external", ["pulsar.example.com"])}
    # Nor does it give a listener to somebody else's route.
    bare = ours.replace("pulsar-ingress-proxy/listener: external,", "")
    discovered = scene(brokers(), theirs, bare).discovered()
    assert addresses(discovered, "internal") == addresses(scene(brokers()).discovered(), "internal")


def test_configured_ingress_keeps_its_hosts_against_discovered_ones() -> None:
    written = "ingresses: [{name: mine, hosts: ['*.example.com'], listener: partner, expose: [lookup]}]"
    discovered = scene(brokers(), ingress(), changes=written).discovered()
    snapshot = build(config(written), 1, discovered)
    found = snapshot.ingresses.by_host("b0.example.com")
    assert found is not None
    assert (found.name, found.expose) == ("mine", frozenset(["lookup"]))
    said = [f"{conflict.subject}: {conflict.text}" for conflict in snapshot.conflicts]
    assert said == [
        "b0.example.com: is of ingress 'mine' (partner) by the config, not of ingress/pulsar/broker-0 (external)"
    ]


def test_only_our_own_namespace_is_seen_when_namespaces_is_empty() -> None:
    text = ingress("edge")
    assert ingresses(scene(text, changes="kubernetes: {namespaces: []}").discovered()) != {}
    assert (
        ingresses(scene(text, changes="kubernetes: {namespaces: []}", own=PodIdentity("elsewhere")).discovered()) == {}
    )
    discovered = scene(brokers(), changes="kubernetes: {namespaces: []}").discovered()
    assert reported(discovered) == [
        "brokers: namespace pulsar of service/pulsar/pulsar-broker is not watched: add it to kubernetes.namespaces"
    ]


NONSENSE: list[Any] = [None, [], "text", 7, {"rules": 7}, {"rules": [7], "listeners": {}, "ports": [{"port": "x"}]}]


def test_malformed_objects_do_not_raise_and_leave_no_trace_once_removed() -> None:
    """A file, or a CRD without a schema, may hold anything."""
    store = scene(brokers())
    before = store.discovered()
    for text in (INGRESS, ROUTE, SERVICE, GATEWAY, POOL.replace("name: pulsar-broker", "name: other"), pod(9)):
        (obj,) = objects(
            fill(text, namespace="pulsar", annotations="", host="h.example").replace("name: broker-0\n", "name: x\n")
        )
        for nonsense in NONSENSE:
            for part in ("spec", "status"):
                store.put({**obj, part: nonsense})
            store.put({**obj, "metadata": {**obj["metadata"], "annotations": nonsense, "labels": nonsense}})
            store.discovered()
        kind = obj["kind"]
        store.remove(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        assert not store.put({**obj, "metadata": None})
    assert store.discovered() == before
