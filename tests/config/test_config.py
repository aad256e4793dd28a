"""The config file: its defaults, the environment over it, and faults that say where, what, and what would be right."""

import ipaddress
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.config import Config, ConfigFaults, glean, load, load_mapping
from pulsar_ingress_proxy.config.model import json_schema
from pulsar_ingress_proxy.config.reference import example
from pulsar_ingress_proxy.syntax.listeners import BindAddress

# The reference's own example, as it stands there.
EXAMPLE = example()

LEAST = "brokers: {webServiceUrl: [http://pulsar-broker:8080]}\n"


def read(tmp_path: Path, text: str, **environ: str) -> Config:
    path = tmp_path / "sidecar.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ)


def faults(tmp_path: Path, text: str, **environ: str) -> list[str]:
    """The faults of a file, whose name is left out."""
    with pytest.raises(ConfigFaults) as raised:
        read(tmp_path, text, **environ)
    return [fault.replace(str(tmp_path / "sidecar.yaml"), "") for fault in raised.value.faults]


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


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("REDIRECTS__MAX_HOP", "3", "no such key; did you mean MAX_HOPS?"),
        ("REDIRECT__MAX_HOPS", "3", "no such key; did you mean REDIRECTS?"),
        ("QQQQ", "3", "no such key"),
        ("SHADOW__X", "3", "shadow has no keys of its own: set it whole, lists and records as JSON"),
        ("INGRESSES__NAME", "x", "ingresses has no keys of its own: set it whole, lists and records as JSON"),
        ("REDIRECTS__MAX_HOPS", "0", "input should be greater than 0, not '0'"),
        ("LEAKS", "blok", "'blok' is not one of rewrite, block, observe; did you mean block?"),
        ("INTERNAL_LISTENER_NAME", "a b", "'a b' is not a listener name: use letters, digits, hyphens and underscores"),
        ("BROKERS__WEB_SERVICE_URL", "[]", "is missing: say where HTTP goes, e.g. [http://pulsar-broker:8080]"),
        ("CLUSTER_NAME", "pr\udcffod", "is not text"),
        ("REDIRECTS__PEERS", '["\\ud800"]', "is not text"),
        ("REDIRECTS__PEERS", "[" * 200_000, "is nested too deeply"),
    ],
)  # fmt: skip
def test_faults_of_the_environment_name_the_variable(tmp_path: Path, variable: str, value: str, fault: str) -> None:
    name = f"PULSAR_INGRESS_{variable}"
    assert faults(tmp_path, LEAST, **{name: value}) == [f"environment: {name}: {fault}"]


