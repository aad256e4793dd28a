"""The config file: its keys and their defaults, the environment over it, and where each key is set."""

import ipaddress
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_files import LEAST, read

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.config.model import json_schema
from pulsar_ingress_proxy.config.reference import example
from pulsar_ingress_proxy.syntax.listeners import BindAddress

# The reference's own example, as it stands there.
EXAMPLE = example()


def at(config: Any, dotted: str) -> Any:
    """The value of a key, by its name in the file."""
    for key in dotted.split("."):
        config = getattr(config, re.sub(r"[A-Z]", lambda capital: "_" + capital[0].lower(), key))
    return config


def test_the_example_of_the_reference_loads_as_it_stands(tmp_path: Path) -> None:
    config = read(tmp_path, EXAMPLE)
    assert config.bind_addresses == (
        BindAddress(None, "http", "0.0.0.0", 8080),
        BindAddress("external", "https", "0.0.0.0", 8443),
        BindAddress("external", "pulsar", "0.0.0.0", 6650),
    )
    assert config.ingresses[0].allowed_listeners == ("external", "partner")
    assert config.ingresses[0].lookup_properties == {"rack": "eu-1a"}
    assert sorted(config.advertised_listeners[0].listeners) == ["external", "internal"]
    assert sorted(config.named_listeners) == ["external", "internal", "partner"]


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("clusterName", "pulsar"),
        ("bindAddresses", (BindAddress(None, "http", "0.0.0.0", 8080),)),
        ("tls.certificate", None),
        ("tls.key", None),
        ("tls.clientCa", None),
        ("brokers.brokerServiceUrl", ()),
        ("brokers.tls.ca", None),
        ("brokers.tls.certificate", None),
        ("brokers.tls.key", None),
        ("brokers.tls.peerIdentity", None),
        ("brokers.trustOriginalPrincipal", False),
        ("brokers.discover", "none"),
        ("functionWorkers.webServiceUrl", ()),
        ("ingresses", ()),
        ("internalListenerName", "internal"),
        ("lookupListenerName", None),
        ("advertisedListeners", ()),
        ("redirects.lookup", "auto"),
        ("redirects.admin", "auto"),
        ("redirects.unmapped", "follow"),
        ("redirects.maxHops", 5),
        ("redirects.replayBytes", 5_242_880),
        ("redirects.peers", ()),
        ("preferHttpClientListenerOverInternalListener", True),
        ("clientListenerName", "honor"),
        ("unknownListener", "reject"),
        ("miss", "forward"),
        ("leaks", "rewrite"),
        ("shadow", False),
        ("trustedProxies", (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))),
        ("kubernetes.enabled", False),
        ("kubernetes.namespaces", ()),
        ("kubernetes.gateways", ()),
        ("kubernetes.brokerSelector", None),
        ("kubernetes.allowedHostSuffixes", ()),
        ("kubernetes.zoneProperty", None),
        ("kubernetes.statePath", None),
        ("events.path", None),
        ("events.rotateBytes", 67_108_864),
        ("events.rotateSeconds", 300),
        ("events.retainBytes", 536_870_912),
        ("events.flushMillis", 200),
        ("events.compress", "gzip"),
        ("metrics.address", "0.0.0.0:9090"),
        ("console.address", "127.0.0.1:9091"),
        ("timeouts.connect", 5),
        ("timeouts.lookup", 30),
        ("timeouts.request", 310),
        ("timeouts.upstreamIdle", 25),
        ("timeouts.clientIdle", 3630),
        ("timeouts.head", 10),
        ("limits.headBytes", 32_768),
        ("limits.headers", 100),
        ("limits.connections", 4096),
        ("limits.inFlight", 4096),
        ("limits.waitMillis", 100),
        ("limits.bufferBytes", 67_108_864),
        ("limits.replayTotalBytes", 67_108_864),
        ("limits.commandBytes", 65_536),
        ("drainSeconds", 20),
        ("log.level", "info"),
        ("log.format", "auto"),
    ],
)
def test_key_left_out_of_the_config_has_its_default(key: str, default: object) -> None:
    assert at(load_mapping(yaml.safe_load(LEAST)), key) == default


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("allowedListeners", None),
        ("expose", None),
        ("lookupProperties", {}),
        ("overrideLookupProperties", False),
        ("throughSidecar", False),
        ("shadow", None),
    ],
)
def test_key_left_out_of_an_ingress_has_its_default(key: str, default: object) -> None:
    config = load_mapping(yaml.safe_load(LEAST + "ingresses: [{name: public, listener: external}]"))
    assert at(config.ingresses[0], key) == default


