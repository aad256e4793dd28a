"""What `check` says about a config that is valid."""

import pytest
import yaml

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.config_warnings import config_warnings

GOOD = """
brokers: {webServiceUrl: [http://pulsar-broker:8080]}
ingresses:
  - {name: public, hosts: [pulsar.example.com, "*.pulsar.example.com"], listener: external}
advertisedListeners:
  - broker: b-{n}.svc
    listeners: internal:http://b-{n}.svc:8080, external:https://b-{n}.pulsar.example.com
"""


def warnings(more: str, base: str = GOOD) -> list[str]:
    return list(config_warnings(build(load_mapping({**yaml.safe_load(base), **yaml.safe_load(more or "{}")}))))


def test_good_config_gives_no_warnings() -> None:
    assert warnings("") == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param("lookupListenerName: extern", "lookupListenerName: no line", id="default"),
        pytest.param("bindAddresses: [extern:http://0.0.0.0:8080]", "bindAddresses: extern:http", id="socket"),
        pytest.param(
            "ingresses: [{name: p, hosts: ['*.pulsar.example.com'], listener: extern}]",
            "ingresses: 'p': no",
            id="ingress",
        ),
        pytest.param(
            "ingresses: [{name: p, hosts: ['*.pulsar.example.com'], listener: external, allowedListeners: [x]}]",
            "ingresses: 'p' allows: no line",
            id="allowed",
        ),
    ],
)
def test_listener_missing_from_advertised_listeners_is_warned_about(more: str, said: str) -> None:
    found = warnings(more)
    assert found[0].startswith(said)
    assert "there are external, internal" in found[0]


def test_empty_address_book_gives_no_warning_about_missing_listeners() -> None:
    assert warnings("{advertisedListeners: [], lookupListenerName: whatever}") == []


def test_address_shared_by_brokers_of_a_template_is_warned_about() -> None:
    found = warnings("advertisedListeners: [{broker: 'b-{n}', listeners: 'external:https://pulsar.example.com'}]")
    assert len(found) == 1
    assert "pulsar.example.com:443 (listener 'external') means more than one broker" in found[0]
    assert "followed, never rewritten" in found[0]


def test_address_shared_by_two_lines_is_warned_about_once() -> None:
    lines = "[{broker: a, listeners: 'external:https://pulsar.example.com'}, "
    found = warnings(f"advertisedListeners: {lines}{{broker: b, listeners: 'external:https://pulsar.example.com'}}]")
    assert [line.partition(":")[0] for line in found] == ["advertisedListeners.0"]
    assert "means more than one broker" in found[0]


def test_web_address_equal_to_another_brokers_binary_address_gives_no_warning() -> None:
    listeners = "external:http://b.pulsar.example.com:{n+8080}, external:pulsar://b.pulsar.example.com:{n+6650}"
    assert warnings(f"advertisedListeners: [{{broker: 'b-{{n}}', listeners: '{listeners}'}}]") == []


def test_address_shared_as_web_and_as_binary_gets_a_warning_for_each() -> None:
    listeners = "external:https://pulsar.example.com, external:pulsar+ssl://pulsar.example.com:443"
    found = warnings(f"advertisedListeners: [{{broker: 'b-{{n}}', listeners: '{listeners}'}}]")
    assert ["followed, never rewritten" in line for line in found] == [True, False]


def test_address_that_is_another_brokers_name_is_warned_about() -> None:
    """One broker's external address is the other's own name."""
    lines = "[{broker: a, listeners: 'external:https://b.pulsar.example.com'}, "
    found = warnings(
        f"advertisedListeners: {lines}{{broker: b.pulsar.example.com, listeners: 'internal:http://b:8080'}}]"
    )
    assert any("b.pulsar.example.com:443" in line and "means more than one broker" in line for line in found)


def test_broker_described_by_two_lines_is_warned_about() -> None:
    line = "{broker: a, listeners: 'external:https://%s.pulsar.example.com'}"
    found = warnings(f"advertisedListeners: [{line % 'x'}, {line % 'y'}]")
    assert found == ["advertisedListeners.1: broker a is described by an earlier line already"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param(
            "ingresses: [{name: p, hosts: [pulsar.example.com], listener: external}]",
            ["ingresses: no ingress has b-0.pulsar.example.com", "ingresses: no ingress has b-1.pulsar.example.com"],
            id="no-ingress",
        ),
        pytest.param(
            "ingresses: [{name: p, hosts: [x.example.com], listener: external}, "
            "{name: q, hosts: ['*.pulsar.example.com'], listener: internal}]",
            [
                "ingresses: 'q' (internal) has b-0.pulsar.example.com",
                "ingresses: 'q' (internal) has b-1.pulsar.example",
            ],
            id="another-listeners-ingress",
        ),
        pytest.param(
            "{bindAddresses: [external:http://0.0.0.0:8080], ingresses: []}", [], id="the-socket-decides-anyway"
        ),
    ],
)
def test_broker_host_not_covered_by_an_ingress_of_its_listener_is_warned_about(more: str, said: list[str]) -> None:
    found = warnings(more)
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


def test_brokers_tls_certificate_warns_that_brokers_do_not_see_client_certificates() -> None:
    (line,) = warnings("brokers: {webServiceUrl: [https://b], tls: {certificate: tls.crt, key: tls.key}}")
    assert line.startswith("brokers.tls.certificate: brokers that authenticate by certificate will take the sidecar's")
    assert "TLS passthrough to the brokers' own bindAddresses" in line


def test_peer_identity_gives_no_warning() -> None:
    assert warnings("brokers: {webServiceUrl: [https://b], tls: {peerIdentity: 'spiffe://cluster.local/ns/p'}}") == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "'[::1]:1'", "localhost:1", "null"])
def test_console_on_loopback_gives_no_warning(address: str) -> None:
    assert warnings(f"console: {{address: {address}}}") == []


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.1.2.3:1", "'[::]:1'", "console.example.com:1"])
def test_console_beyond_loopback_is_warned_about(address: str) -> None:
    (line,) = warnings(f"console: {{address: {address}}}")
    assert line.startswith(f"console.address: {address.strip(chr(39))}: anyone who can connect there sees")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("{console: {address: '127.0.0.1:8080'}}", id="of a socket"),
        pytest.param("{console: {address: '127.0.0.1:9090'}}", id="of metrics"),
    ],
)
def test_console_on_a_port_that_the_config_already_uses_is_warned_about(more: str) -> None:
    (line,) = warnings(more)
    assert line.startswith("console.address: 127.0.0.1:")
    assert "are one socket: there is no console" in line


def test_discovery_without_gateways_is_warned_about() -> None:
    (line,) = warnings("kubernetes: {enabled: true}")
    assert line.startswith("kubernetes.gateways: is empty, so every annotated object counts")
    assert warnings("kubernetes: {enabled: true, gateways: [nginx]}") == []


BINARY = (
    "bindAddresses: [external:pulsar://0.0.0.0:6650]\nbrokers: {brokerServiceUrl: [pulsar://b]}\n"
    "ingresses: [{name: p, hosts: ['*.pulsar.example.com'], listener: external, throughSidecar: %s}]"
)


def test_rewritten_binary_redirects_that_bypass_the_sidecar_are_warned_about() -> None:
    (line,) = warnings(BINARY % "false")
    assert line.startswith("redirects.lookup: is auto, and over the binary protocol clients follow a redirect")


@pytest.mark.parametrize("more", [BINARY % "true", BINARY % "false" + "\nredirects: {lookup: follow}"])
def test_followed_or_through_sidecar_binary_redirects_give_no_warning(more: str) -> None:
    assert warnings(more) == []
