"""The command line, as its user meets it: what it prints, and how it exits."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.cli import main

CONFIG = """
bindAddresses: [http://127.0.0.1:8080, "partner:http://127.0.0.1:8081"]
brokers: {webServiceUrl: [http://pulsar-broker:8080]}
ingresses:
  - {name: public, hosts: [pulsar.example.com, "*.pulsar.example.com"], listener: external, expose: [lookup]}
advertisedListeners:
  - broker: b-{n}.brokers.svc
    listeners: >-
      internal:http://b-{n}.brokers.svc:8080, external:https://b-{n}.pulsar.example.com,
      partner:http://b-{n}.partner.example
"""
LOOKUP = "https://pulsar.example.com/lookup/v2/topic/persistent/t/n/orders"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture
def binary(tmp_path: Path) -> str:
    """Sockets for the binary protocol: one for many hosts, and one behind a gateway that ends TLS."""
    path = tmp_path / "binary.yaml"
    path.write_text("""
bindAddresses: [pulsar+ssl://127.0.0.1:6651, partner:pulsar://127.0.0.1:6650]
tls: {certificate: tls.crt, key: tls.key}
brokers: {brokerServiceUrl: [pulsar://pulsar-broker:6650]}
ingresses: [{name: public, hosts: [pulsar.example.com, "*.pulsar.example.com"], listener: external}]
advertisedListeners:
  - broker: b-{n}.brokers.svc
    listeners: >-
      internal:pulsar://b-{n}.brokers.svc:6650, external:pulsar+ssl://b-{n}.pulsar.example.com:6651,
      partner:pulsar://b-{n}.partner.example:6650
""")
    return str(path)


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["explain", "--json", *arguments]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown)[:7] == ["ingress", "listener", "rule", "hit", "reason", "upstream", "location"]
    return dict(shown)


def redirected(shown: dict[str, Any]) -> tuple[str, str | None, str]:
    return shown["location"]["from"], shown["location"]["to"], shown["location"]["action"]


class TestExplain:
    def test_explain_shows_listener_rule_and_upstream_of_a_hit_by_ingress(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = explained(capsys, "--config", config, LOOKUP)
        assert {key: shown[key] for key in list(shown)[:7]} == {
            "ingress": "public",
            "listener": "external",
            "rule": "ingress",
            "hit": True,
            "reason": None,
            "upstream": "http://pulsar-broker:8080",
            "location": None,
        }

    def test_a_brokers_own_host_goes_to_that_broker(self, config: str, capsys: pytest.CaptureFixture[str]) -> None:
        shown = explained(capsys, "--config", config, LOOKUP.replace("pulsar.", "b-7.pulsar.", 1))
        assert shown["upstream"] == "http://b-7.brokers.svc:8080"

    def test_given_headers_count_as_sent_by_a_trusted_proxy(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        url = LOOKUP.replace("pulsar.example.com", "sidecar")
        shown = explained(capsys, "--config", config, url, "-H", "X-Forwarded-Host: pulsar.example.com")
        assert (shown["ingress"], shown["rule"]) == ("public", "ingress")

    def test_bind_option_selects_the_socket_and_its_listener(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        url = LOOKUP.replace("pulsar.example.com", "sidecar")
        shown = explained(capsys, "--config", config, url, "--bind", "127.0.0.1:8081")
        assert (shown["listener"], shown["rule"]) == ("partner", "bind")

    def test_unknown_bind_option_exits_2_and_lists_the_sockets(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain", "--config", config, LOOKUP, "--bind", "127.0.0.1:1"]) == 2
        assert "http://127.0.0.1:8080, partner:http://127.0.0.1:8081" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("location", "action", "to"),
        [
            (
                "http://b-1.brokers.svc:8080/x?a=b",
                "rewritten",
                "https://b-1.pulsar.example.com/x?a=b&listenerName=external",
            ),
            ("https://b-1.pulsar.example.com/x", "kept", "https://b-1.pulsar.example.com/x"),
            ("http://elsewhere.svc/x", "refused", None),
            ("https://peer.example.org/x", "passed", "https://peer.example.org/x"),
        ],
    )
    def test_location_option_shows_the_action_and_target_of_a_redirect(
        self, config: str, capsys: pytest.CaptureFixture[str], location: str, action: str, to: str | None
    ) -> None:
        shown = explained(capsys, "--config", config, LOOKUP, "--location", location)
        assert redirected(shown) == (location, to, action)

    def test_followed_redirect_shows_the_broker_url_that_is_dialled(
        self, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULSAR_INGRESS_REDIRECTS__LOOKUP", "follow")
        location = "http://b-1.brokers.svc:8080/lookup/x"
        shown = explained(capsys, "--config", config, LOOKUP, "--location", location)
        assert redirected(shown) == (location, f"{location}?listenerName=external", "followed")

    @pytest.mark.parametrize(
        ("url", "more", "expected"),
        [
            ("pulsar+ssl://pulsar.example.com:6651", [], ("public", "external", "ingress")),
            ("pulsar+ssl://elsewhere.example.org:6651", [], (None, None, "none")),
            ("pulsar://pulsar.example.com:6650", [], (None, "partner", "bind")),  # where no server name is sent
            ("pulsar+ssl://pulsar.example.com", ["--bind", "127.0.0.1:6650"], (None, "partner", "bind")),
            (
                "pulsar+ssl://pulsar.example.com",
                ["-H", "X-Pulsar-ListenerName: partner"],
                ("public", "partner", "header"),
            ),
        ],
    )
    def test_binary_lookup_shows_ingress_listener_rule_and_upstream(
        self,
        binary: str,
        capsys: pytest.CaptureFixture[str],
        url: str,
        more: list[str],
        expected: tuple[str | None, ...],
    ) -> None:
        shown = explained(capsys, "--config", binary, url, *more)
        assert (shown["ingress"], shown["listener"], shown["rule"]) == expected
        assert shown["hit"] == (expected[2] != "none")
        assert shown["upstream"] == "pulsar://pulsar-broker:6650"

    def test_server_name_of_one_broker_leads_to_that_broker(
        self, binary: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = explained(capsys, "--config", binary, "pulsar+ssl://b-7.pulsar.example.com:6651")
        assert shown["upstream"] == "pulsar://b-7.brokers.svc:6650"

    @pytest.mark.parametrize(
        ("location", "action", "to"),
        [
            ("pulsar://b-1.brokers.svc:6650", "rewritten", "pulsar+ssl://b-1.pulsar.example.com:6651"),
            (
                "pulsar+ssl://b-1.pulsar.example.com:6651",
                "kept",
                "pulsar+ssl://b-1.pulsar.example.com:6651",
            ),
            ("pulsar://elsewhere.svc:6650", "refused", None),
            ("nonsense", "refused", None),
        ],
    )
    def test_location_option_shows_the_action_and_target_of_a_binary_redirect(
        self, binary: str, capsys: pytest.CaptureFixture[str], location: str, action: str, to: str | None
    ) -> None:
        url = "pulsar+ssl://pulsar.example.com:6651"
        shown = explained(capsys, "--config", binary, url, "--location", location)
        assert redirected(shown) == (location, to, action)

    def test_followed_binary_redirect_shows_the_broker_url_that_is_dialled(
        self, binary: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULSAR_INGRESS_REDIRECTS__LOOKUP", "follow")
        location, url = "pulsar://b-1.brokers.svc:6650", "pulsar+ssl://pulsar.example.com"
        shown = explained(capsys, "--config", binary, url, "--location", location)
        assert redirected(shown) == (location, location, "followed")

    @pytest.mark.parametrize(
        ("location", "action", "to"),
        [
            ("pulsar://b-1.brokers.svc:6650", "followed", "pulsar://b-1.brokers.svc:6650"),
            ("pulsar+ssl://b-1.pulsar.example.com:6651", "followed", "pulsar://b-1.brokers.svc:6650"),
            ("pulsar://stranger.nowhere.test:6650", "refused", None),
        ],
    )
    def test_binary_redirect_at_a_through_sidecar_ingress_is_followed_or_refused(
        self,
        binary: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        location: str,
        action: str,
        to: str | None,
    ) -> None:
        ingress = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external", "throughSidecar": True}
        monkeypatch.setenv("PULSAR_INGRESS_INGRESSES", json.dumps([ingress]))
        shown = explained(capsys, "--config", binary, "pulsar+ssl://pulsar.example.com", "--location", location)
        assert redirected(shown) == (location, to, action)

    def test_binary_url_exits_2_when_no_binary_socket_is_bound(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain", "--config", config, "pulsar://pulsar.example.com:6650"]) == 2
        assert "no pulsar socket is bound to anything" in capsys.readouterr().err

    def test_refused_request_is_no_hit_and_shows_status_and_reason(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = explained(capsys, "--config", config, "https://pulsar.example.com/admin/v2/clusters")
        assert (shown["hit"], shown["reason"], shown["upstream"]) == (False, "not-exposed", None)
        assert main(["explain", "--config", config, "https://pulsar.example.com/admin/v2/clusters"]) == 0
        assert "403 not-exposed: ingress 'public' exposes only lookup" in capsys.readouterr().out

    def test_request_that_no_rule_matches_is_shown_as_a_miss_with_its_reason(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = explained(capsys, "--config", config, LOOKUP.replace("pulsar.example.com", "unknown.example.org"))
        assert (shown["listener"], shown["rule"], shown["hit"], shown["reason"]) == (None, "none", False, "no-rule")

    def test_text_output_shows_every_rule_the_route_and_the_redirect(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        location = "http://b-1.brokers.svc:8080/x"
        assert main(["explain", "--config", config, LOOKUP, "--location", location]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "request   lookup",
            "ingress   public",
            "listener  external",
            "rule      ingress",
            "  query    passed over  no listenerName parameter",
            "  header   passed over  no X-Pulsar-ListenerName header",
            "  bind     passed over  the socket is not bound to a listener",
            "  ingress  decided      Host pulsar.example.com matches ingress 'public' (listener 'external')",
            "  default  not reached  ingress came first; lookupListenerName is not set",
            "upstream  http://pulsar-broker:8080",
            "  the host is not the address of one broker: any broker of the pool may answer",
            f"location  {location}",
            "  rewritten https://b-1.pulsar.example.com/x?listenerName=external",
            "  the address book has that broker's address on 'external' "
            "(auto: with Authorization, the sidecar would follow the redirect)",
        ]

    def test_redirect_and_body_of_a_refused_request_are_not_explained(
        self, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "body.json").write_text("{}")
        answers = ["--location", "http://b-1.brokers.svc:8080/x", "--body", str(tmp_path / "body.json")]
        shown = explained(capsys, "--config", config, LOOKUP + "?listenerName=internal", *answers)
        assert (shown["location"], shown["body"], shown["refusal"]["status"]) == (None, None, 403)

    def test_text_output_of_a_miss_ends_with_config_to_paste(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain", "--config", config, LOOKUP.replace("pulsar.example.com", "new.example.org")]) == 0
        assert capsys.readouterr().out.partition("Suggested config:\n\n")[2].splitlines() == [
            "# Add:",
            "ingresses:",
            "  - name: new-example-org",
            "    hosts: [new.example.org]",
            "    listener: external",
            "    expose: [lookup]",
        ]

    @pytest.mark.parametrize(
        ("leaks", "stranger", "leak", "keys"),
        [
            (
                "rewrite",
                False,
                None,
                [
                    ("httpUrl", "http://b-1.brokers.svc:8080", "https://b-1.pulsar.example.com", False, "rewritten"),
                    ("httpUrlTls", None, "https://b-1.pulsar.example.com", False, "added"),
                ],
            ),
            ("rewrite", True, "passed", [("httpUrl", "http://b.other.svc:8080", "=", True, "passed")]),
            ("block", True, "blocked", [("httpUrl", "http://b.other.svc:8080", None, True, "blocked")]),
            ("observe", True, "observed", [("httpUrl", "http://b.other.svc:8080", "=", True, "observed")]),
        ],
    )
    def test_body_option_shows_each_url_before_and_after_and_whether_it_leaks(
        self,
        config: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        leaks: str,
        stranger: bool,
        leak: str | None,
        keys: list[tuple[str, str | None, str | None, bool, str]],
    ) -> None:
        monkeypatch.setenv("PULSAR_INGRESS_LEAKS", leaks)
        file = tmp_path / "body.json"
        file.write_text(json.dumps({"httpUrl": f"http://{'b.other' if stranger else 'b-1.brokers'}.svc:8080"}))
        body = explained(capsys, "--config", config, LOOKUP, "--body", str(file))["body"]
        assert body["leak"] == leak
        wanted = [(key, before, before if after == "=" else after, *rest) for key, before, after, *rest in keys]
        assert [tuple(key.values()) for key in body["keys"]] == wanted
        assert [list(key) for key in body["keys"]] == [["key", "from", "to", "leak", "action"]] * len(keys)

    @pytest.mark.parametrize(
        "url", [LOOKUP.replace("pulsar.", "nobody."), "https://pulsar.example.com/admin/v2/clusters"]
    )
    def test_body_of_a_miss_or_of_no_lookup_stays_as_it_is(
        self, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        monkeypatch.setenv(
            "PULSAR_INGRESS_INGRESSES", '[{"name":"p","hosts":["pulsar.example.com"],"listener":"external"}]'
        )
        file = tmp_path / "body.json"
        file.write_text('{"httpUrl": "http://b-1.brokers.svc:8080"}')
        body = explained(capsys, "--config", config, url, "--body", str(file))["body"]
        assert [(key["to"], key["action"]) for key in body["keys"]] == [("http://b-1.brokers.svc:8080", "kept")]
        assert body["why"]

    @pytest.mark.parametrize(
        ("sent", "through", "actions"),
        [
            ({"brokerUrl": "pulsar://b-1.brokers.svc:6650"}, False, ["rewritten", "added"]),
            ({"brokerUrlTls": "pulsar+ssl://b-1.pulsar.example.com:6651"}, False, ["added", "kept"]),
            ({"brokerUrl": "pulsar://b-1.brokers.svc:6650"}, True, ["rewritten", "added"]),
            ({"brokerUrl": "pulsar://stranger.nowhere.test:6650"}, True, ["blocked"]),
        ],
    )
    def test_body_option_shows_the_two_addresses_of_a_binary_answer(
        self,
        binary: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        sent: dict[str, str],
        through: bool,
        actions: list[str],
    ) -> None:
        ingress = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external", "throughSidecar": through}
        monkeypatch.setenv("PULSAR_INGRESS_INGRESSES", json.dumps([ingress]))
        file = tmp_path / "body.json"
        file.write_text(json.dumps(sent))
        body = explained(capsys, "--config", binary, "pulsar+ssl://pulsar.example.com", "--body", str(file))["body"]
        assert [key["action"] for key in body["keys"]] == actions

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "cannot be read: No such file or directory"),
            (b"<html>", "the body is not JSON: "),
            (b"[" * 100_000, "the body is not JSON: "),
            (b"\xff\xfe", "cannot be read: "),
            (b"[1]", "the body is not a JSON object: "),
        ],
    )
    def test_body_that_is_no_json_object_exits_2_with_one_line(
        self, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
    ) -> None:
        file = tmp_path / "body.json"
        if content is not None:
            file.write_bytes(content)
        assert main(["explain", "--config", config, LOOKUP, "--body", str(file)]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("bad", [["not-a-url"], [LOOKUP, "-H", "no colon"], ["ftp://x/y"]])
    def test_malformed_url_or_header_exits_2_with_one_line(
        self, config: str, capsys: pytest.CaptureFixture[str], bad: list[str]
    ) -> None:
        assert main(["explain", "--config", config, *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1


class TestCheck:
    def test_check_prints_sockets_listeners_ingresses_and_brokers(
        self, config: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "--config", config]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "socket    partner:http://127.0.0.1:8081" in lines
        assert "listener  internal (internal)" in lines
        assert "ingress   public: pulsar.example.com, *.pulsar.example.com -> external" in lines
        assert "broker    b-{n}.brokers.svc" in lines
        assert "            external: https://b-{n}.pulsar.example.com" in lines

    def test_check_exits_2_and_prints_each_fault_on_its_own_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bad = tmp_path / "bad.yaml"
        bad.write_text(
            "clusterNam: x\nredirects: {lookup: rewrit}\ndrainSeconds: -1\nbrokers: {webServiceUrl: ['http://b']}\n"
        )
        assert main(["check", "--config", str(bad)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            f"{bad}:1: clusterNam: unknown key; did you mean clusterName?",
            f"{bad}:2: redirects.lookup: 'rewrit' is not one of auto, rewrite, follow, pass; did you mean rewrite?",
            f"{bad}:3: drainSeconds: input should be greater than or equal to 0, not -1",
        ]

    def test_check_exits_2_and_names_a_missing_config_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "--config", str(tmp_path / "none.yaml")]) == 2
        assert capsys.readouterr().err == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory\n"


def test_config_schema_is_a_schema_of_all_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert {"bindAddresses", "advertisedListeners", "redirects", "limits"} <= schema["properties"].keys()
    assert all("description" in key for key in schema["properties"].values())


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in ("run", "check", "explain", "doctor", "conformance", "demo", "completion", "config-schema"):
        assert f"    {command}" in shown


def test_demo_shows_the_failure_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--once"]) == 0
    shown = capsys.readouterr().out
    without, _, with_it = shown.partition("The same lookup with it")
    assert ".svc.cluster.local does not resolve outside the cluster" in without
    assert "Location: https://broker-" in with_it
    assert "misses 0" in with_it
    assert len(shown.splitlines()) <= 40


class TestRun:
    @asynccontextmanager
    async def started(self, path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """`run` with this config; it ends with the test, whatever becomes of that."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", str(path), stderr=subprocess.PIPE
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def test_run_logs_its_address_and_warnings_and_serves_until_sigterm(self, tmp_path: Path) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            path = tmp_path / "config.yaml"
            values = {
                "bindAddresses": ["http://127.0.0.1:0"],
                "brokers": {"webServiceUrl": [cluster.brokers[0].web]},
                "metrics": {"address": "127.0.0.1:0"},
                "console": {"address": "0.0.0.0:0"},
            }
            path.write_text(yaml.safe_dump(values))
            async with self.started(path) as process:
                assert process.stderr is not None
                first, second = [json.loads(await process.stderr.readline()) for _ in range(2)]
                assert first["message"].startswith("serving http://127.0.0.1:")
                assert second["level"] == "warning"
                assert second["message"].startswith("console.address: 0.0.0.0:0: anyone who can connect there sees")
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                assert b"Traceback" not in await process.stderr.read()

    @pytest.mark.parametrize("key", ["bindAddresses", "metrics.address"])
    async def test_a_socket_that_is_taken_exits_2_with_one_line(self, tmp_path: Path, key: str) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            taken = cluster.brokers[0].web
            path = tmp_path / "config.yaml"
            values = {
                "bindAddresses": [taken if key == "bindAddresses" else "http://127.0.0.1:0"],
                "brokers": {"webServiceUrl": [taken]},
                "metrics": {"address": taken.removeprefix("http://") if key == "metrics.address" else "127.0.0.1:0"},
            }
            path.write_text(yaml.safe_dump(values))
            async with self.started(path) as process:
                _, err = await process.communicate()
            assert process.returncode == 2
            assert err.decode().splitlines() == [err.decode().strip()]
            assert err.decode().startswith(key)
            assert "Address already in use" in err.decode() or "address already in use" in err.decode()

    async def test_a_certificate_that_is_not_there_exits_2(self, tmp_path: Path) -> None:
        path = tmp_path / "config.yaml"
        path.write_text(
            "{bindAddresses: ['https://127.0.0.1:0'], brokers: {webServiceUrl: ['http://b']}, "
            "metrics: {address: '127.0.0.1:0'}, tls: {certificate: none.pem, key: none.pem}}"
        )
        async with self.started(path) as process:
            _, err = await process.communicate()
        assert process.returncode == 2
        assert err.decode().startswith("tls.certificate: none.pem cannot be read: No such file")
