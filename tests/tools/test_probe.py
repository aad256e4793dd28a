"""The probe against real sockets: a sidecar over simulated brokers, brokers alone, and nobody."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from pytest_aiohttp import AiohttpRawServer
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.tools import probe

HOST = "pulsar.example.com"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"


@asynccontextmanager
async def sidecar(cluster: SimulatedCluster, scheme: str = "http", **keys: Any) -> AsyncIterator[tuple[Sidecar, str]]:
    """One before the second broker, which does not lead; and its URL."""
    listeners = "internal:{web},external:https://broker-{n}.pulsar.example.com,external:pulsar+ssl://b{n}.pulsar.example.com:6651"
    config = {
        "bindAddresses": [f"{scheme}://127.0.0.1:0"],
        "metrics": {"address": "127.0.0.1:0"},
        "brokers": {"webServiceUrl": [cluster.brokers[1].web]},
        "ingresses": [{"name": "public", "hosts": [HOST], "listener": "external"}],
        "advertisedListeners": [
            {"broker": broker.name, "listeners": listeners.format(web=broker.web, n=broker.index)}
            for broker in cluster.brokers
        ],
        **keys,
    }
    one = Sidecar(load_mapping(config))
    await one.start()
    try:
        yield one, f"{scheme}://127.0.0.1:{one.http_servers[0].port}"
    finally:
        await one.stop()


def answering(status: int, body: str = "", **headers: str) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    """Gives every request the same answer."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text=body, headers=headers)

    return answer


class Probe:
    """Runs the program, and keeps what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    async def __call__(self, *arguments: str) -> int:
        code = await asyncio.to_thread(probe.main, arguments)
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Probe:
    return Probe(capsys)


async def test_a_redirect_on_the_listener_is_usable(ask: Probe) -> None:
    async with SimulatedCluster() as cluster, sidecar(cluster) as (_, url):
        code = await ask("--lookup", url + LOOKUP, "--header", f"Host: {HOST}", "--header", "X-Forwarded-Proto: https")
    assert (code, ask.err) == (0, "")
    said = dict(line.split(maxsplit=1) for line in ask.out.splitlines())
    assert said["status"] == "307"
    assert said["Location"].startswith(f"https://broker-0.{HOST}{LOOKUP}?")
    assert said["X-Request-Id"]
    assert said["usable"].startswith("yes")


async def test_an_answer_with_brokers_on_the_listener_is_usable(ask: Probe) -> None:
    async with SimulatedCluster() as cluster, sidecar(cluster, redirects={"lookup": "follow"}) as (_, url):
        code = await ask("--lookup", url + LOOKUP, "--listener", "external")
    assert (code, ask.err) == (0, "")
    assert "status        200" in ask.out
    assert "brokerUrlTls  pulsar+ssl://b0.pulsar.example.com:6651" in ask.out


async def test_internal_address_in_a_redirect_or_answer_is_not_usable(ask: Probe) -> None:
    """What a client gets without the sidecar: a broker's name of the cluster, in a redirect and in an answer."""
    async with SimulatedCluster() as cluster:
        redirected = await ask("--lookup", cluster.brokers[1].web + LOOKUP)
        assert "Location http://pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local:8080" in ask.err
        answered = await ask("--lookup", cluster.brokers[0].web + LOOKUP)
    assert (redirected, answered) == (1, 1)
    assert "brokerUrl pulsar://pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local:6650" in ask.err
    assert "advertisedListeners" in ask.err
    assert len(ask.err.splitlines()) == 1


async def test_refusal_is_reported_in_one_line_with_the_sidecars_own_code(ask: Probe) -> None:
    async with SimulatedCluster() as cluster, sidecar(cluster) as (_, url):
        code = await ask("--lookup", url + LOOKUP, "--listener", "nobody-has-it")
    assert code == 1
    assert ask.err.startswith("the lookup was answered 400: unknown-listener: ")
    assert len(ask.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        pytest.param(401, "<html>", {}, "401: the brokers want credentials", id="no-credentials"),
        pytest.param(418, "", {}, "418: that is no answer to a lookup", id="anything"),
        pytest.param(200, "<html>", {}, "a 200 that names no broker", id="not-a-lookup"),
        pytest.param(200, "[]", {}, "a 200 that names no broker", id="another-json"),
        pytest.param(307, "", {}, "a 307 without a Location", id="no-location"),
        pytest.param(307, "", {"Location": "ftp://a.example.com/"}, "address of the inside", id="no-http-location"),
        pytest.param(200, '{"brokerUrl": "what"}', {}, "address of the inside", id="no-address"),
    ],
)
async def test_unusable_lookup_answer_exits_1_with_one_line_that_says_why(
    ask: Probe, aiohttp_raw_server: AiohttpRawServer, status: int, body: str, headers: dict[str, str], said: str
) -> None:
    server = await aiohttp_raw_server(answering(status, body, **headers))
    assert await ask("--lookup", str(server.make_url(LOOKUP))) == 1
    assert said in ask.err
    assert len(ask.err.splitlines()) == 1