def keys(values: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in values.items():
        nested = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        found.add(prefix + key)
        if isinstance(nested, dict) and key != "lookupProperties":
            found |= keys(nested, f"{prefix}{key}.")
    return found


def described(schema: dict[str, Any], node: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Every key of a schema with its description."""
    found = {}
    for key, value in node.get("properties", {}).items():
        found[prefix + key] = value.get("description", "")
        reference = value.get("$ref") or value.get("items", {}).get("$ref")
        if reference is not None:
            found |= described(schema, schema["$defs"][reference.rpartition("/")[2]], f"{prefix}{key}.")
    return found


def test_the_schema_has_the_references_keys_and_describes_each() -> None:
    schema = json_schema()
    found = described(schema, schema)
    assert set(found) == keys(yaml.safe_load(EXAMPLE))
    assert [key for key, description in found.items() if not description] == []
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        ("REDIRECTS__MAX_HOPS", "3", "redirects.maxHops", 3),
        ("SHADOW", "true", "shadow", True),
        ("CLUSTER_NAME", "eu", "clusterName", "eu"),
        ("TIMEOUTS__CONNECT", "0.5", "timeouts.connect", 0.5),
        ("LOOKUP_LISTENER_NAME", "external", "lookupListenerName", "external"),
        ("LOOKUP_LISTENER_NAME", "", "lookupListenerName", None),
        ("EVENTS__PATH", "null", "events.path", None),
        ("BROKERS__TLS__CA", "/etc/ca.pem", "brokers.tls.ca", "/etc/ca.pem"),
        ("REDIRECTS__PEERS", '["peer.example"]', "redirects.peers", ("peer.example",)),
        ("TRUSTED_PROXIES", '["10.0.0.0/8"]', "trustedProxies", (ipaddress.ip_network("10.0.0.0/8"),)),
        ("TRUSTED_PROXIES", '["10.1.2.3/8"]', "trustedProxies", (ipaddress.ip_network("10.0.0.0/8"),)),
        ("BIND_ADDRESSES", "a:http://0.0.0.0:1", "bindAddresses", (BindAddress("a", "http", "0.0.0.0", 1),)),
        ("BROKERS__WEB_SERVICE_URL", "http://a:1, http://b:2", "brokers.webServiceUrl", ("http://a:1", "http://b:2")),
        ("CLIENT_LISTENER_NAME", "ignore", "clientListenerName", "ignore"),
    ],
)  # fmt: skip
def test_any_key_may_come_from_the_environment(
    tmp_path: Path, variable: str, value: str, key: str, expected: object
) -> None:
    text = f"{LEAST}redirects: {{maxHops: 7}}\nevents: {{path: /events}}\nlookupListenerName: partner\n"
    assert at(read(tmp_path, text, **{f"PULSAR_INGRESS_{variable}": value}), key) == expected


def test_environment_takes_records_as_json_and_a_single_key_wins_over_its_record(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        LEAST,
        PULSAR_INGRESS_INGRESSES='[{"name": "public", "hosts": ["a.example"], "listener": "external"}]',
        PULSAR_INGRESS_REDIRECTS='{"maxHops": 2, "lookup": "follow"}',
        PULSAR_INGRESS_REDIRECTS__MAX_HOPS="3",
    )
    assert config.ingresses[0].hosts == ("a.example",)
    assert (config.redirects.max_hops, config.redirects.lookup) == (3, "follow")


def test_environment_can_supply_the_required_keys_that_an_empty_file_lacks(tmp_path: Path) -> None:
    config = read(tmp_path, "", PULSAR_INGRESS_BROKERS__WEB_SERVICE_URL="http://a:1")
    assert config.brokers.web_service_url == ("http://a:1",)


def test_environment_variables_without_our_prefix_are_ignored(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "PULSAR_MEM": "x", "pulsar_ingress_shadow": "x", "SHADOW": "true", "MISS": "reject"}
    assert read(tmp_path, LEAST, **environ) == read(tmp_path, LEAST)


@pytest.mark.parametrize(
    "variable",
    [
        "PROXY_SERVICE_HOST", "PROXY_SERVICE_PORT", "PROXY_SERVICE_PORT_HTTP", "PROXY_PORT", "PROXY_PORT_8080_TCP",
        "PROXY_PORT_8080_TCP_PROTO", "PROXY_PORT_8080_TCP_PORT", "PROXY_PORT_8080_TCP_ADDR",
        "METRICS_SERVICE_HOST", "METRICS_PORT", "METRICS_PORT_9090_UDP_ADDR",
    ],
)  # fmt: skip
def test_variables_that_kubernetes_makes_for_services_are_ignored(tmp_path: Path, variable: str) -> None:
    environ = {f"PULSAR_INGRESS_{variable}": "tcp://10.0.0.1:8080"}
    assert read(tmp_path, LEAST, **environ) == read(tmp_path, LEAST)


@pytest.mark.parametrize("identity", ["spiffe://x", "spiffe://cluster.local/ns/pulsar/sa/Broker_1"])
def test_spiffe_id_is_accepted_as_peer_identity(tmp_path: Path, identity: str) -> None:
    config = read(tmp_path, f"brokers: {{webServiceUrl: [https://b], tls: {{peerIdentity: '{identity}'}}}}")
    assert config.brokers.tls.peer_identity == identity


def test_variable_sets_a_key_of_a_section_that_the_file_leaves_empty(tmp_path: Path) -> None:
    assert read(tmp_path, f"{LEAST}redirects:\n", PULSAR_INGRESS_REDIRECTS__MAX_HOPS="3").redirects.max_hops == 3


def test_config_knows_the_line_or_the_variable_that_sets_each_key(tmp_path: Path) -> None:
    text = """\
brokers:
  webServiceUrl: [http://a:1,
    http://b:2]
ingresses:
  - name: public
    hosts: [a.example]
    listener: external
redirects: {maxHops: 7, lookup: follow}
"""
    environ = {
        "PULSAR_INGRESS_REDIRECTS__LOOKUP": "pass",
        "PULSAR_INGRESS_TIMEOUTS": '{"connect": 1, "lookup": 2}',
        "PULSAR_INGRESS_TIMEOUTS__LOOKUP": "3",
    }
    sources = read(tmp_path, text, **environ).sources
    assert sources.file == str(tmp_path / "sidecar.yaml")
    for path, line in (
        (("brokers",), 1),
        (("brokers", "webServiceUrl", 1), 3),
        (("ingresses", 0), 5),
        (("ingresses", 0, "hosts", 0), 6),
        (("ingresses", 0, "hosts", 0, "below"), 6),
        (("redirects", "maxHops"), 8),
        (("miss",), None),
    ):
        assert (sources.line(path), sources.variable(path)) == (line, None)
    assert sources.variable(("redirects", "lookup")) == "PULSAR_INGRESS_REDIRECTS__LOOKUP"
    assert sources.variable(("timeouts", "connect")) == "PULSAR_INGRESS_TIMEOUTS"
    assert sources.variable(("timeouts", "lookup")) == "PULSAR_INGRESS_TIMEOUTS__LOOKUP"


def test_configs_that_say_the_same_are_equal_wherever_their_keys_are_set(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one = read(tmp_path, f"{LEAST}miss: reject")
    other = read(tmp_path / "elsewhere", f"\n\n{LEAST}", PULSAR_INGRESS_MISS="reject")
    assert one == other
    assert one.sources.line(("miss",)) == 2
    assert other.sources.variable(("miss",)) == "PULSAR_INGRESS_MISS"


def test_pip_95_listener_may_have_only_tls_urls_behind_a_plain_http_socket(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        LEAST + "bindAddresses: external:http://0.0.0.0:8080\n"
        "advertisedListeners: [{broker: b0, listeners: 'external:pulsar+ssl://e0.example,external:https://e0.example'}]",
    )
    assert sorted(config.advertised_listeners[0].listeners["external"]) == ["https", "pulsar+ssl"]


@pytest.mark.parametrize(
    "listeners",
    ["'internal:http://b0:1,external:http://e0:1'", "['internal:http://b0:1', ' external:http://e0:1']"],
    ids=["text", "list"],
)
def test_listeners_may_be_comma_separated_text_or_a_list(listeners: str) -> None:
    config = load_mapping(yaml.safe_load(f"{LEAST}advertisedListeners: [{{broker: b0, listeners: {listeners}}}]"))
    assert sorted(config.advertised_listeners[0].listeners) == ["external", "internal"]


def test_variable_for_a_key_of_an_alias_does_not_change_what_else_the_alias_stands_for(tmp_path: Path) -> None:
    text = f"{LEAST.replace('brokers: {', 'brokers: {tls: *t, ')}"
    text = f"tls: &t {{certificate: c.pem, key: k.pem}}\n{text}"
    config = read(tmp_path, text, PULSAR_INGRESS_TLS__KEY="other.pem")
    assert (config.tls.key, config.brokers.tls.key) == ("other.pem", "k.pem")


def test_load_mapping_does_not_change_its_input() -> None:
    values = yaml.safe_load(EXAMPLE)
    load_mapping(values)
    assert values == yaml.safe_load(EXAMPLE)
