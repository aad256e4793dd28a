"""Object → ingress: which objects become ingresses, with which hosts, on which listener."""

import pytest
from scenes import OWN, brokers, fill, ingresses, reported, scene

from pulsar_ingress_proxy.discovery.reconciler.store import PodIdentity

INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: public
  namespace: pulsar
  annotations: {{pulsar-ingress-proxy/listener: external}}
spec:
  {spec}
"""
SIDECAR = "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: sidecar, port: {number: 80}}}}]}"

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge, annotations: {ANNOTATIONS}}
spec:
  gatewayClassName: envoy
  listeners:
    - name: plain
      port: 80
      protocol: HTTP
      hostname: pulsar.example.com
      allowedRoutes: {namespaces: {from: All}}
    - name: web
      port: 443
      protocol: HTTPS
      hostname: "*.pulsar.example.com"
      tls: {mode: Terminate, certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: All}}
    - name: partners
      port: 443
      protocol: HTTPS
      hostname: pulsar.partner.example
      tls: {certificateRefs: [{name: cert}]}
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: main, namespace: pulsar, annotations: {ANNOTATIONS}}
spec:
  parentRefs: [PARENT]
  hostnames: [HOSTS]
  rules: [{backendRefs: [{name: sidecar, port: 80}]}]
"""

ISTIO_GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: pulsar, namespace: edge, annotations: {ANNOTATIONS}}
spec:
  selector: {istio: public}
  servers:
    - port: {number: 80, name: http, protocol: HTTP}
      hosts: ["pulsar.example.com"]
      tls: {httpsRedirect: true}
    - port: {number: 443, name: https, protocol: HTTPS}
      tls: {mode: SIMPLE, credentialName: cert}
      hosts: ["pulsar/*.pulsar.example.com", "*/pulsar.example.com"]
    - port: {number: 6651, name: tls-pulsar, protocol: TLS}
      tls: {mode: PASSTHROUGH}
      hosts: ["./*.binary.example.com"]
"""

VIRTUAL_SERVICE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: main, namespace: pulsar, annotations: {ANNOTATIONS}}
spec:
  gateways: [GATEWAYS]
  hosts: [HOSTS]
  http: [{route: [{destination: {host: sidecar, port: {number: 80}}}]}]
"""

LISTENER = "pulsar-ingress-proxy/listener: "


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [
        pytest.param(
            f"{{ingressClassName: nginx, rules: [{{host: A.Example., {SIDECAR}}}, {{host: '*.b.c', {SIDECAR}}}]}}",
            ["a.example", "*.b.c"],
            id="hosts of its rules, in lower case and without the root's dot",
        ),
        pytest.param(
            f"{{ingressClassName: nginx, tls: [{{hosts: [a.b, c.d]}}], rules: [{{host: a.b, {SIDECAR}}}]}}",
            ["a.b"],
            id="a host of its certificate is no host of its own",
        ),
        pytest.param(
            f"{{ingressClassName: nginx, tls: [{{hosts: [a.example]}}], rules: [{{{SIDECAR}}}]}}",
            ["a.example"],
            id="unless its rule takes every host",
        ),
        pytest.param(f"{{ingressClassName: nginx, rules: [{{{SIDECAR}}}]}}", ["*"], id="every host"),
        pytest.param(
            "{ingressClassName: nginx, defaultBackend: {service: {name: sidecar, port: {number: 80}}}}",
            ["*"],
            id="every host by a default backend",
        ),
        pytest.param(
            "{ingressClassName: nginx, rules: [{host: a.example}], defaultBackend: {service: {name: sidecar}}}",
            ["a.example"],
            id="a host with a default backend",
        ),
        pytest.param(f"{{ingressClassName: other, rules: [{{host: a.example, {SIDECAR}}}]}}", None, id="another class"),
        pytest.param(f"{{rules: [{{host: a.example, {SIDECAR}}}]}}", None, id="no class"),
    ],
)
def test_ingress_of_our_class_takes_the_hosts_of_its_rules(spec: str, hosts: list[str] | None) -> None:
    found = ingresses(scene(INGRESS.format(spec=spec).replace("spec:\n  {", "spec: {")).discovered())
    assert found == ({} if hosts is None else {"ingress/pulsar/public": ("external", hosts)})


