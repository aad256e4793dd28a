"""The object store: however objects came, what is found is what they show."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import OWN, brokers, config, filled, objects, pod, scene

from pulsar_ingress_proxy.discovery.reconciler.kinds import kind_of
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore
from pulsar_ingress_proxy.routing.discovered import Discovered

Manifest = dict[str, Any]

ROUTES = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: external}}
spec:
  ingressClassName: nginx
  rules:
    - {host: b0.example.com, http: {paths: [{path: /, backend: {service: {name: broker-0, port: {name: http}}}}]}}
    - {host: b1.example.com, http: {paths: [{path: /, backend: {service: {name: broker-1, port: {name: http}}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: partner}}
spec:
  ingressClassName: nginx
  rules: [{host: b0.example.com, http: {paths: [{path: /, backend: {service: {name: broker-1, port: {name: http}}}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: two, namespace: pulsar, annotations: {}}
spec:
  ingressClassName: nginx
  rules: [{host: b1.example.com, http: {paths: [{path: /, backend: {service: {name: broker-0, port: {name: http}}}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge, annotations: {pulsar-ingress-proxy/listener: external}}
spec: {listeners: [{name: web, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  listeners:
    - {name: web, port: 80, protocol: HTTP, hostname: "*.example.com", allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: broker-0, namespace: edge}
spec:
  parentRefs: [{name: public}]
  hostnames: [b0.example.com]
  rules: [{backendRefs: [{name: broker-0, namespace: pulsar, port: 8080}]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: edge, annotations: {pulsar-ingress-proxy/listener: partner}}
spec:
  selector: {istio: public}
  servers: [{port: {number: 9443, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broker-1, namespace: pulsar}
spec:
  gateways: [edge/public]
  hosts: [b1.partner.example]
  tls: [{match: [{sniHosts: [b1.partner.example]}], route: [{destination: {host: broker-1, port: {number: 6651}}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: edge}
spec: {type: LoadBalancer, selector: {istio: public}, ports: [{port: 6651, targetPort: 9443}]}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: edge}
spec: {type: LoadBalancer, selector: {istio: other}, ports: [{port: 6651, targetPort: 9443}]}
---
apiVersion: v1
kind: Service
metadata: {name: broker-1, namespace: pulsar}
spec: {selector: {component: broker}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: broker-0, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: external}}
spec:
  type: LoadBalancer
  selector: {statefulset.kubernetes.io/pod-name: pulsar-broker-0}
  ports: [{name: http, port: 8080}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}
---
apiVersion: v1
kind: Service
metadata: {name: pulsar-broker, namespace: pulsar}
spec: {ports: [{name: http, port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: pulsar, labels: {kubernetes.io/service-name: pulsar-broker}}
ports: [{name: http, port: 8080}]
endpoints:
  - {addresses: [10.0.0.10], targetRef: {kind: Pod, name: pulsar-broker-0}, hostname: pulsar-broker-0}
  - {addresses: [192.0.2.1]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: pulsar, labels: {kubernetes.io/service-name: broker-0}}
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [192.0.2.1]}]
"""

PODS = [
    *objects(pod(0)),
    *objects(pod(0, ip="10.0.0.77")),
    *objects(pod(0, "deletionTimestamp: 2026-01-01T00:00:00Z")),
    *objects(pod(1).replace("component: broker", "component: other")),
    *objects(pod(2).replace("Running", "Failed").replace("pulsar-broker-2", "pulsar-broker-1")),
]
PALETTE = [*objects(brokers()), *objects(ROUTES), *PODS]

Step = tuple[str, Manifest]
steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "remove", "look"]), st.sampled_from(PALETTE)), min_size=1, max_size=40
)


def identity(obj: Manifest) -> tuple[str, str, str]:
    kind = kind_of(obj)
    assert kind is not None
    return kind.name, obj["metadata"]["namespace"], obj["metadata"]["name"]


