"""The commands of docs/install.md, run as they stand there, with real Helm and kubectl on a real API server.

There are no nodes, so what LEFT_OUT has is not run. What gateways make of the objects is tested elsewhere: with Istio's
own code and a real Envoy in tests/e2e/istio, the container in a gateway's pod in test_sidecar_fragments.py.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiclient import Api, Object
from apiserver import ApiServer
from custom_resources import named
from go_modules import ISTIO, KUBECTL, built
from helm_programs import CHART, Done, Helm, documents, tools
from processes import BIN, run

pytestmark = pytest.mark.timeout(180)

ROOT = CHART.parents[1]
LEFT_OUT = {
    "docker": "there is no Docker daemon; tests/e2e/image builds and runs the image",
    "conformance": "no node runs the gateway; tests/e2e runs it through a real Envoy",
    "envoy-gateway": "its printed command upgrades Envoy Gateway from a chart that is not here",
    "traefik": "its printed command upgrades Traefik from a chart that is not here",
}
ISTIO_KINDS = tuple(
    f"{kind}.networking.istio.io" for kind in ("gateways", "virtualservices", "serviceentries", "destinationrules")
)
GATEWAY_API_KINDS = tuple(f"{kind}.gateway.networking.k8s.io" for kind in ("gateways", "httproutes", "tlsroutes"))
KINDS = {
    "istio": ISTIO_KINDS,
    "gateway-api": (*GATEWAY_API_KINDS, *ISTIO_KINDS),
    "envoy-gateway": (
        *GATEWAY_API_KINDS,
        *(f"{kind}.gateway.envoyproxy.io" for kind in ("envoyproxies", "backends", "backendtrafficpolicies")),
    ),
    "traefik": ("ingressroutes.traefik.io", "ingressroutetcps.traefik.io"),
}


def page_commands(page: str) -> list[str]:
    """The five."""
    section = (ROOT / page).read_text().partition("docker build")[2]
    lines = ("docker build" + section.partition("```")[0]).replace(" \\\n    ", " ").splitlines()
    assert len(lines) == 5
    return lines


def page_gateways() -> dict[str, str]:
    """By the argument of --gateway, the namespace that the page's table gives."""
    rows = re.findall(
        r"^\| [^|]+ \| `([a-z-]+)` \| `([a-z-]+)` \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE
    )
    return dict(rows)


def test_readme_and_install_page_have_the_same_five_commands_for_every_gateway() -> None:
    assert page_commands("README.md") == page_commands("docs/install.md")
    assert page_gateways().keys() == KINDS.keys()