def test_ingress_class_may_be_given_by_annotation() -> None:
    text = INGRESS.format(spec=f"rules: [{{host: a.example, {SIDECAR}}}]").replace(
        "listener: external", "listener: external, kubernetes.io/ingress.class: nginx"
    )
    assert ingresses(scene(text).discovered()) == {"ingress/pulsar/public": ("external", ["a.example"])}


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        pytest.param(
            "external",
            {"external": ["pulsar.example.com", "*.pulsar.example.com", "pulsar.partner.example"]},
            id="the whole gateway",
        ),
        pytest.param(
            "'plain=external,web=external,partners=partner'",
            {"external": ["pulsar.example.com", "*.pulsar.example.com"], "partner": ["pulsar.partner.example"]},
            id="by section",
        ),
        pytest.param("'partners = partner'", {"partner": ["pulsar.partner.example"]}, id="one section alone"),
        pytest.param(
            "'external,partners=partner'",
            {"external": ["pulsar.example.com", "*.pulsar.example.com"], "partner": ["pulsar.partner.example"]},
            id="all sections but one",
        ),
    ],
)
def test_gateway_annotation_maps_all_or_named_sections_to_listeners(
    annotations: str, found: dict[str, list[str]]
) -> None:
    discovered = scene(fill(GATEWAY, annotations=LISTENER + annotations)).discovered()
    assert {one.listener: list(one.hosts) for one in discovered.ingresses} == found
    assert {one.name for one in discovered.ingresses} == {"gateway/edge/public"}


def test_gateway_section_without_hostname_serves_every_allowed_host() -> None:
    text = fill(GATEWAY, annotations=LISTENER + "'plain=external'").replace("      hostname: pulsar.example.com\n", "")
    assert ingresses(scene(text).discovered()) == {"gateway/edge/public": ("external", ["*"])}
    narrowed = scene(text, changes="kubernetes: {allowedHostSuffixes: [pulsar.example.com]}").discovered()
    assert ingresses(narrowed) == {"gateway/edge/public": ("external", ["pulsar.example.com", "*.pulsar.example.com"])}


def test_unknown_section_in_the_listener_annotation_is_reported() -> None:
    discovered = scene(fill(GATEWAY, annotations=LISTENER + "'web=external,wbe=partner'")).discovered()
    assert reported(discovered)[1:] == [
        "gateway/edge/public: pulsar-ingress-proxy/listener: there is no section 'wbe'; there are partners, plain, web"
    ]


def test_host_given_to_two_listeners_by_two_sections_is_on_neither() -> None:
    text = fill(GATEWAY, annotations=LISTENER + "'plain=external,partners=partner'").replace(
        "pulsar.partner.example", "pulsar.example.com"
    )
    discovered = scene(text).discovered()
    assert discovered.ingresses == ()
    said = (
        "pulsar.example.com: is of gateway/edge/public (external) and gateway/edge/public (partner): used for neither"
    )
    assert said in reported(discovered)