def test_invalid_json_in_an_environment_variable_is_a_fault(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, LEAST, PULSAR_INGRESS_REDIRECTS__PEERS="[peer.example]")
    assert fault.startswith("environment: PULSAR_INGRESS_REDIRECTS__PEERS: is not JSON: ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("clustername: x", ":2: clustername: unknown key; did you mean clusterName?", id="case"),
        pytest.param("cluster_name: x", ":2: cluster_name: unknown key; did you mean clusterName?", id="snake case"),
        pytest.param("redirect: {}", ":2: redirect: unknown key; did you mean redirects?", id="a slip"),
        pytest.param("maxHops: 3", ":2: maxHops: unknown key here; did you mean redirects.maxHops?", id="a level off"),
        pytest.param(
            "redirects:\n  lookup: rewrite\n  maxhop: 3",
            ":4: redirects.maxhop: unknown key; did you mean maxHops?",
            id="within a record",
        ),
        pytest.param(
            "ingresses:\n  - name: a\n    listener: x\n    host: [a.example]",
            ":5: ingresses.0.host: unknown key; did you mean hosts?",
            id="within a list",
        ),
        pytest.param("log: {qqqq: 1}", ":2: log.qqqq: unknown key; known here are level, format", id="nothing is near"),
    ],
)
def test_an_unknown_key_is_a_fault_with_the_nearest_known_one_named(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, LEAST + text) == [fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "redirects: {lookup: rewriet}",
            ":2: redirects.lookup: 'rewriet' is not one of auto, rewrite, follow, pass; did you mean rewrite?",
            id="a word that is none of the choices",
        ),
        pytest.param(
            "ingresses: [{name: a, listener: x, expose: [lookups]}]",
            ":2: ingresses.0.expose.0: 'lookups' is not one of lookup, client, admin, topics, ws, functions; "
            "did you mean lookup?",
            id="a word in a list",
        ),
        pytest.param("ingresses: [{listener: x}]", ":2: ingresses.0.name: is missing", id="missing"),
        pytest.param("redirects: rewrite", ":2: redirects: should be a mapping of keys, not 'rewrite'", id="no record"),
        pytest.param("tls:", ":2: tls: should be a mapping of keys, not empty", id="an empty record"),
        pytest.param(
            "drainSeconds: -1", ":2: drainSeconds: input should be greater than or equal to 0, not -1", id="too low"
        ),
        pytest.param(
            "timeouts: {connect: .nan}", ":2: timeouts.connect: input should be greater than 0, not nan", id="nan"
        ),
        pytest.param(
            "ingresses: [{name: p, hosts: [p.example], listener: e, lookupProperties: {token: [s3cret]}}]",
            ":2: ingresses.0.lookupProperties.token: input should be a valid string, not a value of type list",
            id="what may be a credential",
        ),
        pytest.param(
            "bindAddresses: ['http://0.0.0.0:8080', 8081]",
            ":2: bindAddresses: should be a list of [name:]scheme://host:port",
            id="a number among sockets",
        ),
        pytest.param(
            "advertisedListeners: [{broker: b0, listeners: ['a:http://x:1', 8080]}]",
            ":2: advertisedListeners.0.listeners: should be name:scheme://host:port,…, as text",
            id="a number among URLs",
        ),
        pytest.param(
            "metrics: {address: '9090'}",
            ":2: metrics.address: '9090' is not an address to bind: write host:port, as in 0.0.0.0:9090",
            id="no address",
        ),
        pytest.param(
            "trustedProxies: [10.0.0.0/33]",
            ":2: trustedProxies.0: '10.0.0.0/33' is not an address or a network: write 10.0.0.0/8 or ::1",
            id="no network",
        ),
        pytest.param(
            "ingresses: [{name: a, listener: x, hosts: ['a.example:80']}]",
            ":2: ingresses.0.hosts.0: 'a.example:80' is not a host: write pulsar.example.com or *.pulsar.example.com, "
            "without a port",
            id="a host with a port",
        ),
        pytest.param(
            "functionWorkers: {webServiceUrl: [pulsar://w:6650]}",
            ":2: functionWorkers.webServiceUrl.0: 'pulsar://w:6650' should begin with http:// or https://",
            id="a URL of another kind",
        ),
        pytest.param(
            "lookupListenerName: a b",
            ":2: lookupListenerName: 'a b' is not a listener name: use letters, digits, hyphens and underscores",
            id="no name",
        ),
        pytest.param(
            "advertisedListeners: [{broker: 'b 0', listeners: 'a:http://x:1'}]",
            ":2: advertisedListeners.0.broker: 'b 0' is not a broker's name: write host or host:port, "
            "where {n} may stand for a word",
            id="no name of a broker",
        ),
        pytest.param("miss: reject\nmiss: forward", ":3: miss: is there twice", id="a key twice"),
        pytest.param(
            "redirects:\n  maxHops: 3\n  maxHops: 4", ":4: redirects.maxHops: is there twice", id="a key twice, within"
        ),
        pytest.param("8080: x", ": 8080: keys should be strings, not 8080", id="a key that is no word"),
    ],
)
def test_a_fault_says_where_it_is_and_what_would_be_right(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, LEAST + text) == [fault]


