"""`check` refuses what `run` refuses at start, and says what it sees to people and to programs."""

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import ConfigFaults, load
from pulsar_ingress_proxy.tools.preflight import CannotStart

GOOD = {
    "bindAddresses": ["http://127.0.0.1:0"],
    "brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]},
    "metrics": {"address": "127.0.0.1:0"},
    "console": {"address": None},
}
LONG = "b" * 64


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """By name: a pair, the key of another one, its CA, what is no PEM, a folder, and a file that is not there."""
    ca = trustme.CA()
    pair, other = ca.issue_cert("localhost"), ca.issue_cert("localhost")
    ca.cert_pem.write_to_path(str(tmp_path / "ca"))
    pair.cert_chain_pems[0].write_to_path(str(tmp_path / "crt"))
    pair.private_key_pem.write_to_path(str(tmp_path / "key"))
    other.private_key_pem.write_to_path(str(tmp_path / "other"))
    (tmp_path / "text").write_text("x")
    (tmp_path / "folder").mkdir()
    return {name: str(tmp_path / name) for name in ("ca", "crt", "key", "other", "text", "folder", "absent")}


def write(tmp_path: Path, keys: str = "{}", **files: str) -> str:
    """A config that is good but for these keys, each on a line."""
    path = tmp_path / "config.yaml"
    values: dict[str, Any] = {**GOOD, **yaml.safe_load(keys % files)}
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()))
    return str(path)


async def refused_by_run(path: str) -> list[str]:
    """Why `run` does not start with a config; nothing where it does."""
    try:
        sidecar = Sidecar(load(path), path)
        await sidecar.start()
    except (ConfigFaults, CannotStart) as fault:
        return str(fault).splitlines()
    await sidecar.stop()
    return []


def without_place(line: str) -> str:
    return re.sub(r"^\S+/config\.yaml(:\d+)?: ", "", line)


OF_FILES = [
    pytest.param(
        "{bindAddresses: ['https://127.0.0.1:0'], tls: {certificate: %(absent)s, key: %(key)s}}",
        ["tls.certificate: %(absent)s cannot be read: No such file or directory: name a readable PEM file"],
        id="no certificate",
    ),
    pytest.param(
        "{bindAddresses: ['https://127.0.0.1:0'], tls: {certificate: %(text)s, key: %(key)s}}",
        ["tls.certificate: %(text)s does not hold whole certificates in PEM"],
        id="no PEM",
    ),
    pytest.param(
        "{bindAddresses: ['https://127.0.0.1:0'], tls: {certificate: %(crt)s, key: %(other)s}}",
        ["tls.key: %(other)s is not the key of %(crt)s"],
        id="the key of another certificate",
    ),
    pytest.param(
        "tls: {certificate: %(crt)s, key: %(other)s}",
        ["tls.key: %(other)s is not the key of %(crt)s"],
        id="a pair that no socket shows",
    ),
    pytest.param(
        "brokers: {webServiceUrl: ['http://b'], tls: {ca: %(text)s}}",
        ["brokers.tls.ca: %(text)s does not hold whole CA certificates in PEM"],
        id="a CA of brokers that are not known yet",
    ),
    pytest.param(
        "{tls: {certificate: %(absent)s, key: %(absent)s, clientCa: %(folder)s}, "
        "brokers: {webServiceUrl: ['http://b'], tls: {ca: %(text)s, certificate: %(crt)s, key: %(other)s}}}",
        [
            "tls.certificate: %(absent)s cannot be read: No such file or directory: name a readable PEM file",
            "tls.key: %(absent)s cannot be read: No such file or directory: name a readable PEM file",
            "tls.clientCa: %(folder)s cannot be read: Is a directory: name a readable PEM file",
            "brokers.tls.ca: %(text)s does not hold whole CA certificates in PEM",
            "brokers.tls.key: %(other)s is not the key of %(crt)s",
        ],
        id="all at once",
    ),
]
OF_THE_CONFIG = [
    pytest.param(
        "{bindAddresses: ['http://127.0.0.1:18080', 'pulsar://127.0.0.1:18080'], "
        "brokers: {webServiceUrl: ['http://b'], brokerServiceUrl: ['pulsar://b']}}",
        [
            "bindAddresses: http://127.0.0.1:18080 and pulsar://127.0.0.1:18080 are one socket, "
            "which can be bound once: give each its own port"
        ],
        id="one socket for two protocols",
    ),
    pytest.param(
        "bindAddresses: ['http://[::1]:18080', 'http://127.0.0.1:18080', 'http://0.0.0.0:18080']",
        [
            "bindAddresses: http://127.0.0.1:18080 and http://0.0.0.0:18080 are one socket, "
            "which can be bound once: give each its own port"
        ],
        id="all addresses and one of them",
    ),
    pytest.param(
        "{bindAddresses: ['http://0.0.0.0:19090'], metrics: {address: '127.0.0.1:19090'}}",
        [
            "metrics.address: 127.0.0.1:19090 and http://0.0.0.0:19090 of bindAddresses are one socket: "
            "give each its own port"
        ],
        id="the socket of metrics",
    ),
    pytest.param(
        "metrics: {address: '[1.2.3]:9090'}",
        ["metrics.address: '[1.2.3]:9090' is not an address to bind: write host:port, as in 0.0.0.0:9090"],
        id="no address",
    ),
    pytest.param(
        f"bindAddresses: ['http://{LONG}.example.com:0']",
        [f"bindAddresses: 'http://{LONG}.example.com:0' cannot be bound: a label of a host has 63 letters at most"],
        id="a name that is too long",
    ),
    pytest.param(
        'kubernetes: {statePath: "a\\0b"}',
        [r"kubernetes.statePath: 'a\x00b' is not a path: it has characters that cannot be printed"],
        id="no path",
    ),
]