@pytest.mark.parametrize(
    ("parent", "hosts", "found"),
    [
        pytest.param("{name: public, namespace: edge}", "b.pulsar.example.com", ["b.pulsar.example.com"], id="within"),
        pytest.param(
            "{name: public, namespace: edge}",
            "b.pulsar.example.com, elsewhere.example.org",
            ["b.pulsar.example.com"],
            id="a host that no section has",
        ),
        pytest.param(
            "{name: public, namespace: edge}",
            "'*.example.com'",
            ["pulsar.example.com", "*.pulsar.example.com"],
            id="wider",
        ),
        pytest.param("{name: public, namespace: edge}", "", ["pulsar.example.com", "*.pulsar.example.com"], id="any"),
        pytest.param("{name: public, namespace: edge, sectionName: plain}", "", ["pulsar.example.com"], id="section"),
        pytest.param("{name: public, namespace: edge, port: 443}", "", ["*.pulsar.example.com"], id="port"),
        pytest.param(
            "{name: public, namespace: edge}",
            "pulsar.partner.example",
            None,
            id="a section for its own namespace alone",
        ),
        pytest.param("{name: public, namespace: edge}", "'not a host'", None, id="no host is not every host"),
        pytest.param("{name: public}", "b.pulsar.example.com", None, id="a gateway of its own namespace"),
        pytest.param("{name: private, namespace: edge}", "b.pulsar.example.com", None, id="another gateway"),
        pytest.param(
            "{name: public, namespace: edge, kind: Service, group: ''}", "b.pulsar.example.com", None, id="a mesh route"
        ),
    ],
)
def test_http_route_takes_only_hosts_that_its_gateway_sections_allow(
    parent: str, hosts: str, found: list[str] | None
) -> None:
    route = fill(ROUTE, annotations=LISTENER + "partner", parent=parent, hosts=hosts)
    discovered = scene(fill(GATEWAY, annotations=""), route).discovered()
    assert ingresses(discovered) == ({} if found is None else {"httproute/pulsar/main": ("partner", found)})


def test_a_route_whose_gateway_is_listed_but_not_seen_still_has_its_hosts() -> None:
    route = fill(ROUTE, annotations=LISTENER + "external", parent="{name: public, namespace: edge}", hosts="a.example")
    assert ingresses(scene(route).discovered()) == {"httproute/pulsar/main": ("external", ["a.example"])}


def test_route_refused_by_its_gateway_is_not_an_ingress() -> None:
    parent = "{name: public, namespace: edge}"
    route = fill(ROUTE, annotations=LISTENER + "external", parent=parent, hosts="b.pulsar.example.com")
    status = "status: {parents: [{parentRef: PARENT, conditions: [{type: Accepted, status: 'False'}]}]}"
    assert ingresses(scene(fill(GATEWAY, annotations=""), route + fill(status, parent=parent)).discovered()) == {}


def test_listener_of_a_route_overrides_that_of_its_gateway_for_its_hosts() -> None:
    parent = "{name: public, namespace: edge, sectionName: plain}"
    route = fill(ROUTE, annotations=LISTENER + "partner", parent=parent, hosts="")
    discovered = scene(fill(GATEWAY, annotations=LISTENER + "external"), route).discovered()
    assert ingresses(discovered) == {
        "httproute/pulsar/main": ("partner", ["pulsar.example.com"]),
        "gateway/edge/public": ("external", ["*.pulsar.example.com", "pulsar.partner.example"]),
    }


def test_tcp_section_without_hostname_is_not_an_ingress_for_every_host() -> None:
    gateway = fill(GATEWAY, annotations=LISTENER + "'plain=external'").replace("protocol: HTTP\n", "protocol: TCP\n")
    gateway = gateway.replace("      hostname: pulsar.example.com\n", "")
    route = fill(
        ROUTE, annotations=LISTENER + "partner", parent="{name: public, namespace: edge, sectionName: plain}", hosts=""
    )
    discovered = scene(gateway, route.replace("HTTPRoute", "TCPRoute").replace("io/v1\n", "io/v1alpha2\n")).discovered()
    assert discovered.ingresses == ()


@pytest.mark.parametrize(
    ("kind", "mode", "is_ingress"),
    [
        ("TLSRoute", "Passthrough", True),
        ("TLSRoute", "Terminate", True),
        ("TCPRoute", "Terminate", True),
        ("TCPRoute", "Passthrough", False),
    ],
)
def test_tls_and_tcp_routes_take_the_host_of_a_tls_section_whose_mode_admits_them(
    kind: str, mode: str, is_ingress: bool
) -> None:
    gateway = fill(GATEWAY, annotations="").replace("protocol: HTTPS", "protocol: TLS").replace("Terminate", mode)
    route = fill(
        ROUTE, annotations=LISTENER + "external", parent="{name: public, namespace: edge, sectionName: web}", hosts=""
    )
    found = ingresses(scene(gateway, route.replace("HTTPRoute", kind)).discovered())
    assert found == ({f"{kind.lower()}/pulsar/main": ("external", ["*.pulsar.example.com"])} if is_ingress else {})


