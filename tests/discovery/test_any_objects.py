"""Objects of any content: a CRD without a schema, or a file, may hold anything under the keys that discovery reads."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scenes import brokers, scene

from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS, Kind

KEYS = st.sampled_from((
    "name", "namespace", "annotations", "labels", "selector", "hosts", "host", "hostnames", "hostname", "http",
    "https", "tls", "tcp", "paths", "path", "backend", "service", "port", "ports", "number", "targetPort", "protocol",
    "parentRefs", "sectionName", "listeners", "servers", "gateways", "route", "match", "sniHosts", "backendRefs",
    "rules", "weight", "ingressClassName", "loadBalancer", "ingress", "ip", "type", "allowedRoutes", "namespaces",
    "from", "endpoints", "addresses", "conditions", "ready", "targetRef", "kind", "podIP", "podIPs", "phase",
    "subdomain", "exportTo", "destination", "parentRef", "allowedListeners", "status",
))  # fmt: skip
TEXTS = st.sampled_from(("", "*", "*.example.com", "b0.example.com", "external", "pulsar", "pulsar-broker", "80"))
CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=16,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["listener", "expose", "allowed-listeners", "lookup-properties", "external-url"]).map(
        "pulsar-ingress-proxy/{}".format
    ),
    TEXTS | CONTENT,
    max_size=3,
)


@given(st.sampled_from(KINDS), ANNOTATIONS, CONTENT, CONTENT, st.dictionaries(KEYS, CONTENT, max_size=3))
def test_objects_of_any_content_are_read_without_an_exception(
    kind: Kind, annotations: dict[str, Any], spec: Any, status: Any, rest: dict[str, Any]
) -> None:
    store = scene(brokers())
    before = store.discovered()
    metadata = {"name": "x", "namespace": "pulsar", "annotations": annotations, "labels": rest.get("labels")}
    version = f"{kind.group}/{kind.versions[0]}".removeprefix("/")
    store.put({**rest, "apiVersion": version, "kind": kind.kind, "metadata": metadata, "spec": spec, "status": status})
    store.discovered()
    store.remove(kind.name, "pulsar", "x")
    assert store.discovered() == before
