"""The workflows are valid, and the commands of theirs that need no registry do what they are there for."""

import os
import re
import subprocess
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from go_modules import ACTIONLINT, CHART_TOOLS, built

from pulsar_ingress_proxy import __version__

ROOT = Path(__file__).parents[3]
SOURCE = "https://git.example.com/owner/project"
TAG = f"v{__version__}"


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    workflows = sorted((ROOT / ".github/workflows").iterdir())
    done = subprocess.run([built(ACTIONLINT)["actionlint"], *workflows], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.timeout(300)
def test_packaged_wheel_names_its_source_and_its_pages_links_lead_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [".github/package-python", SOURCE, TAG, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = BytesParser(policy=default).parsebytes(archive.read(name))
    urls = dict(url.split(", ") for url in about.get_all("Project-URL", []))
    assert urls == {
        "Homepage": SOURCE,
        "Documentation": f"{SOURCE}/tree/{TAG}/docs",
        "Changelog": f"{SOURCE}/blob/{TAG}/CHANGELOG.md",
        "Issues": f"{SOURCE}/issues",
    }
    targets = re.findall(r"\]\(([^)]*)\)", str(about.get_payload()))
    ours = {target.partition("#")[0] for target in targets if target.startswith(SOURCE)}
    assert f"{SOURCE}/raw/{TAG}/docs/console-overview.png" in ours
    for kind, path in (target.removeprefix(f"{SOURCE}/").split(f"/{TAG}/") for target in ours):
        assert kind == ("raw" if path.endswith(".png") else "blob")
        assert (ROOT / path).is_file(), path
    assert all(target.startswith(("https://", "#")) for target in targets)


@pytest.mark.parametrize("version", ["helm3", "helm4"])
def test_packaged_chart_names_its_source_its_images_and_its_runbooks(version: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    helm = tmp_path / "bin/helm"
    helm.symlink_to(built(CHART_TOOLS)[version])
    environment = {"PATH": f"{helm.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(".github/package-chart", SOURCE, TAG, "registry.example.com/owner", tmp_path)
    [package] = tmp_path.glob("*.tgz")
    assert package.name == f"pulsar-ingress-proxy-{__version__}.tgz"
    about = yaml.safe_load(run(helm, "show", "chart", package))
    assert (about["home"], about["sources"]) == (f"{SOURCE}/tree/{TAG}", [SOURCE])
    assert (ROOT / about["icon"].removeprefix(f"{SOURCE}/raw/{TAG}/")).is_file()
    annotations = about["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    [image] = yaml.safe_load(annotations["artifacthub.io/images"])
    assert image["image"] == f"registry.example.com/owner/pulsar-ingress-proxy:{__version__}"
    assert [link["url"] for link in yaml.safe_load(annotations["artifacthub.io/links"])] == [
        f"{SOURCE}/tree/{TAG}/docs",
        f"{SOURCE}/issues",
    ]
    example = ROOT / "helm/pulsar-ingress-proxy/ci/gateway-values.yaml"
    options = ("--kube-version", "1.30.0", "--values", example, "--set", "prometheusRule.enabled=true")
    rendered = run(helm, "template", "p", package, *options)
    assert f"registry.example.com/owner/pulsar-ingress-proxy:{__version__}" in rendered
    assert f"{SOURCE}/tree/{TAG}/docs/runbooks/" in rendered
