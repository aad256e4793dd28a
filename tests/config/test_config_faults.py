"""Faults of a config: where, what, and what would be right; whatever a file contains, nothing else is raised."""

from pathlib import Path
from typing import Any

import pytest
from config_files import LEAST, faults
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.config import ConfigFaults, glean, load, load_mapping


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


@pytest.mark.parametrize(
    "text",
    [
        "brokers: {webServiceUrl: [http://user:hunter2@b:8080]}",
        f"{LEAST}drainSeconds: http://user:hunter2@b",
        'brokers: {webServiceUrl: ["http://user:a\\nhunter2@b:8080"]}',
    ],
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