@pytest.mark.parametrize(("keys", "said"), OF_FILES + OF_THE_CONFIG)
async def test_check_reports_the_faults_for_which_run_refuses_to_start(
    tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str], keys: str, said: list[str]
) -> None:
    path = write(tmp_path, keys, **files)
    expected = [line % files for line in said]
    assert [without_place(line) for line in await refused_by_run(path)] == expected
    assert main(["check", "--config", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [without_place(line) for line in err.splitlines()] == expected


@pytest.mark.parametrize(("keys", "said"), OF_FILES)
def test_no_files_option_skips_faults_of_files(
    tmp_path: Path, files: dict[str, str], keys: str, said: list[str]
) -> None:
    assert main(["check", "--no-files", "--config", write(tmp_path, keys, **files)]) == 0


@pytest.mark.parametrize(("keys", "said"), OF_THE_CONFIG)
def test_no_files_option_still_exits_2_on_faults_of_the_config(tmp_path: Path, keys: str, said: list[str]) -> None:
    assert main(["check", "--no-files", "--config", write(tmp_path, keys)]) == 2


async def test_missing_kubernetes_package_is_a_fault_unless_no_files_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kubernetes" else found(name))
    path = write(tmp_path, "kubernetes: {enabled: true}")
    (said,) = await refused_by_run(path)
    assert main(["check", "--config", path]) == 2
    assert capsys.readouterr().err == f"{path}:5: {said}\n"
    assert main(["check", "--no-files", "--config", path]) == 0


def test_a_fault_of_a_file_says_which_line_or_variable_names_it(
    tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "tls: {certificate: %(absent)s, key: %(key)s}", **files)
    monkeypatch.setenv("PULSAR_INGRESS_BROKERS__TLS__CA", files["text"])
    assert main(["check", "--config", path]) == 2
    assert [
        line.partition(files["absent"])[0].partition(files["text"])[0] for line in capsys.readouterr().err.splitlines()
    ] == [
        f"{path}:5: tls.certificate: ",
        "environment: PULSAR_INGRESS_BROKERS__TLS__CA: ",
    ]


def test_a_fault_of_a_file_has_its_line_if_the_config_comes_from_a_pipe(
    tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = Path(write(tmp_path, "tls: {certificate: %(absent)s, key: %(key)s}", **files))
    reading, writing = os.pipe()
    os.write(writing, config.read_bytes())
    os.close(writing)
    assert main(["check", "--config", f"/dev/fd/{reading}"]) == 2
    os.close(reading)
    assert capsys.readouterr().err.startswith(f"/dev/fd/{reading}:5: tls.certificate: ")


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(
            "{bindAddresses: ['https://127.0.0.1:0'], tls: {certificate: %(crt)s, key: %(key)s, clientCa: %(ca)s}, "
            "brokers: {webServiceUrl: ['https://b'], tls: {ca: %(ca)s, certificate: %(crt)s, key: %(key)s}}}",
            id="files that are right",
        ),
        pytest.param("events: {path: %(absent)s}", id="a folder for events that is not there"),
        pytest.param("events: {path: %(text)s}", id="a file for a folder"),
        pytest.param("kubernetes: {statePath: %(absent)s}", id="a folder for state that is not there"),
        pytest.param("{brokers: {webServiceUrl: ['http://b'], adminTokenFile: %(absent)s}}", id="a token of no use"),
        pytest.param("timeouts: {request: .inf}", id="no timeout"),
        pytest.param(
            "{bindAddresses: ['http://127.0.0.1:0', 'pulsar://127.0.0.1:0'], "
            "brokers: {webServiceUrl: ['http://b'], brokerServiceUrl: ['pulsar://b']}}",
            id="any two ports",
        ),
    ],
)
async def test_check_accepts_configs_with_which_run_starts(tmp_path: Path, files: dict[str, str], keys: str) -> None:
    path = write(tmp_path, keys, **files)
    assert await refused_by_run(path) == []
    assert main(["check", "--config", path]) == 0


WARNED = "{lookupListenerName: extern, advertisedListeners: [{broker: b, listeners: 'external:https://b.example.com'}]}"


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1), (["--strict", "--json"], 1)])
def test_strict_option_exits_1_on_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int
) -> None:
    assert main(["check", "--config", write(tmp_path, WARNED), *options]) == code
    out, err = capsys.readouterr()
    assert "no line of advertisedListeners has listener 'extern'" in out
    assert err == ""


