"""A folder of manifests in place of a cluster: how it is read, and what the commands say of it."""

import json
from pathlib import Path

import pytest
from broker_manifests import brokers
from scenes import DOMAIN

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.manifests import BadManifests, read_store
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools import doctor

CONFIG = """
brokers: {webServiceUrl: [http://pulsar-broker:8080], brokerServiceUrl: [pulsar://pulsar-broker:6650]}
kubernetes: {enabled: true, gateways: [nginx]}
timeouts: {connect: 1}
"""

SERVICES = """
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Service
    metadata: {name: broker-0, namespace: pulsar}
    spec: {selector: {statefulset.kubernetes.io/pod-name: pulsar-broker-0}, ports: [{name: http, port: 8080}]}
  - apiVersion: v1
    kind: Service
    metadata: {name: broker-1}
    spec: {selector: {statefulset.kubernetes.io/pod-name: pulsar-broker-1}, ports: [{name: http, port: 8080}]}
"""


def ingress(name: str, host: str, service: str, listener: str | None = "external") -> dict[str, object]:
    backend = {"service": {"name": service, "port": {"name": "http"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": "pulsar",
            "annotations": {"pulsar-ingress-proxy/listener": listener} if listener else {},
        },
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{"hosts": [host]}],
            "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        },
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "manifests"
    (root / "routes" / "brokers").mkdir(parents=True)
    (root / "brokers.yaml").write_text(brokers(2))
    (root / "services.yml").write_text(SERVICES)
    (root / "notes.txt").write_text("{")
    (root / "routes" / "public.json").write_text(json.dumps(ingress("public", "pulsar.example.com", "sidecar")))
    for n in range(2):
        route = ingress(f"broker-{n}", f"broker-{n}.pulsar.example.com", f"broker-{n}")
        (root / "routes" / "brokers" / f"{n}.json").write_text(json.dumps(route))
    return root


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_check_lists_ingresses_and_brokers_with_their_sources(
    folder: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = run(capsys, "check", "--config", config, "--manifests", folder)
    assert code == 0
    (memory,) = [place for place, line in enumerate(lines) if line.startswith("memory    ")]
    assert lines[1:memory] == [
        "seen from namespace pulsar, in pulsar",
        "socket    http://0.0.0.0:8080",
        "listener  external",
        "listener  internal (internal)",
        "ingress   ingress/pulsar/broker-0: broker-0.pulsar.example.com -> external",
        "ingress   ingress/pulsar/broker-1: broker-1.pulsar.example.com -> external",
        "ingress   ingress/pulsar/public: pulsar.example.com -> external",
        *(
            line
            for n in range(2)
            for line in (
                f"broker    pulsar-broker-{n}.{DOMAIN}",
                f"            also pulsar-broker-{n}.pulsar-broker.pulsar.svc, pulsar-broker-{n}.pulsar-broker.pulsar, "
                f"pulsar-broker-{n}.pulsar-broker, pulsar-broker-{n}",
                f"            external: https://broker-{n}.pulsar.example.com (derived, ingress/pulsar/broker-{n})",
                f"            internal: pulsar://pulsar-broker-{n}.{DOMAIN}:6650 "
                f"(derived, pod/pulsar/pulsar-broker-{n}), "
                f"http://pulsar-broker-{n}.{DOMAIN}:8080 (derived, pod/pulsar/pulsar-broker-{n})",
            )
        ),
    ]


def test_check_shows_conflicts_and_warns_on_empty_gateways_and_disabled_discovery(
    folder: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(CONFIG.replace("enabled: true, gateways: [nginx]", ""))
    (folder / "second.json").write_text(json.dumps(ingress("second", "b0.example.com", "broker-0")))
    code, lines, _ = run(capsys, "check", "--config", config, "--manifests", folder)
    assert code == 0
    reported = [line for line in lines if line.startswith(("conflict", "warning   kubernetes"))]
    assert reported[0].startswith(
        f"conflict  pulsar-broker-0.{DOMAIN}: is said to be at https://b0.example.com (derived, "
    )
    assert reported[1].startswith("warning   kubernetes.gateways: is empty, so every annotated object counts")
    assert reported[2:] == ["warning   kubernetes.enabled: is false, so `run` would find nothing of this"]


def test_explain_uses_ingresses_and_brokers_from_the_manifests(
    folder: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lookup = "https://pulsar.example.com/lookup/v2/topic/persistent/public/default/orders"
    location = f"http://pulsar-broker-1.{DOMAIN}:8080/lookup/v2/topic/x"
    arguments = ["explain", "--config", config, "--manifests", folder, "--json", lookup, "--location", location]
    code, lines, _ = run(capsys, *arguments)
    shown = json.loads("\n".join(lines))
    assert code == 0
    assert (shown["ingress"], shown["listener"], shown["rule"]) == ("ingress/pulsar/public", "external", "ingress")
    assert shown["location"]["to"] == "https://broker-1.pulsar.example.com/lookup/v2/topic/x?listenerName=external"


def test_doctor_reports_hosts_without_route_and_routes_without_listener(
    folder: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listeners = "partner:http://127.0.0.1:1,external:https://broker-{n}.pulsar.example.com"
    line = f"{{broker: 'pulsar-broker-{{n}}.{DOMAIN}', listeners: '{listeners}'}}"
    config.write_text(f"{CONFIG}advertisedListeners: [{line}]")
    (folder / "stray.json").write_text(json.dumps(ingress("stray", "stray.example.org", "broker-0", None)))
    code, lines, _ = run(capsys, "doctor", "--config", config, "--manifests", folder, "--json")
    found = json.loads("\n".join(lines))
    assert code == 1
    gaps = [(one["listener"], one["broker"], one["problem"]) for one in found if one["resolves"] is None]
    assert gaps[1:] == [
        ("partner", f"pulsar-broker-{n}.{DOMAIN}", "no route at our gateways has 127.0.0.1") for n in range(2)
    ]
    assert gaps[0][:2] == ("(none)", "ingress/pulsar/stray")
    assert "but has no listener" in gaps[0][2]
    # And every broker is tried, of a template those that there are.
    assert sum(one["url"].startswith("https://broker-") for one in found) == 2


@pytest.mark.parametrize(
    ("routed", "gaps"),
    [
        ([], ["https://b-{n}.example", "pulsar://b-{n}.example:6650"]),
        ([("b-7.example", True)], []),
        ([("*.example", True)], []),
        ([("*", True)], []),
        ([("b.example", True), ("*.b-0.example", True)], ["https://b-{n}.example", "pulsar://b-{n}.example:6650"]),
        ([("*", False)], ["https://b-{n}.example"]),  # by port alone, which web addresses are not
    ],
)
def test_doctor_reports_no_gap_when_a_route_covers_any_host_of_a_template(
    routed: list[tuple[str, bool]], gaps: list[str]
) -> None:
    listeners = "internal:http://b-{n}.svc,external:https://b-{n}.example,other:pulsar://b-{n}.example:6650"
    values = {
        "brokers": {"webServiceUrl": ["http://b"]},
        "advertisedListeners": [{"broker": "b-{n}", "listeners": listeners}],
    }
    snapshot = build(load_mapping(values))
    assert [gap.url for gap in doctor.gaps(snapshot, None, routed, ())] == gaps
    assert [gap.url for gap in doctor.gaps(snapshot, "external", routed, ())] == gaps[:1]


def test_a_route_by_port_alone_covers_a_kafka_listener() -> None:
    line = {"broker": "b", "listeners": "internal:http://b.svc,external:kafka+ssl://b.example"}
    snapshot = build(load_mapping({"brokers": {"webServiceUrl": ["http://b"]}, "advertisedListeners": [line]}))
    assert [*doctor.gaps(snapshot, None, [("*", False)], ())] == []
    assert [gap.url for gap in doctor.gaps(snapshot, None, [], ())] == ["kafka+ssl://b.example:9093"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad.yaml", "a: b: c", "document 1: is not YAML: line 1: mapping values are not allowed here"),
        ("bad.yaml", f"{brokers(2)}---\n[1", "document 3: is not YAML: line 22: "),
        ("bad.yaml", "just text", "document 1: is not a Kubernetes object: it needs apiVersion and kind"),
        ("bad.yaml", "---\n---\nkind: Pod", "document 2: is not a Kubernetes object"),
        ("bad.yaml", "{apiVersion: v1, kind: Pod}", "document 1: Pod has no metadata.name"),
        ("bad.yaml", "{apiVersion: v1, kind: List, items: [7]}", "document 1: item 1: is not a Kubernetes object"),
        ("bad.json", "{", "document 1: is not JSON: line 1: "),
        ("bad.yml", "\xff", "cannot be read: "),
    ],
)
def test_invalid_manifest_fails_check_with_its_file_and_position(
    folder: Path, config: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str
) -> None:
    (folder / name).write_text(text, encoding="latin-1")
    code, lines, err = run(capsys, "check", "--config", config, "--manifests", folder)
    assert (code, lines) == (2, [])
    assert err.startswith(f"{folder / name}: {said}")
    assert err.count("\n") == 1


def test_faults_of_all_manifest_files_are_reported_together(folder: Path) -> None:
    (folder / "one.yaml").write_text("x")
    (folder / "two.yaml").write_text("y")
    with pytest.raises(BadManifests) as faults:
        read_store(folder, load_mapping({"brokers": {"webServiceUrl": ["http://b"]}}))
    assert len(str(faults.value).splitlines()) == 2


def test_check_exits_2_when_the_manifests_folder_is_missing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "check", "--config", config, "--manifests", tmp_path / "none")
    assert (code, err) == (2, f"{tmp_path / 'none'}: is not a folder\n")


@pytest.mark.parametrize(
    ("kubernetes", "url", "namespace"),
    [
        ({"namespaces": ["edge", "pulsar"]}, "http://pulsar-broker.pulsar", "edge"),
        ({}, "http://pulsar-broker", "pulsar"),
        ({}, "http://pulsar-broker.pulsar.svc", "pulsar"),
        ({}, "http://somebody.example.org", "pulsar"),  # the only namespace there is
    ],
)
def test_own_namespace_with_manifests_is_first_configured_else_that_of_brokers(
    folder: Path, kubernetes: dict[str, object], url: str, namespace: str
) -> None:
    store = read_store(folder, load_mapping({"brokers": {"webServiceUrl": [url]}, "kubernetes": kubernetes}))
    assert store.scope.own.namespace == namespace


def test_stateful_set_ordinals_start_sets_the_first_broker_number(folder: Path) -> None:
    text = brokers(1).replace("replicas: 1", "replicas: 1\n  ordinals: {start: 5}")
    (folder / "brokers.yaml").write_text(text)
    config = load_mapping({"brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]}})
    assert [broker.names[0] for broker in read_store(folder, config).discovered().brokers] == [
        f"pulsar-broker-5.{DOMAIN}"
    ]
