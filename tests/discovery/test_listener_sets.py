"""ListenerSet: listeners that others add to a Gateway, if it allows that; and the routes attached to them."""

import pytest
from scenes import BROKER_HOST, addresses, brokers, fill, ingresses, objects, reported, scene

LISTENER = "pulsar-ingress-proxy/listener: "

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge, annotations: {ANNOTATIONS}}
spec:
  gatewayClassName: istio
  allowedListeners: ALLOWED
  listeners:
    - {name: web, port: 80, protocol: HTTP, hostname: pulsar.example.com, allowedRoutes: {namespaces: {from: All}}}
status: {addresses: [{type: IPAddress, value: 203.0.113.7}]}
"""

LISTENER_SET = """
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: NAMESPACE, annotations: {ANNOTATIONS}}
spec:
  parentRef: {name: public, namespace: edge}
  listeners:
    - name: web
      port: 443
      protocol: HTTPS
      hostname: "*.pulsar.example.com"
      tls: {mode: Terminate, certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: All}}
    - name: ended
      port: 6651
      protocol: TLS
      hostname: "*.binary.example.com"
      tls: {mode: Terminate, certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: All}}
    - {name: tcp, port: 6650, protocol: TCP, allowedRoutes: {namespaces: {from: All}}}
STATUS
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: KIND
metadata: {name: broker-0, namespace: pulsar, annotations: {ANNOTATIONS}}
spec:
  parentRefs: [PARENT]
  hostnames: [HOST]
  rules: [{backendRefs: [{name: broker-0, port: PORT}]}]