@pytest.mark.parametrize("options", [["--strict"], ["--strict", "--json"]])
def test_strict_option_exits_0_for_a_config_without_warnings(tmp_path: Path, options: list[str]) -> None:
    assert main(["check", "--config", write(tmp_path), *options]) == 0


def test_strict_option_still_exits_2_on_faults(tmp_path: Path) -> None:
    assert main(["check", "--strict", "--config", write(tmp_path, "tls: {certificate: x, key: y}")]) == 2


def test_a_token_that_cannot_be_read_is_a_warning(
    tmp_path: Path, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` starts, and asks the brokers once it is there."""
    keys = "brokers: {webServiceUrl: ['http://b'], discover: admin, adminTokenFile: %(absent)s}"
    path = write(tmp_path, keys, **files)
    assert main(["check", "--strict", "--config", path]) == 1
    assert f"warning   brokers.adminTokenFile: {files['absent']} cannot be read: " in capsys.readouterr().out
    assert main(["check", "--strict", "--no-files", "--config", path]) == 0


def test_json_option_prints_the_whole_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingress = "ingresses: [{name: public, hosts: [b.example.com], listener: external}]"
    path = write(tmp_path, f"{WARNED[:-1]}, {ingress}}}")
    assert main(["check", "--config", path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (warning,) = said.pop("warnings")
    assert warning.startswith("lookupListenerName: no line of advertisedListeners has listener 'extern'")
    memory = said.pop("mostMemoryBytes")
    assert memory.keys() >= {"process", "limits.connections", "limits.inFlight", "limits.bufferBytes", "caches"}
    by = "advertisedListeners.0"
    assert said == {
        "config": path,
        "valid": True,
        "sockets": ["http://127.0.0.1:0"],
        "listeners": ["external"],
        "ingresses": [{"name": "public", "hosts": ["b.example.com"], "listener": "external"}],
        "brokers": [
            {
                "broker": "b",
                "names": ["b"],
                "addresses": [
                    {"listener": "external", "url": "https://b.example.com", "source": "config", "by": by},
                ],
            }
        ],
        "conflicts": [],
        "faults": [],
    }


def test_upper_bound_of_memory_is_printed_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "limits: {connections: 1024, bufferBytes: 1048577}")
    assert main(["check", "--config", path]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^memory    \d+ MiB at the most, whatever clients do$", said, re.MULTILINE)
    assert "\n            14 MiB limits.connections\n" in said
    assert "\n            2 MiB limits.bufferBytes\n" in said  # rounded up
    assert main(["check", "--config", write(tmp_path, "limits: {connections: 4096}")]) == 0
    assert "\n            56 MiB limits.connections\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "listeners", "said"),
    [
        pytest.param("miss: x", [], "miss: 'x' is not one of forward, reject", id="of the config"),
        pytest.param(
            "{tls: {certificate: %(absent)s, key: %(key)s}, "
            "advertisedListeners: [{broker: b, listeners: 'external:https://b'}]}",
            ["external"],
            "tls.certificate: %(absent)s cannot be read",
            id="of a file",
        ),
    ],
)
def test_json_option_prints_faults_on_stdout_and_exits_2(
    tmp_path: Path,
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    keys: str,
    listeners: list[str],
    said: str,
) -> None:
    assert main(["check", "--config", write(tmp_path, keys, **files), "--json"]) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["valid"], report["listeners"], err) == (False, listeners, "")
    (fault,) = report["faults"]
    assert without_place(fault).startswith(said % files)


def test_json_option_reports_unreadable_manifests_as_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "none"
    assert main(["check", "--config", write(tmp_path), "--manifests", str(folder), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["faults"] == [f"{folder}: is not a folder"]