@pytest.mark.parametrize(
    "identity",
    [
        "https://cluster.local/ns/pulsar",
        "SPIFFE://cluster.local",
        "spiffe://",
        "spiffe:///ns/pulsar",
        "spiffe://Cluster.local/ns",
        "spiffe://cluster.local:8080/ns",
        "spiffe://user@cluster.local/ns",
        "spiffe://cluster.local/",
        "spiffe://cluster.local/ns//pulsar",
        "spiffe://cluster.local/ns?x=y",
        "spiffe://cluster.local/ns#x",
        "spiffe://cluster.local/n s",
    ],
)
def test_peer_identity_that_is_not_a_spiffe_id_is_a_fault(tmp_path: Path, identity: str) -> None:
    (fault,) = faults(tmp_path, f'brokers: {{webServiceUrl: [https://b], tls: {{peerIdentity: "{identity}"}}}}')
    assert fault.startswith(":1: brokers.tls.peerIdentity: '")
    assert "is not a SPIFFE ID: write spiffe://trust-domain/path" in fault


@pytest.mark.parametrize("identity", ["spiffe://x", "spiffe://cluster.local/ns/pulsar/sa/Broker_1"])
def test_spiffe_id_is_accepted_as_peer_identity(tmp_path: Path, identity: str) -> None:
    config = read(tmp_path, f"brokers: {{webServiceUrl: [https://b], tls: {{peerIdentity: '{identity}'}}}}")
    assert config.brokers.tls.peer_identity == identity


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "",
            ": brokers.webServiceUrl: is missing: say where HTTP goes, e.g. [http://pulsar-broker:8080]",
            id="nowhere for HTTP to go",
        ),
        pytest.param(
            LEAST + "bindAddresses: https://0.0.0.0:8443\ntls: {certificate: tls.crt}",
            ":3: tls.key: is missing: bindAddresses has an https socket",
            id="an https socket without a key",
        ),
        pytest.param(
            LEAST + "tls: {certificate: tls.crt}",
            ":2: tls.key: is missing: tls.certificate is of no use without it",
            id="a certificate without a key",
        ),
        pytest.param(
            LEAST + "tls: {key: tls.key}",
            ":2: tls.certificate: is missing: tls.key is of no use without it",
            id="a key without a certificate",
        ),
        pytest.param(
            LEAST + "tls: {key: tls.key, clientCa: ca.crt}",
            ":2: tls.certificate: is missing: tls.clientCa is of no use without it",
            id="client certificates without one of our own",
        ),
        pytest.param(
            "brokers: {webServiceUrl: [https://b], tls: {certificate: tls.crt}}",
            ":1: brokers.tls.key: is missing: brokers.tls.certificate is of no use without it",
            id="a certificate for brokers without a key",
        ),
        pytest.param(
            "brokers: {webServiceUrl: [https://b], tls: {key: tls.key}}",
            ":1: brokers.tls.certificate: is missing: brokers.tls.key is of no use without it",
            id="a key for brokers without a certificate",
        ),
        pytest.param(
            LEAST + "ingresses:\n  - {name: a, listener: x}\n  - {name: a, listener: y}",
            ":4: ingresses.1.name: 'a' is there twice: give each ingress its own name",
            id="two ingresses of one name",
        ),
        pytest.param(
            LEAST + "ingresses:\n  - {name: a, listener: x, hosts: [A.example]}\n"
            "  - {name: b, listener: y, hosts: [a.example.]}",
            ":4: ingresses.1.hosts: 'a.example' is in two ingresses, 'a' and 'b'",
            id="a host of two ingresses",
        ),
        pytest.param(
            "bindAddresses: pulsar://0.0.0.0:6650",
            ": brokers.brokerServiceUrl: is missing: say where the binary protocol goes, e.g. [pulsar://pulsar-broker:6650]",
            id="no brokers for binary clients",
        ),
        pytest.param(
            "bindAddresses: pulsar+ssl://0.0.0.0:6651\nbrokers: {brokerServiceUrl: pulsar://b}\ntls: {key: tls.key}",
            ":3: tls.certificate: is missing: bindAddresses has a pulsar+ssl socket",
            id="no certificate for binary clients",
        ),
        pytest.param(
            "bindAddresses: []\nadvertisedListeners: [{broker: b0, listeners: 'a:pulsar://e:1'}]",
            ":2: advertisedListeners.0.listeners: has no 'internal' listener, "
            "and no brokers URL says how to reach the broker without it",
            id="no way to the broker",
        ),
        pytest.param(
            LEAST + "advertisedListeners: [{broker: 'b{n}', listeners: 'a:http://x{m}:1'}]",
            ":2: advertisedListeners.0: http://x{m}:1 has {m}, but 'broker' has no {m} to take it from",
            id="a variable from nowhere",
        ),
    ],
)
def test_faults_between_keys_name_the_key_and_its_line(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text) == [fault]