"""

SAME, ALL, NONE = "{namespaces: {from: Same}}", "{namespaces: {from: All}}", "{namespaces: {from: None}}"
SELECTOR = "{namespaces: {from: Selector, selector: {matchLabels: {pulsar: 'true'}}}}"
IN_SET = "{kind: ListenerSet, name: more}"
HOSTS = ["*.pulsar.example.com", "*.binary.example.com"]
URL = "pulsar-ingress-proxy/external-url: "


def gateway(allowed: str = ALL, annotations: str = "") -> str:
    return fill(GATEWAY, allowed=allowed, annotations=annotations)


def listener_set(namespace: str = "pulsar", annotations: str = LISTENER + "partner", status: str = "") -> str:
    return fill(LISTENER_SET, namespace=namespace, annotations=annotations, status=status)


def route(kind: str, parent: str, host: str, port: int, annotations: str = "") -> str:
    text = fill(ROUTE, kind=kind, host=host, port=str(port), annotations=annotations)
    return text.replace("PARENT", parent)


def accepted(status: str) -> str:
    return f"status: {{conditions: [{{type: Accepted, status: '{status}'}}]}}"


@pytest.mark.parametrize(
    ("allowed", "namespace", "status", "is_ingress"),
    [
        pytest.param(ALL, "pulsar", "", True, id="from all namespaces"),
        pytest.param(ALL, "tenant", "", True, id="from all namespaces, also those that are not trusted"),
        pytest.param(ALL, "pulsar", accepted("Unknown"), True, id="its status is not written yet"),
        pytest.param(ALL, "pulsar", accepted("False"), False, id="refused by the gateway's controller"),
        pytest.param(SAME, "edge", "", True, id="from the gateway's namespace"),
        pytest.param(SAME, "edge", accepted("False"), False, id="from the gateway's namespace, refused"),
        pytest.param(SAME, "pulsar", "", False, id="from another namespace"),
        pytest.param(SAME, "pulsar", accepted("True"), False, id="from another namespace, accepted before"),
        pytest.param(SELECTOR, "pulsar", accepted("True"), True, id="by labels, accepted"),
        pytest.param(SELECTOR, "pulsar", "", False, id="by labels, and nobody has said that they match"),
        pytest.param(SELECTOR, "edge", accepted("Unknown"), False, id="by labels, pending"),
        pytest.param(SELECTOR, "pulsar", accepted("False"), False, id="by labels, refused"),
        pytest.param(NONE, "edge", accepted("True"), False, id="none"),
        pytest.param("{}", "edge", accepted("True"), False, id="by default none"),
        pytest.param("{namespaces: {from: Any}}", "edge", accepted("True"), False, id="a word that is not known"),
    ],
)
def test_listener_set_takes_no_host_unless_its_gateway_allows_it(
    allowed: str, namespace: str, status: str, is_ingress: bool
) -> None:
    discovered = scene(brokers(), gateway(allowed), listener_set(namespace, status=status)).discovered()
    assert ingresses(discovered) == ({f"listenerset/{namespace}/more": ("partner", HOSTS)} if is_ingress else {})
    assert [line.startswith(f"listenerset/{namespace}/more: ") for line in reported(discovered)] == (
        [] if is_ingress else [True]
    )
    # Nor do routes that refer to it.
    parent = f"{{kind: ListenerSet, name: more, namespace: {namespace}}}"
    for changes in ("", "kubernetes: {gateways: []}"):
        text = route("HTTPRoute", parent, BROKER_HOST, 8080, LISTENER + "external")
        own = gateway(allowed, LISTENER + "external")
        discovered = scene(brokers(), own, listener_set(namespace, status=status), text, changes=changes).discovered()
        urls = {"pulsar-broker-0": [f"https://{BROKER_HOST}"]} if is_ingress else {}
        assert (addresses(discovered), "httproute/pulsar/broker-0" in ingresses(discovered)) == (urls, is_ingress)


@pytest.mark.parametrize(
    ("allowed", "status", "said"),
    [
        (NONE, "", "is not allowed by gateway/edge/public, whose allowedListeners is 'None': left out"),
        (SAME, "", "is not allowed by gateway/edge/public, whose allowedListeners is 'Same': left out"),
        (ALL, accepted("False"), "is not accepted by gateway/edge/public, as its status says: left out"),
        (
            SELECTOR,
            "",
            "is not accepted by gateway/edge/public yet, whose allowedListeners has a selector: left out",
        ),
    ],
)
def test_listener_set_that_is_left_out_is_reported_with_the_reason(allowed: str, status: str, said: str) -> None:
    discovered = scene(brokers(), gateway(allowed), listener_set(status=status)).discovered()
    assert reported(discovered) == [f"listenerset/pulsar/more: {said}"]


def test_listener_set_whose_gateway_is_not_seen_is_left_out_and_reported() -> None:
    for changes in ("", "kubernetes: {gateways: []}"):
        discovered = scene(brokers(), listener_set(status=accepted("True")), changes=changes).discovered()
        assert ingresses(discovered) == {}
        assert reported(discovered) == [
            "listenerset/pulsar/more: its gateway gateway/edge/public is not visible, so it may not allow it: left out"
        ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(listener_set(annotations=""), id="without an annotation"),
        pytest.param(listener_set().replace("name: public", "name: private"), id="of a gateway that is not ours"),
        pytest.param(
            listener_set().replace("{name: public, namespace: edge}", "{kind: ListenerSet, name: more}"), id="of itself"
        ),
        pytest.param(listener_set("unwatched"), id="of a namespace that is not watched"),
        pytest.param(
            listener_set().replace("{name: public", "{kind: Service, group: '', name: public"), id="for a mesh"
        ),
    ],
)
def test_listener_set_that_is_not_for_pulsar_or_not_ours_leaves_no_trace(text: str) -> None:
    for allowed in (ALL, NONE):
        others = brokers(), gateway(allowed), gateway(allowed).replace("name: public", "name: private")
        assert scene(*others, text).discovered() == scene(*others).discovered()


@pytest.mark.parametrize(
    ("outer", "own", "found"),
    [
        pytest.param("external", None, {"external": HOSTS}, id="those of its gateway"),
        pytest.param("external", "partner", {"partner": HOSTS}, id="its own"),
        pytest.param(
            "external", "ended=partner", {"external": HOSTS[:1], "partner": HOSTS[1:]}, id="its own for one section"
        ),
        pytest.param("web=external", None, {}, id="a section of its gateway is not the section of that name"),
        pytest.param("'external,web=partner'", None, {"external": HOSTS}, id="nor where there is a general one"),
        pytest.param("external", "'ex ternal'", {}, id="its own is wrong"),
    ],
)
def test_listener_set_without_own_annotation_has_the_listener_of_its_gateway(
    outer: str, own: str | None, found: dict[str, list[str]]
) -> None:
    annotations = "" if own is None else LISTENER + own
    discovered = scene(gateway(ALL, LISTENER + outer), listener_set(annotations=annotations)).discovered()
    assert {
        one.listener: list(one.hosts) for one in discovered.ingresses if one.name == "listenerset/pulsar/more"
    } == found


def test_limits_of_a_gateway_hold_for_its_listener_sets_unless_they_set_their_own() -> None:
    limits = "pulsar-ingress-proxy/{}: {}"
    outer = ", ".join(
        limits.format(*one)
        for one in (("expose", "'lookup,client'"), ("allowed-listeners", "a"), ("lookup-properties", "rack=a"))
    )
    for annotations, expose, allowed, properties in (
        ("", {"lookup", "client"}, {"a"}, {"rack": "a"}),
        (LISTENER + "external", {"lookup", "client"}, {"a"}, {"rack": "a"}),
        (limits.format("expose", "lookup"), {"lookup"}, {"a"}, {"rack": "a"}),
        (limits.format("expose", "everything"), set(), {"a"}, {"rack": "a"}),
        (limits.format("allowed-listeners", "''"), {"lookup", "client"}, set(), {"rack": "a"}),
        (limits.format("lookup-properties", "rack=b"), {"lookup", "client"}, {"a"}, {"rack": "b"}),
    ):
        own = listener_set(annotations=annotations)
        discovered = scene(gateway(ALL, f"{LISTENER}external, {outer}"), own).discovered()
        (ingress,) = (one for one in discovered.ingresses if one.name == "listenerset/pulsar/more")
        assert ingress.expose == frozenset(expose)
        assert ingress.allowed_listeners == frozenset(allowed)
        assert ingress.lookup_properties == properties


@pytest.mark.parametrize("namespace", ["pulsar", "tenant"])
def test_host_of_a_trusted_gateway_stays_with_it_against_a_listener_set(namespace: str) -> None:
    own = listener_set(namespace).replace('"*.pulsar.example.com"', "pulsar.example.com")
    discovered = scene(gateway(ALL, LISTENER + "external"), own).discovered()
    assert ingresses(discovered) == {
        "gateway/edge/public": ("external", ["pulsar.example.com"]),
        f"listenerset/{namespace}/more": ("partner", HOSTS[1:]),
    }


def test_listener_set_of_an_untrusted_namespace_cannot_be_an_ingress_for_every_host() -> None:
    for namespace, found in (("tenant", HOSTS[1:]), ("pulsar", ["*", *HOSTS[1:]])):
        own = listener_set(namespace).replace('      hostname: "*.pulsar.example.com"\n', "")
        discovered = scene(gateway(), own).discovered()
        assert ingresses(discovered) == {f"listenerset/{namespace}/more": ("partner", found)}


def test_hosts_of_a_listener_set_must_fall_under_the_allowed_suffixes() -> None:
    changes = "kubernetes: {allowedHostSuffixes: [pulsar.example.com]}"
    discovered = scene(gateway(), listener_set(), changes=changes).discovered()
    assert ingresses(discovered) == {"listenerset/pulsar/more": ("partner", HOSTS[:1])}


@pytest.mark.parametrize("condition", ["{type: Conflicted, status: 'True'}", "{type: Accepted, status: 'False'}"])
def test_listener_in_conflict_is_left_out_and_the_others_stay(condition: str) -> None:
    status = f"status: {{listeners: [{{name: web, conditions: [{condition}]}}, {{name: ended, conditions: []}}]}}"
    text = route("HTTPRoute", IN_SET, BROKER_HOST, 8080)
    discovered = scene(brokers(), gateway(), listener_set(status=status), text).discovered()
    assert ingresses(discovered) == {"listenerset/pulsar/more": ("partner", HOSTS[1:])}
    assert addresses(discovered, "partner") == {}
    assert reported(discovered) == []


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        pytest.param(route("HTTPRoute", IN_SET, BROKER_HOST, 8080), [f"https://{BROKER_HOST}"], id="HTTPS"),
        pytest.param(
            route("HTTPRoute", "{kind: ListenerSet, name: more, sectionName: web}", BROKER_HOST, 8080),
            [f"https://{BROKER_HOST}"],
            id="one section",
        ),
        pytest.param(
            route("TLSRoute", "{kind: ListenerSet, name: more, port: 6651}", "b0.binary.example.com", 6650),
            ["pulsar+ssl://b0.binary.example.com:6651"],
            id="TLS ends at the gateway",
        ),
        pytest.param(
            route("TCPRoute", "{kind: ListenerSet, name: more, sectionName: tcp}", "", 6650),
            ["pulsar://203.0.113.7:6650"],
            id="bytes, at the address of the gateway",
        ),
        pytest.param(
            route("HTTPRoute", "{kind: ListenerSet, name: more, sectionName: other}", BROKER_HOST, 8080),
            [],
            id="a section that it does not have",
        ),
        pytest.param(
            route("HTTPRoute", "{name: public, namespace: edge, sectionName: web}", BROKER_HOST, 8080),
            [],
            id="the section of that name of the gateway, which has another host",
        ),
        pytest.param(
            route("HTTPRoute", "{name: public, namespace: edge}", BROKER_HOST, 8080), [], id="the gateway alone"
        ),
        pytest.param(
            route("HTTPRoute", "{kind: ListenerSet, name: more, namespace: edge}", BROKER_HOST, 8080),
            [],
            id="another ListenerSet",
        ),
    ],
)
def test_route_attached_to_a_listener_set_has_its_hosts_ports_and_listener(text: str, urls: list[str]) -> None:
    discovered = scene(brokers(), gateway(ALL, LISTENER + "external"), listener_set(), text).discovered()
    assert addresses(discovered, "partner").get("pulsar-broker-0", []) == urls
    assert addresses(discovered) == {}
    assert reported(discovered) == []


def test_tcp_route_takes_the_external_dns_name_of_the_listener_set_else_of_its_gateway() -> None:
    text = route("TCPRoute", "{kind: ListenerSet, name: more, sectionName: tcp}", "", 6650)
    dns = "external-dns.alpha.kubernetes.io/hostname: "
    outer = gateway(ALL, f"{LISTENER}external, {dns}outer.example.com")
    for annotations, host in (("", "outer"), (dns + "own.example.com", "own")):
        discovered = scene(brokers(), outer, listener_set(annotations=annotations), text).discovered()
        assert addresses(discovered) == {"pulsar-broker-0": [f"pulsar://{host}.example.com:6650"]}


def test_route_in_a_namespace_that_the_listener_does_not_admit_is_not_attached() -> None:
    own = listener_set("edge").replace("allowedRoutes: {namespaces: {from: All}}", "allowedRoutes: {}")
    text = route("HTTPRoute", "{kind: ListenerSet, name: more, namespace: edge}", BROKER_HOST, 8080)
    assert addresses(scene(brokers(), gateway(), own, text).discovered(), "partner") == {}
    inside = text.replace("namespace: pulsar,", "namespace: edge,").replace(
        "name: broker-0, port", "name: broker-0, namespace: pulsar, port"
    )
    assert addresses(scene(brokers(), gateway(), own, inside).discovered(), "partner") == {
        "pulsar-broker-0": [f"https://{BROKER_HOST}"]
    }


def test_status_of_a_route_counts_for_the_parent_of_its_kind_alone() -> None:
    """A Gateway and a ListenerSet may have one name, and sections of one name."""
    same = listener_set("edge").replace("name: more", "name: public")
    parents = ", ".join(
        f"{{{kind}name: public, namespace: edge, sectionName: web}}" for kind in ("", "kind: ListenerSet, ")
    )
    text = route("HTTPRoute", parents, f"{BROKER_HOST}, pulsar.example.com", 8080, LISTENER + "external")
    refused = "conditions: [{type: Accepted, status: 'False'}]"
    for kind, host in (("Gateway", BROKER_HOST), ("ListenerSet", "pulsar.example.com")):
        ref = f"{{group: gateway.networking.k8s.io, kind: {kind}, name: public, namespace: edge, sectionName: web}}"
        status = f"status: {{parents: [{{parentRef: {ref}, {refused}}}]}}"
        discovered = scene(brokers(), gateway(), same, text + status).discovered()
        assert ingresses(discovered)["httproute/pulsar/broker-0"] == ("external", [host])


@pytest.mark.parametrize(
    ("outer", "own", "namespace", "url"),
    [
        pytest.param("https://{host}:9443", None, "pulsar", f"https://{BROKER_HOST}:9443", id="of the gateway"),
        pytest.param("https://{host}:9443", None, "tenant", f"https://{BROKER_HOST}:9443", id="of the gateway alone"),
        pytest.param("https://{host}:1", "https://{host}:2", "pulsar", f"https://{BROKER_HOST}:2", id="its own"),
        pytest.param(
            "https://{host}:1", "https://{host}:2", "tenant", f"https://{BROKER_HOST}:1", id="its own is not trusted"
        ),
        pytest.param(None, "https://{host}:2", "tenant", f"https://{BROKER_HOST}", id="and nobody else says it"),
    ],
)
def test_external_url_comes_from_the_listener_set_else_its_gateway_if_their_namespace_is_trusted(
    outer: str | None, own: str | None, namespace: str, url: str
) -> None:
    above = LISTENER + "external" + (f", {URL}'{outer}'" if outer else "")
    text = listener_set(namespace, f"{URL}'{own}'" if own else "")
    parent = f"{{kind: ListenerSet, name: more, namespace: {namespace}}}"
    discovered = scene(brokers(), gateway(ALL, above), text, route("HTTPRoute", parent, BROKER_HOST, 8080)).discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [url]}


def test_external_url_of_an_untrusted_gateway_does_not_reach_trusted_routes_by_a_listener_set() -> None:
    theirs = gateway(ALL, f"{LISTENER}external, {URL}'https://mine.example.com'").replace("edge,", "tenant,")
    own = listener_set(annotations="").replace("namespace: edge", "namespace: tenant")
    text = route("HTTPRoute", IN_SET, BROKER_HOST, 8080)
    discovered = scene(brokers(), theirs, own, text, changes="kubernetes: {gateways: []}").discovered()
    assert addresses(discovered) == {"pulsar-broker-0": [f"https://{BROKER_HOST}"]}


def test_any_annotated_listener_set_counts_when_gateways_is_empty() -> None:
    changes = "kubernetes: {gateways: []}"
    for outer, own, found in (("", LISTENER + "partner", "partner"), (LISTENER + "external", "", "external")):
        discovered = scene(gateway(ALL, outer), listener_set(annotations=own), changes=changes).discovered()
        assert ingresses(discovered)["listenerset/pulsar/more"] == (found, HOSTS)
    assert ingresses(scene(gateway(), listener_set(annotations=""), changes=changes).discovered()) == {}


def test_unknown_section_in_the_annotation_of_a_listener_set_is_reported() -> None:
    discovered = scene(gateway(), listener_set(annotations=LISTENER + "'wbe=partner'")).discovered()
    said = (
        "listenerset/pulsar/more: pulsar-ingress-proxy/listener: there is no section 'wbe'; there are ended, tcp, web"
    )
    assert said in reported(discovered)


def test_changed_gateway_or_removed_listener_set_takes_its_hosts_away() -> None:
    store = scene(brokers(), gateway(), listener_set())
    assert ingresses(store.discovered()) != {}
    (less,) = objects(gateway(NONE))
    assert store.put(less)
    assert ingresses(store.discovered()) == {}
    (again,) = objects(gateway())
    assert store.put(again)
    assert ingresses(store.discovered()) != {}
    assert store.remove("ListenerSet", "pulsar", "more")
    assert ingresses(store.discovered()) == {}