def test_istio_gateway_takes_the_hosts_of_all_its_servers() -> None:
    discovered = scene(fill(ISTIO_GATEWAY, annotations=LISTENER + "external"), changes=NO_LIST).discovered()
    hosts = ["*.pulsar.example.com", "pulsar.example.com", "*.binary.example.com"]
    assert ingresses(discovered) == {"gateway/edge/pulsar": ("external", hosts)}


def test_istio_gateway_annotation_may_name_a_single_server() -> None:
    discovered = scene(fill(ISTIO_GATEWAY, annotations=LISTENER + "'tls-pulsar=partner'"), changes=NO_LIST).discovered()
    assert ingresses(discovered) == {"gateway/edge/pulsar": ("partner", ["*.binary.example.com"])}


NO_LIST = "kubernetes: {gateways: []}"


@pytest.mark.parametrize(
    ("gateways", "labels", "is_ours"),
    [
        pytest.param("[]", OWN.labels, True, id="its selector selects our pod"),
        pytest.param("[]", {"istio": "private"}, False, id="its selector does not"),
        pytest.param("[nginx]", OWN.labels, True, id="a list that names no gateway leaves it to the selector"),
        pytest.param("[gateway/edge/pulsar]", OWN.labels, True, id="selected and listed"),
        pytest.param("[Gateway.networking.istio.io/edge/pulsar]", OWN.labels, True, id="listed with its group"),
        pytest.param("[gateway.gateway.networking.k8s.io/edge/pulsar]", OWN.labels, False, id="another group's listed"),
        pytest.param("[gateway/edge/other]", OWN.labels, False, id="another listed"),
        pytest.param("[gateway/edge/pulsar]", {"istio": "private"}, False, id="listed, but not for our pod"),
        pytest.param("[gateway/edge/pulsar]", {}, True, id="listed, and our labels are not known"),
        pytest.param("[]", {}, True, id="no list, and our labels are not known"),
        pytest.param("[nginx]", {}, False, id="not listed, and our labels are not known"),
    ],
)
def test_gateways_list_and_pod_selector_decide_which_istio_gateways_are_ours(
    gateways: str, labels: dict[str, str], is_ours: bool
) -> None:
    changes, own = f"kubernetes: {{gateways: {gateways}}}", PodIdentity("edge", labels)
    gateway = fill(ISTIO_GATEWAY, annotations=LISTENER + "external")
    assert bool(scene(gateway, changes=changes, own=own).discovered().ingresses) is is_ours
    # What hangs on it comes with it.
    route = fill(
        VIRTUAL_SERVICE, annotations=LISTENER + "external", gateways="edge/pulsar", hosts="b.pulsar.example.com"
    )
    bare = fill(ISTIO_GATEWAY, annotations="")
    assert bool(scene(bare, route, changes=changes, own=own).discovered().ingresses) is is_ours


@pytest.mark.parametrize(
    ("gateways", "hosts", "found"),
    [
        pytest.param("edge/pulsar", "b.pulsar.example.com", ["b.pulsar.example.com"], id="by namespace and name"),
        pytest.param("mesh, edge/pulsar", "'*.pulsar.example.com'", ["*.pulsar.example.com"], id="and for the mesh"),
        pytest.param("pulsar", "b.pulsar.example.com", None, id="by name, of its own namespace"),
        pytest.param("mesh", "b.pulsar.example.com", None, id="for the mesh alone"),
        pytest.param("edge/pulsar", "b.binary.example.com", None, id="a host for another namespace"),
        pytest.param("edge/pulsar", "sidecar, pulsar.example.com", ["pulsar.example.com"], id="a name of the mesh"),
        pytest.param("edge/pulsar", "sidecar", None, id="a name of the mesh alone"),
    ],
)
def test_virtual_service_takes_only_hosts_that_its_gateway_allows(
    gateways: str, hosts: str, found: list[str] | None
) -> None:
    route = fill(VIRTUAL_SERVICE, annotations=LISTENER + "partner", gateways=gateways, hosts=hosts)
    discovered = scene(fill(ISTIO_GATEWAY, annotations=""), route, changes=NO_LIST).discovered()
    assert ingresses(discovered) == ({} if found is None else {"virtualservice/pulsar/main": ("partner", found)})


