"""What `.github/workflows` promise that can be told without running them, and the notes of a release."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsar_ingress_proxy import __version__

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())
VERSIONS = ("proxy/pulsar_ingress_proxy/__init__.py", "helm/pulsar-ingress-proxy/Chart.yaml")


def workflow(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def notes(folder: Path, tag: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / ".github/release-notes"
    return subprocess.run([script, tag], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that have the version, and a changelog with a section for it."""
    for name in VERSIONS:
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    sections = ["## Unreleased\n- soon", f"## {__version__} (2030-01-31)\n\n### Added\n- this", "## 0.0.9\n- that"]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n" + "\n\n".join(sections) + "\n")
    return tmp_path


def test_notes_of_a_release_are_its_section_of_the_changelog(checkout: Path) -> None:
    done = notes(checkout, f"v{__version__}")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "### Added\n- this", "")


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        (__version__, "is not v followed by a version"),
        ("v0.0.9", "the package is not of version 0.0.9"),
        (f"v{__version__}0", "the package is not"),
        (f"v{__version__.replace('.', 'x')}", "the package is not"),
    ],
)
def test_a_tag_that_is_not_the_version_of_the_package_is_refused(checkout: Path, tag: str, said: str) -> None:
    done = notes(checkout, tag)
    assert done.returncode == 1
    assert done.stdout == ""
    assert said in done.stderr


@pytest.mark.parametrize("key", ["version", "appVersion"])
def test_a_chart_of_another_version_is_refused(checkout: Path, key: str) -> None:
    chart = checkout / VERSIONS[1]
    chart.write_text(re.sub(rf"^{key}: .*$", f'{key}: "9.9.9"', chart.read_text(), flags=re.MULTILINE))
    done = notes(checkout, f"v{__version__}")
    assert (done.returncode, f"the chart's {key} is not" in done.stderr) == (1, True)


def test_a_version_without_a_section_in_the_changelog_is_refused(checkout: Path) -> None:
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {__version__} ", f"## {__version__}-rc1 "))
    done = notes(checkout, f"v{__version__}")
    assert (done.returncode, "has no section" in done.stderr) == (1, True)


def test_every_python_that_the_package_claims_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    claimed = {one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)}
    tested = workflow(ROOT / ".github/workflows/ci.yml")["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert claimed
    assert {f"3.{minor}" for minor in claimed} <= set(tested)
    assert project["requires-python"] == f">=3.{min(map(int, claimed))}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_checkout_leaves_no_token_behind(path: Path) -> None:
    steps = [step for job in workflow(path)["jobs"].values() for step in job.get("steps", [])]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_commands_of_the_workflows_are_there() -> None:
    runs = "\n".join(
        step["run"]
        for path in WORKFLOWS
        for job in workflow(path)["jobs"].values()
        for step in job.get("steps", [])
        if "run" in step
    )
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = re.findall(r"\bmake ([a-z][a-z0-9-]*)", runs)
    assert {"test", "audit", "lint"} <= set(used) <= targets
    images = workflow(ROOT / ".github/workflows/release.yaml")["jobs"]["image"]["strategy"]["matrix"]["image"]
    assert {image["target"] for image in images} <= targets
    scripts = set(re.findall(r"\.github/[a-z-]+", runs))
    assert {".github/release-notes", ".github/package-chart", ".github/package-python"} <= scripts
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o100, script