@dataclass
class Shell:
    """A terminal in the repository's folder, with the cluster's credentials."""

    folder: Path
    kubeconfig: Path

    async def __call__(self, command: str) -> Done:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        child = await asyncio.create_subprocess_exec(
            "/bin/bash", "-ec", f"set -o pipefail\n{command}",
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await child.communicate()
        assert child.returncode is not None
        return Done(child.returncode, out.decode(), err.decode())

    async def succeeds(self, command: str) -> str:
        done = await self(command)
        assert done.code == 0, f"{command}\n{done.said}"
        return done.out


@asynccontextmanager
async def cluster(admin: Api, kind: str, namespace: str) -> AsyncIterator[None]:
    """With the kinds of a gateway, and its namespace and the brokers'."""
    definitions = named(*KINDS[kind])
    await admin.define(definitions)
    for name in (namespace, "pulsar"):
        await admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield
    finally:
        await admin.undefine(definitions)


@pytest.fixture
async def shell(api_server: ApiServer, admin: Api, tmp_path: Path) -> Shell:
    """What the page expects to be there: programs, and the repository's folder."""
    programs = {"helm": tools()["helm4"], "kubectl": built(KUBECTL)["kubectl"]}
    programs["pulsar-ingress-proxy"] = BIN / "pulsar-ingress-proxy"
    (tmp_path / "bin").mkdir()
    for name, program in programs.items():
        (tmp_path / "bin" / name).symlink_to(program)
    (tmp_path / "helm").symlink_to(ROOT / "helm")
    return Shell(tmp_path, api_server.kubeconfig(tmp_path / "kubeconfig", api_server.token("admin")))


def printed_command(notes: str) -> str:
    """The one that remains, of what `helm install` prints."""
    (command,) = re.findall(r"One command remains[^\n]*\n\n  (.*)\n", notes)
    return str(command)


async def installed(shell: Shell, kind: str, namespace: str) -> str:
    """The page's second and third command; what Helm prints."""
    _, init, install, _, _ = (
        line.replace("--gateway istio ", f"--gateway {kind} ").replace("istio-ingress", namespace)
        for line in page_commands("docs/install.md")
    )
    await shell.succeeds(init)
    return await shell.succeeds(install)


async def test_the_pages_commands_put_the_sidecar_and_its_port_into_istios_gateway(admin: Api, shell: Shell) -> None:
    charts = shell.folder / "istio-charts"
    code, _, err = await run(built(ISTIO)["istio"], "charts", charts)
    assert code == 0, err
    (shell.folder / "istio").mkdir()
    (shell.folder / "istio/gateway").symlink_to(charts / "charts/gateway")
    async with cluster(admin, "istio", "istio-ingress"):
        # The gateway as it is in use, with a port of its own.
        values = {"service": {"ports": [{"name": "https", "port": 443}, {"name": "amqps", "port": 5671}]}}
        (shell.folder / "gateway.yaml").write_text(yaml.safe_dump(values))
        await shell.succeeds("helm install istio-ingress istio/gateway -n istio-ingress -f gateway.yaml")

        notes = await installed(shell, "istio", "istio-ingress")
        assert printed_command(notes) == page_commands("docs/install.md")[3]
        assert page_commands("docs/install.md")[4] in notes
        await shell.succeeds(printed_command(notes))

        metadata = {"name": "istio-ingress", "namespace": "istio-ingress"}
        gateway = await admin.get({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
        assert [each["name"] for each in gateway["spec"]["template"]["spec"]["initContainers"]] == [
            "pulsar-ingress-proxy"
        ]
        service = await admin.get({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
        assert {port["port"] for port in service["spec"]["ports"]} == {443, 5671, 6651}

        again = await shell("helm install second helm/pulsar-ingress-proxy -n istio-ingress -f values.yaml")
        assert again.code == 1
        assert "release pulsar-ingress-proxy is beside this gateway already (istio/istio-ingress)" in again.err

        runbook = (ROOT / "docs/runbooks/sidecar-down.md").read_text()
        (bypass,) = re.findall(r"^helm upgrade .*$", runbook, re.MULTILINE)
        await shell.succeeds(bypass)
        route = {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService"}
        found = await admin.get(route | {"metadata": metadata | {"name": "pulsar-ingress-proxy"}})
        assert [rule["name"] for rule in found["spec"]["http"]] == ["bypass"]
        await shell.succeeds("helm uninstall pulsar-ingress-proxy istio-ingress -n istio-ingress")


async def test_a_cluster_without_istio_is_told_so_and_nothing_is_created(admin: Api, shell: Shell) -> None:
    await admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-ingress"}})
    before = await admin.everything()
    _, init, install, _, _ = page_commands("docs/install.md")
    await shell.succeeds(init)
    done = await shell(install)
    assert done.code == 1
    assert (
        "gateway.type: istio: this cluster does not have networking.istio.io/v1/ServiceEntry: install Istio first"
        in done.err
    )
    assert await admin.everything() == before


async def test_the_printed_command_waits_for_the_gateway_that_the_release_creates(admin: Api, shell: Shell) -> None:
    async with cluster(admin, "gateway-api", "istio-ingress"):
        notes = await installed(shell, "gateway-api", "istio-ingress")
        waiting = asyncio.create_task(shell.succeeds(printed_command(notes)))
        metadata = {"name": "pulsar-ingress-proxy", "namespace": "istio-ingress"}
        gateway = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata}
        found = await admin.get(gateway)
        assert found["spec"]["infrastructure"]["parametersRef"]["name"] == "pulsar-ingress-proxy-sidecar"
        await admin.patch(found, {"status": {"conditions": [_programmed()]}}, subresource="status")
        assert "condition met" in await waiting
        await shell.succeeds("helm uninstall pulsar-ingress-proxy -n istio-ingress")


def _programmed() -> Object:
    """What Istio's controller says of a Gateway that it runs."""
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    return {"type": "Programmed", "status": "True", "reason": "Programmed", "message": "", **times}


@pytest.mark.parametrize("kind", ["envoy-gateway", "traefik"])
async def test_the_pages_commands_create_the_objects_of_other_gateways(kind: str, admin: Api, shell: Shell) -> None:
    namespace = page_gateways()[kind]
    async with cluster(admin, kind, namespace):
        notes = await installed(shell, kind, namespace)
        assert shlex.split(printed_command(notes))
        assert kind in LEFT_OUT
        if kind == "traefik":
            text = await shell.succeeds(printed_command(notes).partition(" | ")[0])
            assert yaml.safe_load(text)["ports"]["pulsar"]["port"] == 6651
        await shell.succeeds(f"helm uninstall pulsar-ingress-proxy -n {namespace}")


@pytest.mark.parametrize("kind", KINDS)
async def test_values_of_init_render_and_check_clean(kind: str, tmp_path: Path) -> None:
    program = BIN / "pulsar-ingress-proxy"
    options = ("--host", "mq.example.org", "--brokers", "5", "--brokers", "mq-{n}.mq.messaging.svc.cluster.local")
    code, values, err = await run(program, "init", "--helm", "--gateway", kind, *options)
    assert code == 0, err
    (tmp_path / "values.yaml").write_text(values)
    helm = Helm("helm4", tmp_path)
    objects: list[Any] = documents(await helm("template", "pulsar-ingress-proxy", CHART, "-f", "values.yaml"))
    (config,) = (each for each in objects if each["metadata"]["name"] == "pulsar-ingress-proxy-config")
    (tmp_path / "config.yaml").write_text(config["data"]["config.yaml"])
    code, out, err = await run(program, "check", "--strict", "--no-files", "--config", tmp_path / "config.yaml")
    assert code == 0, out + err
    assert "pulsar+ssl://broker-{n}.mq.example.org:6651" in out