def test_virtual_service_not_exported_to_the_gateway_is_not_an_ingress() -> None:
    route = fill(VIRTUAL_SERVICE, annotations=LISTENER + "a", gateways="edge/pulsar", hosts="b.pulsar.example.com")
    gateway = fill(ISTIO_GATEWAY, annotations="")
    for exported, is_ingress in (("'.'", False), ("edge", True), ("'*'", True)):
        text = route.replace("spec:", f"spec:\n  exportTo: [{exported}]")
        assert bool(scene(gateway, text, changes=NO_LIST).discovered().ingresses) is is_ingress


SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: NAME
  namespace: edge
  annotations: {pulsar-ingress-proxy/listener: external, ANNOTATIONS}
spec: {type: TYPE, selector: {app: edge}, ports: [{port: 443, targetPort: 8443, nodePort: 31443}]}
status: {loadBalancer: {ingress: [INGRESS]}}
"""


@pytest.mark.parametrize(
    ("type_", "annotations", "ingress", "hosts"),
    [
        pytest.param("LoadBalancer", "", "{hostname: lb.cloud.example}", ["lb.cloud.example"], id="its status"),
        pytest.param("LoadBalancer", "", "{ip: 203.0.113.7}", ["203.0.113.7"], id="its address"),
        pytest.param("LoadBalancer", "", "{ip: '2001:db8::7'}", ["[2001:db8::7]"], id="its IPv6 address"),
        pytest.param(
            "LoadBalancer",
            "external-dns.alpha.kubernetes.io/hostname: 'pulsar.example.com,p.example.com.'",
            "{ip: 203.0.113.7}",
            ["pulsar.example.com", "p.example.com"],
            id="its names",
        ),
        pytest.param(
            "NodePort",
            "pulsar-ingress-proxy/external-url: 'https://nodes.example'",
            "",
            ["nodes.example"],
            id="its URL",
        ),
        pytest.param("ClusterIP", "", "{hostname: lb.cloud.example}", None, id="nobody outside reaches it"),
    ],
)
def test_service_of_our_gateway_takes_its_annotated_or_load_balancer_hosts(
    type_: str, annotations: str, ingress: str, hosts: list[str] | None
) -> None:
    for name in ("edge", "another"):  # listed, or selecting our pod
        text = fill(SERVICE, name=name, type=type_, annotations=annotations, ingress=ingress)
        found = {} if hosts is None else {f"service/edge/{name}": ("external", hosts)}
        assert ingresses(scene(text).discovered()) == found


def test_service_of_another_gateway_is_not_an_ingress() -> None:
    text = fill(SERVICE, name="other", type="LoadBalancer", annotations="", ingress="{ip: 203.0.113.7}")
    assert ingresses(scene(text.replace("{app: edge}", "{app: other}")).discovered()) == {}


def test_annotations_set_lookup_properties_allowed_listeners_and_expose() -> None:
    annotations = (
        "pulsar-ingress-proxy/lookup-properties: 'rack=eu-1a, tier=', pulsar-ingress-proxy/allowed-listeners: 'a, b', "
        "pulsar-ingress-proxy/expose: 'lookup, client'"
    )
    (ingress,) = scene(fill(GATEWAY, annotations=f"{LISTENER}external, {annotations}")).discovered().ingresses
    assert ingress.lookup_properties == {"rack": "eu-1a", "tier": ""}
    assert ingress.allowed_listeners == frozenset(["a", "b"])
    assert ingress.expose == frozenset(["lookup", "client"])


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (LISTENER + "'ex ternal'", "listener: 'ex ternal' is not a listener name"),
        (LISTENER + "''", "listener: is empty"),
        (LISTENER + "'a,b'", "listener: has two listeners for the whole object"),
        (LISTENER + "'=a'", "listener: '' is not the name of a section"),
        ("pulsar-ingress-proxy/lookup-properties: rack", "lookup-properties: 'rack' is not a property"),
        ("pulsar-ingress-proxy/allowed-listeners: 'a b'", "allowed-listeners: 'a b' is not a listener name"),
        ("pulsar-ingress-proxy/expose: lookups", "expose: 'lookups' cannot be exposed; choose from lookup, client,"),
        ("pulsar-ingress-proxy/external-url: 'ftp://x'", "external-url: 'ftp://x' has the unknown scheme 'ftp'"),
        ("pulsar-ingress-proxy/external-url: 'http://{n}.x'", "external-url: 'http://{n}.x' has a variable other than"),
        ("pulsar-ingress-proxy/external-url: 'http://a,http://b'", "external-url: has two http URLs: keep one"),
        ("pulsar-ingress-proxy/listner: external", "listner: unknown annotation; known are pulsar-ingress-proxy/lis"),
    ],
)
def test_invalid_annotation_is_reported_and_gives_no_ingress(annotations: str, said: str) -> None:
    discovered = scene(fill(GATEWAY, annotations=annotations)).discovered()
    assert discovered.ingresses == ()
    assert any(line.startswith(f"gateway/edge/public: pulsar-ingress-proxy/{said}") for line in reported(discovered))


def test_empty_allowed_listeners_annotation_allows_no_listener() -> None:
    annotations = f"{LISTENER}external, pulsar-ingress-proxy/allowed-listeners: ''"
    (ingress,) = scene(fill(GATEWAY, annotations=annotations)).discovered().ingresses
    assert ingress.allowed_listeners == frozenset()


@pytest.mark.parametrize("areas", ["''", "lookups"])
def test_empty_or_invalid_expose_annotation_exposes_nothing(areas: str) -> None:
    annotations = f"{LISTENER}external, pulsar-ingress-proxy/expose: {areas}"
    (ingress,) = scene(fill(GATEWAY, annotations=annotations)).discovered().ingresses
    assert ingress.expose == frozenset()


def test_section_in_the_listener_annotation_of_an_ingress_is_reported() -> None:
    text = INGRESS.format(spec=f"rules: [{{host: a.example, {SIDECAR}}}]").replace(": external", ": a=external")
    discovered = scene(text.replace("spec:", "spec:\n  ingressClassName: nginx")).discovered()
    assert discovered.ingresses == ()
    assert any("this kind has no sections" in line for line in reported(discovered))


def test_every_annotated_object_is_an_ingress_when_gateways_is_empty() -> None:
    ingress = INGRESS.format(spec=f"rules: [{{host: a.example, {SIDECAR}}}]")
    route = fill(ROUTE, annotations=LISTENER + "external", parent="{name: private, namespace: edge}", hosts="b.example")
    bare = ingress.replace("annotations: {pulsar-ingress-proxy/listener: external}", "labels: {}").replace(
        "name: public", "name: bare"
    )
    discovered = scene(ingress, route, bare, fill(GATEWAY, annotations=""), changes=NO_LIST).discovered()
    assert sorted(ingresses(discovered)) == ["httproute/pulsar/main", "ingress/pulsar/public"]


def test_two_objects_with_equal_host_and_listener_are_both_ingresses() -> None:
    one = INGRESS.format(spec=f"{{ingressClassName: nginx, rules: [{{host: a.example, {SIDECAR}}}]}}").replace(
        "spec:\n  {", "spec: {"
    )
    discovered = scene(one, one.replace("name: public", "name: second"), brokers()).discovered()
    assert sorted(ingresses(discovered)) == ["ingress/pulsar/public", "ingress/pulsar/second"]
    assert discovered.conflicts == ()
