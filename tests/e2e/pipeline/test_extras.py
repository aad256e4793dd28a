"""The wheel with each extra, in an environment that has nothing else: it is enough for what it is for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EVENTS = ROOT / "tests/pipeline/golden/events"
UV = str(Path(sys.executable).parent / "uv")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    [built] = folder.glob("*.whl")
    return built


def done(*command: str | Path) -> str:
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """The programs of a new environment; the versions are the locked ones."""
    locked = ROOT / "deploy/requirements/all.txt"
    done(UV, "venv", "--quiet", "--python", sys.executable, folder)
    package = f"{wheel}[{extra}]" if extra else str(wheel)
    done(UV, "pip", "install", "--quiet", "--python", folder / "bin/python", "--constraint", locked, package)
    return folder / "bin"


def test_wheel_without_extras_checks_a_config(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, "", tmp_path / "environment")
    config = ROOT / "tests/pipeline/golden/config.yaml"
    assert done(programs / "pulsar-ingress-proxy", "check", "--config", config)
    missing = [programs / "pulsar-ingress-pipeline", "report", "--tables", tmp_path, "--out", tmp_path / "report.html"]
    ended = subprocess.run(list(map(str, missing)), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "pip install 'pulsar-ingress-proxy[pipeline]'" in ended.stderr


def test_wheel_with_the_extra_pipeline_makes_tables_and_a_report(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, "pipeline", tmp_path / "environment")
    pipeline, tables, report = programs / "pulsar-ingress-pipeline", tmp_path / "tables", tmp_path / "report.html"
    assert "593 events" in done(pipeline, "run", "--events", EVENTS, "--tables", tables)
    done(pipeline, "report", "--tables", tables, "--out", report)
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert "ingresses:" in done(pipeline, "suggest", "--tables", tables, "--support", "1")


def test_wheel_with_the_extra_conformance_has_the_client_that_produces(wheel: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{lookupListenerName: external, brokers: {webServiceUrl: ['http://127.0.0.1:1']}}")
    command = ("conformance", "--config", config, "--url", "http://127.0.0.1:1", "--produce")
    for extra, code, said in (
        ("", 2, "[conformance]"),
        ("conformance", 1, "route: http://127.0.0.1:1: port 1 does not open"),
    ):
        program = installed(wheel, extra, tmp_path / f"environment-{extra}") / "pulsar-ingress-proxy"
        ended = subprocess.run(list(map(str, (program, *command))), capture_output=True, text=True, timeout=60)
        assert (ended.returncode, said in ended.stdout + ended.stderr) == (code, True), ended
