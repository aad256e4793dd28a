"""The object store kept in step: however objects came, what is found is what they show, and a change touches little."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import OWN, brokers, config, filled, objects, pod, scene

from pulsar_ingress_proxy.discovery.reconciler.derivation import derive
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


@settings(max_examples=300, deadline=None)
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
    assert store.discovered() == fresh.discovered()
    assert (store.hosts, store.unmapped) == (fresh.hosts, fresh.unmapped)


@given(st.lists(st.sampled_from(PALETTE), max_size=20), st.lists(st.sampled_from(PALETTE), max_size=20))
@settings(max_examples=100, deadline=None)
def test_fresh_list_replaces_all_earlier_objects_of_its_kind(old: list[Manifest], new: list[Manifest]) -> None:
    store = filled(ObjectStore(config(), OWN), old)
    store.discovered()
    latest = {identity(obj): obj for obj in new}
    kinds = {identity(obj)[0] for obj in [*old, *new]}
    for kind in kinds:
        store.replace(kind, [obj for key, obj in latest.items() if key[0] == kind])
    assert store.discovered() == filled(ObjectStore(config(), OWN), latest.values()).discovered()


def test_fresh_list_of_one_namespace_keeps_objects_of_other_namespaces() -> None:
    store = scene(brokers())
    assert not store.replace("Pod", [], namespace="edge")
    assert len(store.discovered().brokers) == 2
    assert store.replace("Pod", objects(pod(1)), namespace="pulsar")
    assert len(store.discovered().brokers) == 1


def test_list_items_may_omit_kind_and_api_version() -> None:
    store = scene(brokers())
    items = copy.deepcopy(objects(pod(0)))
    del items[0]["kind"], items[0]["apiVersion"]
    assert store.replace("Pod", items)
    assert len(store.discovered().brokers) == 1


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
    assert store.discovered() is found


def test_put_and_remove_report_no_change_for_irrelevant_objects() -> None:
    store = scene(brokers())
    assert not store.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "pulsar"}})
    assert not store.put({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "x", "namespace": "pulsar"}})
    (other,) = objects(pod(9).replace("component: broker", "component: bookie"))
    assert not store.put(other)
    assert not store.remove("Pod", "pulsar", "pulsar-broker-9")
    assert not store.remove("Ingress", "pulsar", "unheard-of")
    service = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
    metadata = {"name": "x", "namespace": "tenant"}
    assert not store.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})


class Large:
    """A thousand ingresses and three hundred brokers, a third of the ingresses a broker's each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.derivations = 0

        def counted(*arguments: Any) -> Any:
            self.derivations += 1
            return derive(*arguments)

        monkeypatch.setattr("pulsar_ingress_proxy.discovery.reconciler.store.derive", counted)
        pool, *one = objects(brokers(1))
        made = [self.numbered(obj, n) for n in range(300) for obj in one]
        self.store = ObjectStore(config(), OWN)
        self.store.replace("Ingress", [self.ingress(n) for n in range(1000)])
        self.store.replace("Service", [pool, *(obj for obj in made if obj["kind"] == "Service")])
        self.store.replace("Pod", [obj for obj in made if obj["kind"] == "Pod"])
        self.store.discovered()

    @staticmethod
    def numbered(obj: Manifest, n: int) -> Manifest:
        text = json.dumps(obj).replace("broker-0", f"broker-{n}").replace("10.0.0.10", f"10.0.{n // 200}.{n % 200}")
        made: Manifest = json.loads(text)
        return made

    @staticmethod
    def ingress(n: int, host: str = "") -> Manifest:
        backend = {"service": {"name": f"broker-{n}" if n < 300 else "pulsar-broker", "port": {"name": "http"}}}
        rule = {"host": host or f"h{n}.example.com", "http": {"paths": [{"path": "/", "backend": backend}]}}
        annotations = {"pulsar-ingress-proxy/listener": "external"}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": f"i{n}", "namespace": "pulsar", "annotations": annotations},
            "spec": {"ingressClassName": "nginx", "rules": [rule]},
        }

    def derivations_after(self, obj: Manifest) -> int:
        before = self.derivations
        assert self.store.put(obj)
        self.store.discovered()
        return self.derivations - before


def test_one_change_among_many_objects_rederives_only_affected_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Large(monkeypatch)
    assert large.derivations == 1000  # each once, though services and pods came after the ingresses
    found = large.store.discovered()
    assert len(found.ingresses) == 1000
    assert sum("external" in broker.listeners for broker in found.brokers) == 300

    assert large.derivations_after(large.ingress(7, "new.example.com")) == 1
    moved = large.numbered(objects(pod(0))[0], 7)
    moved["status"]["podIP"] = "10.9.9.9"
    assert large.derivations_after(moved) == 1
    another = large.numbered(objects(brokers(1))[1], 300)
    assert large.derivations_after(another) == 0  # a broker that has no route
    (service,) = (obj for obj in objects(brokers(1)) if obj["metadata"]["name"] == "broker-0")
    changed = large.numbered(service, 7)
    changed["spec"]["ports"] = changed["spec"]["ports"][:1]
    assert large.derivations_after(changed) == 1
    assert sum(broker.names[-1] == "10.9.9.9" for broker in large.store.discovered().brokers) == 1


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
    store.discovered()
    for obj in PALETTE:
        store.remove(*identity(obj))
        store.discovered()
    kept = {**vars(store), **vars(store._membership)}
    assert {name: value for name, value in kept.items() if isinstance(value, dict | set) and value} == {
        "_pools": {("Service", "pulsar", "pulsar-broker")}
    }