@settings(max_examples=300)
@given(steps)
def test_discovered_state_depends_only_on_current_objects_not_on_event_order(sequence: list[Step]) -> None:
    store, there = ObjectStore(config(), OWN), dict[tuple[str, str, str], Manifest]()
    seen: Discovered | None = None
    for verb, obj in sequence:
        before = store.discovered() if verb == "look" else None
        if verb == "put":
            there[identity(obj)] = obj
            changed = store.put(obj)
        elif verb == "remove":
            there.pop(identity(obj), None)
            changed = store.remove(*identity(obj))
        else:
            changed = False
            assert seen is None or before == store.discovered()
        if not changed and seen is not None:
            assert store.discovered() == seen, f"{verb} {identity(obj)} changed what is found and did not say so"
        seen = store.discovered() if verb == "look" or not changed else None
    fresh = filled(ObjectStore(config(), OWN), reversed(there.values()))
    assert store.reconciled() == fresh.reconciled()


NOISE = [
    pytest.param(lambda obj: obj["metadata"].update(resourceVersion="2", generation=3, uid="x"), id="resourceVersion"),
    pytest.param(lambda obj: obj["metadata"].update(managedFields=[{"manager": "kubectl"}]), id="managedFields"),
    pytest.param(lambda obj: obj["metadata"].setdefault("annotations", {}).update(note="x"), id="an annotation"),
    pytest.param(lambda obj: obj.setdefault("status", {}).update(observedGeneration=7), id="status"),
    pytest.param(lambda obj: obj.setdefault("status", {}).update(conditions=[{"type": "Ready"}]), id="conditions"),
]


@pytest.mark.parametrize("change", NOISE)
def test_put_reports_no_change_when_only_irrelevant_fields_differ(change: Any) -> None:
    store = scene(brokers(), ROUTES)
    found = store.discovered()
    latest = {identity(obj): obj for obj in [*objects(brokers()), *objects(ROUTES)]}
    for obj in latest.values():
        noisy = copy.deepcopy(obj)
        change(noisy)
        assert not store.put(noisy), identity(obj)
    assert store.discovered() == found


def test_put_and_remove_report_no_change_for_objects_outside_the_scope() -> None:
    store = scene(brokers())
    assert not store.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "pulsar"}})
    assert not store.put({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "x", "namespace": "pulsar"}})
    metadata = {"name": "x", "namespace": "elsewhere"}
    assert not store.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {}}})
    assert not store.remove("Pod", "pulsar", "pulsar-broker-9")
    assert not store.remove("Ingress", "pulsar", "unheard-of")


def test_pods_and_services_that_are_not_brokers_change_nothing() -> None:
    store = scene(brokers())
    found = store.discovered()
    (other,) = objects(pod(9).replace("component: broker", "component: bookie"))
    store.put(other)
    service = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
    store.put(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "namespace": "pulsar"}, "spec": service}
    )
    assert store.discovered() == found


def test_reconciler_sees_the_objects_of_the_moment_it_was_asked_for() -> None:
    store = scene(brokers())
    reconcile = store.reconciler()
    store.remove("Pod", "pulsar", "pulsar-broker-0")
    assert len(reconcile().discovered.brokers) == 2
    assert len(store.discovered().brokers) == 1


def test_put_reports_no_change_when_only_managed_fields_and_env_of_a_pod_grow() -> None:
    (obj,) = objects(pod(0))
    large = copy.deepcopy(obj)
    large["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{n}": {} for n in range(1000)}}]
    large["spec"]["containers"][0]["env"] = [{"name": f"N{n}", "value": "x" * 100} for n in range(1000)]
    store = scene(brokers())
    store.put(obj)
    assert not store.put(large)


def test_object_store_keeps_nothing_of_removed_objects() -> None:
    store = scene(brokers(), ROUTES)
    for obj in PALETTE:
        store.remove(*identity(obj))
    assert not store._objects