def test_all_faults_of_a_file_are_reported_at_once_in_file_order(tmp_path: Path) -> None:
    text = """\
clusterNam: eu
bindAddresses: a:https://0.0.0.0:8443,b:https://0.0.0.0:8443,nonsense
ingresses:
  - {name: a, listener: x, hosts: [a.example]}
  - {name: a, listener: y, hosts: [b.example]}
redirects:
  lookup: folow
  maxHops: many
advertisedListeners:
  - broker: b{n}
    listeners: a:http://{m}:1,b:http://{k}:1
  - broker: c0
    listeners: pulsar://c0:6650,a:amqp://c0:5672
leaks: block
leaks: rewrite
"""
    places = [fault.partition(": ")[2].partition(": ")[0] for fault in faults(tmp_path, text, PULSAR_INGRESS_MIS="x")]
    assert places == [
        "PULSAR_INGRESS_MIS",
        "clusterNam",
        "bindAddresses",
        "bindAddresses",
        "ingresses.1.name",
        "redirects.lookup",
        "redirects.maxHops",
        "advertisedListeners.0",
        "advertisedListeners.0",
        "advertisedListeners.1.listeners",
        "advertisedListeners.1.listeners",
        "leaks",
    ]


def test_faults_between_keys_are_reported_beside_those_of_other_keys(tmp_path: Path) -> None:
    found = faults(tmp_path, "bindAddresses: https://0.0.0.0:8443\nmiss: maybe\nshadoww: true\n")
    assert [fault.split(": ")[1] for fault in found] == [
        "tls.certificate",
        "tls.key",
        "brokers.webServiceUrl",
        "miss",
        "shadoww",
    ]


def test_a_key_that_is_at_fault_itself_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "brokers: {webServiceUrl: [ftp://b:21]}")
    assert fault.startswith(":1: brokers.webServiceUrl.0: 'ftp://b:21' has the unknown scheme 'ftp'")


def test_a_fault_in_a_record_that_a_variable_sets_whole_names_variable_and_key(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, LEAST, PULSAR_INGRESS_TIMEOUTS='{"connect": -1}')
    assert fault.startswith("environment: PULSAR_INGRESS_TIMEOUTS: timeouts.connect: input should be greater than")


def test_variable_sets_a_key_of_a_section_that_the_file_leaves_empty(tmp_path: Path) -> None:
    assert read(tmp_path, f"{LEAST}redirects:\n", PULSAR_INGRESS_REDIRECTS__MAX_HOPS="3").redirects.max_hops == 3


@pytest.mark.parametrize(
    "text", ["brokers: {webServiceUrl: [http://user:hunter2@b:8080]}", f"{LEAST}drainSeconds: http://user:hunter2@b"]
)
def test_fault_of_a_url_with_a_password_does_not_repeat_it(tmp_path: Path, text: str) -> None:
    (fault,) = faults(tmp_path, text)
    assert "http://…@b" in fault
    assert "hunter2" not in fault