async def test_a_location_that_stays_with_its_host_is_usable(ask: Probe, aiohttp_raw_server: AiohttpRawServer) -> None:
    server = await aiohttp_raw_server(answering(307, Location=f"{LOOKUP}?authoritative=true"))
    assert await ask("--lookup", str(server.make_url(LOOKUP))) == 0


async def test_lookup_exits_1_unless_the_certificate_is_of_a_trusted_ca(ask: Probe, tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    for name, ca in (("ca.pem", authority), ("other.pem", other)):
        ca.cert_pem.write_to_path(str(tmp_path / name))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    tls = {"certificate": str(tmp_path / "tls.crt"), "key": str(tmp_path / "tls.key")}
    async with SimulatedCluster() as cluster, sidecar(cluster, "https", tls=tls) as (_, url):
        arguments = ("--lookup", url + LOOKUP, "--listener", "external")
        assert await ask(*arguments, "--cacert", str(tmp_path / "ca.pem")) == 0
        assert await ask(*arguments, "--cacert", str(tmp_path / "other.pem")) == 1
        assert "the certificate is not good" in ask.err
        assert await ask(*arguments) == 1
        assert "--cacert" in ask.err
        assert await ask(*arguments, "--cacert", str(tmp_path / "none.pem")) == 1
        assert "cannot be read" in ask.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--lookup", "pulsar://a:6650/x"), "is not an http or https URL", id="scheme"),
        pytest.param(("--lookup", "http://a:b/"), "is not a URL", id="port"),
        pytest.param(("--lookup", "http://nobody.invalid/"), "nobody.invalid does not resolve", id="name"),
        pytest.param(("--lookup", "http://127.0.0.1:1/", "--header", "x"), "write --header 'Name: value'", id="header"),
        pytest.param(("--lookup", "http://127.0.0.1:1/"), "refused", id="nobody-there"),
        pytest.param(("127.0.0.1:1",), "refused", id="not-alive"),
    ],
)
async def test_invalid_argument_or_unreachable_server_exits_1_with_one_line(
    ask: Probe, arguments: tuple[str, ...], said: str
) -> None:
    assert await ask(*arguments) == 1
    assert said in ask.err
    assert len(ask.err.splitlines()) == 1


async def test_silent_server_exits_1_after_the_timeout(ask: Probe) -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ask(f"127.0.0.1:{port}", "--timeout", "0.05") == 1
    assert "no answer within 0.05 s" in ask.err


async def test_probe_exits_0_when_livez_answers_and_1_when_it_answers_404(ask: Probe) -> None:
    async with SimulatedCluster() as cluster, sidecar(cluster) as (one, _):
        assert await ask(f"127.0.0.1:{one.metrics_port}") == 0
        assert ask.out == f"http://127.0.0.1:{one.metrics_port}/livez: alive\n"
        assert await ask(f"127.0.0.1:{one.http_servers[0].port}") == 1
    assert "answers 404" in ask.err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("fault", ["", "noSuchKey: 1"])
async def test_livez_is_asked_at_the_metrics_address_even_of_a_faulty_config(
    ask: Probe, tmp_path: Path, host: str, fault: str
) -> None:
    """A config with a fault counts too: under --hold it is served, at the address that can be made out."""
    file = tmp_path / "config.yaml"
    async with SimulatedCluster() as cluster, sidecar(cluster) as (one, _):
        file.write_text(f"metrics: {{address: '{host}:{one.metrics_port}'}}\n{fault}")
        assert await ask("--config", str(file)) == 0, ask.err
        assert ask.out == f"http://127.0.0.1:{one.metrics_port}/livez: alive\n"


async def test_livez_address_from_the_environment_wins_over_the_config(
    ask: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"metrics": {"address": "127.0.0.1:1"}}))
    async with SimulatedCluster() as cluster, sidecar(cluster) as (one, _):
        monkeypatch.setenv("PULSAR_INGRESS_METRICS__ADDRESS", f"127.0.0.1:{one.metrics_port}")
        assert await ask("--config", str(file)) == 0, ask.err


def test_missing_config_file_gives_the_default_livez_address(tmp_path: Path) -> None:
    assert probe._status_address(str(tmp_path / "none.yaml")) == probe.ADDRESS


def test_probe_does_not_import_heavy_modules() -> None:
    """It runs every few seconds: without the config's model, the server and all else that takes long to import."""
    code = """
import sys
from pulsar_ingress_proxy.__main__ import main
sys.argv = ["pulsar-ingress-proxy", "probe", "127.0.0.1:1"]
main()
print({"pydantic", "aiohttp", "yaml", "asyncio"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
