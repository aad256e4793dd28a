"""What is kept on disk: it comes back as it was, and nothing that is not whole comes back."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_ingress_proxy.config import Config, load_mapping
from pulsar_ingress_proxy.discovery.state import FILE, Known, State
from pulsar_ingress_proxy.routing.discovered import NOTHING, Conflict, Discovered, DiscoveredBroker
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.syntax.listeners import parse_service_url

FOUND = Discovered(
    ingresses=(
        Ingress("ingress/pulsar/public", ("pulsar.example.com",), "external", frozenset(["external"])),
        Ingress("gateway/pulsar/partner", ("*.partner.example",), "partner", lookup_properties={"rack": "a"}),
    ),
    brokers=(
        DiscoveredBroker(
            ("broker-0.broker.pulsar.svc.cluster.local", "10.1.0.7"),
            {
                "external": {
                    "https": parse_service_url("https://broker-0.example.com"),
                    "pulsar+ssl": parse_service_url("pulsar+ssl://broker-0.example.com:6651"),
                }
            },
            {
                ("external", "https"): ("derived", "Ingress/pulsar/broker-0"),
                ("external", "pulsar+ssl"): ("annotation", "Service/pulsar/broker-0"),
            },
        ),
    ),
    conflicts=(Conflict("a", "b"),),
)
REPORTED = Discovered(brokers=(DiscoveredBroker(("broker-1",)),), listeners=frozenset(["internal", "external"]))
KNOWN = Known(FOUND, REPORTED, "eu-1a")


def config(folder: Path, **keys: Any) -> Config:
    kubernetes = {"enabled": True, "statePath": str(folder), **keys}
    return load_mapping({"brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]}, "kubernetes": kubernetes})


@pytest.mark.parametrize("known", [KNOWN, Known(), Known(NOTHING, REPORTED)])
def test_written_state_is_read_back_unchanged_from_one_private_file(tmp_path: Path, known: Known) -> None:
    folder = tmp_path / "made/for/it"
    State(config(folder)).write(known)
    assert State(config(folder)).read() == known
    assert [file.name for file in folder.iterdir()] == [FILE]
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600


def test_missing_state_file_reads_as_none_without_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert State(config(tmp_path)).read() is None
    assert caplog.text == ""


def change(**parts: Any) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({**json.loads(data), **parts}).encode()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[: len(data) // 2], "is not whole"),
        (lambda data: b"", "is not whole"),
        (lambda data: b"\xff\xfe", "is not whole"),
        (lambda data: b"[" * 100_000, "is not whole"),
        (lambda data: b"[]", "is not used"),
        (lambda data: b"{}", "is not used"),
        (change(version=2), "is of version 2, not 1"),
        (change(known={}), "is not used"),
        (
            change(known={"observed": {"brokers": []}, "reported": {"brokers": [{"names": 7, "sources": {}}]}}),
            "is not whole",
        ),
        (change(known={"observed": {"brokers": [{"sources": []}]}, "reported": {"brokers": []}}), "is not used"),
    ],
)
def test_damaged_state_file_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[bytes], bytes], why: str
) -> None:
    State(config(tmp_path)).write(KNOWN)
    file = tmp_path / FILE
    file.write_bytes(spoil(file.read_bytes()))
    assert State(config(tmp_path)).read() is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert why in record.getMessage()


@pytest.mark.parametrize(
    "keys", [{"allowedHostSuffixes": ["example.com"]}, {"gateways": ["nginx"]}, {"namespaces": ["pulsar", "other"]}]
)
def test_state_written_under_another_config_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, Any]
) -> None:
    State(config(tmp_path)).write(KNOWN)
    assert State(config(tmp_path, **keys)).read() is None
    assert "was written under another config" in caplog.text


def test_unwritable_state_path_is_logged_once_and_does_not_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    state = State(config(tmp_path / "file"))
    for _ in range(3):
        state.write(KNOWN)
    assert state.read() is None
    written = [record for record in caplog.records if "cannot be written" in record.getMessage()]
    assert len(written) == 1


def test_failed_write_leaves_the_previous_state_file_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(config(tmp_path))
    state.write(KNOWN)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    state.write(Known())
    assert state.read() == KNOWN
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