def test_a_fault_of_the_file_is_not_hidden_by_the_environment(tmp_path: Path) -> None:
    found = faults(tmp_path, f"{LEAST}redirects: rewrite", PULSAR_INGRESS_REDIRECTS__MAX_HOPS="3")
    assert found == [":2: redirects: should be a mapping of keys, not 'rewrite'"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("a: b: c", ":1: is not YAML: mapping values are not allowed here", id="no YAML"),
        pytest.param("- a", ": should be a mapping of keys, not a list", id="a list"),
        pytest.param("a: \x01", ": is not YAML: unacceptable character #x0001", id="a control character"),
        pytest.param("[a]: b", ":1: is not YAML: found unhashable key", id="a list for a key"),
        pytest.param("{{ template }}: b", ":1: is not YAML: found unhashable key", id="a template left as it was"),
        pytest.param("miss: 2026-13-45", ":1: is not YAML: not a valid timestamp", id="no date"),
        pytest.param("miss: 0b_", ":1: is not YAML: not a valid int", id="no number"),
        pytest.param("a: 1\nshadow: !!bool maybe", ":2: is not YAML: not a valid bool", id="no truth value"),
        pytest.param("miss: !!timestamp soon", ":1: is not YAML: not a valid timestamp", id="a tag of a date"),
        pytest.param(
            f"drainSeconds: 1{':0' * 200}.5", ":1: is not YAML: not a valid float", id="too large for a float"
        ),
        pytest.param(f"drainSeconds: 0x{'f' * 5000}", ":1: is not YAML: not a valid int", id="too many digits"),
        pytest.param('drainSeconds: !!float ""', ":1: is not YAML: not a valid float", id="a tag of a number"),
        pytest.param('clusterName: "a\\ud800b"', ":1: is not YAML: not a valid str", id="half a character"),
        pytest.param('"\\ud800": b', ":1: is not YAML: not a valid str", id="half a character for a key"),
        pytest.param("a: &x [*x]", ": is nested too deeply, or an alias in it stands for itself", id="a loop"),
        pytest.param("[" * 5000, ": is nested too deeply, or an alias in it stands for itself", id="an abyss"),
    ],
)
def test_a_file_that_is_no_config_is_one_fault_of_one_line(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = faults(tmp_path, text)
    assert found.startswith(fault)
    assert "\n" not in found


def test_file_that_cannot_be_read_is_a_fault_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match=r"missing\.yaml: cannot be read: No such file or directory$"):
        load(tmp_path / "missing.yaml", {})
    with pytest.raises(ConfigFaults, match=r"cannot be read: Is a directory$"):
        load(tmp_path, {})
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("clusterName: é".encode("latin-1"))
    with pytest.raises(ConfigFaults, match=r"latin\.yaml: is not UTF-8 text: .* at byte 13$"):
        load(latin, {})


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


words = st.sampled_from(
    ["redirects", "ingresses", "brokers", "tls", "listeners", "bindAddresses", "8080", "a:b", "é\n", ""]
)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["brokers", "advertisedListeners", "ingresses", "tls", "x"]), trees))
def test_any_mapping_loads_or_raises_config_faults(values: dict[str, Any]) -> None:
    try:
        load_mapping(values)
    except ConfigFaults as found:
        reported = found.faults
    else:
        return
    assert reported
    assert all(fault.startswith("config: ") for fault in reported)


pieces = (
    "!!bool ", "!!int ", "!!float ", "!!timestamp ", "!!binary ", "!!omap ", "!!set ", "!!str ", "&a ", "*a", "<<: ",
    "shadow: ", "clusterName: ", "tls: ", "? ", "- ", "{", "}", "[", "]", ", ", "\n", "\n  ", "|\n", "%", "~", "=",
    "2026-13-45", "0b_", "1:99", ".inf", '""', '"\\ud800"', "maybe", "é",
)  # fmt: skip
documents = st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@given(documents | st.text())
def test_any_document_loads_or_raises_config_faults_and_can_be_gleaned(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert isinstance(glean(text, {}), dict)
    try:
        load(file, {})
    except ConfigFaults as found:
        reported = found.faults
    else:
        return
    assert reported
    assert all(fault.startswith(str(file)) for fault in reported)
