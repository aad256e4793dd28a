"""The small languages: label selectors, host patterns, names of ports."""

import pytest

from pulsar_ingress_proxy.config import ConfigFaults, load_mapping
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS, kind_of
from pulsar_ingress_proxy.discovery.reconciler.objects import ServicePort
from pulsar_ingress_proxy.discovery.reconciler.view import schemes_of
from pulsar_ingress_proxy.syntax.hosts import common, covers, normal, under
from pulsar_ingress_proxy.syntax.selectors import parse_selector

LABELS = {"app": "pulsar", "component": "broker", "tier": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=pulsar", True),
        ("app == pulsar", True),
        ("app=pulsar,component=proxy", False),
        ("app=pulsar, component in (broker, proxy)", True),
        ("component notin (broker,proxy)", False),
        ("component notin (proxy)", True),
        ("other notin (proxy)", True),
        ("component!=broker", False),
        ("other!=broker", True),
        ("component", True),
        ("other", False),
        ("!component", False),
        ("! other", True),
        ("tier=", True),
        ("app=", False),
        ("app.kubernetes.io/name=pulsar", False),
    ],
)
def test_label_selector_operators_match_as_in_kubernetes(selector: str, matches: bool) -> None:
    assert parse_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize("selector", ["a=b,", "a in b", "a in ()", "=b", "a=b c", "a>1", "(a)"])
def test_malformed_label_selector_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="is not a requirement of labels"):
        parse_selector(selector)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("brokerSelector", "a in b", "kubernetes.brokerSelector: 'a in b' is not a requirement of labels"),
        ("gateways", ["edge/public"], "kubernetes.gateways.0: 'edge/public' is no gateway: write kind/namespace/name"),
        ("gateways", ["gateway/edge/public/http"], "kubernetes.gateways.0: 'gateway/edge/public/http' is no gateway"),
        ("allowedHostSuffixes", ["exa mple"], "kubernetes.allowedHostSuffixes.0: 'exa mple' is not a host"),
    ],
)
def test_invalid_kubernetes_config_value_is_reported_with_its_key(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigFaults) as faults:
        load_mapping({"brokers": {"webServiceUrl": ["http://b"]}, "kubernetes": {key: value}})
    assert said in str(faults.value)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.example", "a.example", "a.example"),
        ("a.example", "*.example", "a.example"),
        ("a.b.example", "*.example", "a.b.example"),
        ("example", "*.example", None),
        ("*.b.example", "*.example", "*.b.example"),
        ("*.example", "*", "*.example"),
        ("*", "*", "*"),
        ("a.example", "b.example", None),
        ("*.a.example", "*.b.example", None),
        ("xa.example", "*.a.example", None),
    ],
)
def test_intersection_of_two_host_patterns_is_the_narrower_one_or_none(one: str, other: str, both: str | None) -> None:
    assert common(one, other) == both
    assert common(other, one) == both
    if both is not None:
        assert covers(one, both)
        assert covers(other, both)


@pytest.mark.parametrize(
    ("host", "suffixes", "allowed"),
    [
        ("a.example", (), ["a.example"]),
        ("a.example", ("example",), ["a.example"]),
        ("example", ("example",), ["example"]),
        ("*.example", ("example",), ["*.example"]),
        ("*.example", ("a.example",), []),
        ("aexample", ("example",), []),
        ("*", ("example",), ["example", "*.example"]),
        ("*", (), ["*"]),
        ("203.0.113.7", ("example",), []),
    ],
)
def test_host_pattern_is_restricted_to_the_allowed_suffixes(
    host: str, suffixes: tuple[str, ...], allowed: list[str]
) -> None:
    assert list(under(host, suffixes)) == allowed


@pytest.mark.parametrize(
    ("host", "as_kept"),
    [("A.Example.", "a.example"), ("*.X.y", "*.x.y"), ("*", "*"), ("a b", None), ("*.*", None), ("", None)],
)
def test_host_pattern_is_normalized_to_lower_case_and_invalid_ones_to_none(host: str, as_kept: str | None) -> None:
    assert normal(host) == as_kept


@pytest.mark.parametrize(
    ("name", "number", "schemes"),
    [
        ("http", 80, {"http"}),
        ("https", 443, {"https"}),
        ("web-tls", 1, {"https"}),
        ("pulsar", 1, {"pulsar"}),
        ("tcp-pulsar", 1, {"pulsar"}),
        ("pulsarssl", 1, {"pulsar+ssl"}),
        ("tls-pulsarssl", 1, {"pulsar+ssl"}),
        ("pulsar-ssl", 1, {"pulsar+ssl"}),
        ("pulsar-http", 1, {"http"}),
        ("", 8080, {"http"}),
        ("", 8443, {"https"}),
        ("", 6650, {"pulsar"}),
        ("", 6651, {"pulsar+ssl"}),
        ("kafka", 9092, set()),
        ("metrics", 8000, set()),
        ("pulsar", 8080, {"pulsar", "http"}),
        ("http", 8443, {"http", "https"}),
    ],
)
def test_schemes_of_a_port_follow_from_its_name_and_number(name: str, number: int, schemes: set[str]) -> None:
    assert schemes_of(ServicePort(1, number, name), (), {}) == schemes


def test_schemes_of_a_port_follow_from_pod_ports_app_protocol_and_config_urls() -> None:
    ports = (("pulsar", 16650), ("http", 18080))
    assert schemes_of(ServicePort(1, 16650), ports, {}) == {"pulsar"}
    assert schemes_of(ServicePort(1, "http"), ports, {}) == {"http"}
    assert schemes_of(ServicePort(1, "18080"), ports, {}) == {"http"}
    assert schemes_of(ServicePort(6650, "nameless"), ports, {}) == {"pulsar"}
    assert schemes_of(ServicePort(1, 16650, "", None, "https"), (), {}) == {"https"}
    assert schemes_of(ServicePort(1, 16650), ports, {16650: "https"}) == {"https"}


def test_kinds_of_the_same_name_are_distinguished_by_api_group() -> None:
    for kind in KINDS:
        for version in kind.versions:
            api_version = f"{kind.group}/{version}" if kind.group else version
            assert kind_of({"apiVersion": api_version, "kind": kind.kind}) is kind
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert kind_of({"apiVersion": "networking.istio.io/v9", "kind": "Gateway"}) is None
    assert kind_of({"kind": "Gateway"}) is None
