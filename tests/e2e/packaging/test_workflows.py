"""The workflows are valid, and the commands of theirs that can run here do what they are there for."""

import os
import re
import subprocess
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from go_modules import CHART_TOOLS, WORKFLOW_TOOLS, built
from processes import BIN, free_port, started

from pulsar_ingress_proxy import __version__

ROOT = Path(__file__).parents[3]
SOURCE = "https://git.example.com/owner/project"
TAG = f"v{__version__}"


def run(*command: str | Path, folder: Path = ROOT, environment: Mapping[str, str] = os.environ) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_programs(folder: Path, **scripts: str) -> dict[str, str]:
    """The environment in which programs of these names are these scripts."""
    (folder / "bin").mkdir()
    for name, script in scripts.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    return {"PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}


def release_step(job: str, name: str) -> str:
    """The commands of a step of the release, in the shell that the workflow names."""
    release = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())
    assert release["defaults"]["run"]["shell"] == "bash"
    [step] = [step for step in release["jobs"][job]["steps"] if step.get("name") == name]
    return str(step["run"])


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    workflows = sorted((ROOT / ".github/workflows").iterdir())
    assert run(built(WORKFLOW_TOOLS)["actionlint"], *workflows) == ""


def test_zizmor_finds_no_insecure_use_of_actions_rights_or_tokens() -> None:
    run(BIN / "zizmor", "--offline", "--no-progress", "--strict-collection", "--min-severity", "medium", ".github")


@pytest.mark.timeout(300)
def test_packaged_wheel_names_its_source_and_its_pages_links_lead_there(tmp_path: Path) -> None:
    run(".github/package-python", SOURCE, TAG, tmp_path)
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
    helm = built(CHART_TOOLS)[version]
    environment = with_programs(tmp_path, helm=f'exec {helm} "$@"')
    run(".github/package-chart", SOURCE, TAG, "registry.example.com/owner", tmp_path, environment=environment)
    [package] = tmp_path.glob("*.tgz")
    assert package.name == f"pulsar-ingress-proxy-{__version__}.tgz"
    about = yaml.safe_load(run(helm, "show", "chart", package, environment=environment))
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
    assert annotations["artifacthub.io/prerelease"] == "false"
    page = run(helm, "show", "readme", package, environment=environment)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]*)\)", page)]
    ours = {target.removeprefix(f"{SOURCE}/blob/{TAG}/") for target in targets if target.startswith(SOURCE)}
    assert "docs/install.md" in ours
    assert all((ROOT / path).is_file() for path in ours)
    assert all(target.startswith("https://") for target in targets if target)
    example = yaml.safe_load((ROOT / "helm/pulsar-ingress-proxy/ci/gateway-values.yaml").read_text())
    del example["image"]  # a release knows its own
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(example))
    options = ("--kube-version", "1.30.0", "--values", values, "--set", "prometheusRule.enabled=true")
    rendered = run(helm, "template", "p", package, *options, environment=environment)
    assert f"registry.example.com/owner/pulsar-ingress-proxy:{__version__}" in rendered
    assert f"{SOURCE}/tree/{TAG}/docs/runbooks/" in rendered


@pytest.mark.parametrize("version", ["helm3", "helm4"])
async def test_pushed_chart_is_signed_by_the_digest_that_the_registry_has(version: str, tmp_path: Path) -> None:
    """As the workflow has it. The signer's identity comes from GitHub, so here it only writes down what it is asked."""
    helm, crane, port = built(CHART_TOOLS)[version], built(WORKFLOW_TOOLS)["crane"], free_port()
    run(helm, "package", ROOT / "helm/pulsar-ingress-proxy", "-d", tmp_path / "dist")
    step = release_step("chart", "Push and sign the chart")
    environment = {
        **with_programs(tmp_path, helm=f'exec {helm} "$@" --plain-http', cosign='echo "$@" >>signed'),
        "REGISTRY": f"127.0.0.1:{port}/Owner",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    name = f"127.0.0.1:{port}/owner/charts/pulsar-ingress-proxy"
    async with started(crane, "registry", "serve", "--address", f"127.0.0.1:{port}", says="serving on port"):
        run("bash", "-eo", "pipefail", "-c", step, folder=tmp_path, environment=environment)
        digest = run(crane, "digest", f"{name}:{__version__}").strip()
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest)
    assert (tmp_path / "output").read_text() == f"name={name}\ndigest={digest}\n"
    assert (tmp_path / "signed").read_text() == f"sign --yes {name}@{digest}\n"


@pytest.mark.parametrize(("tag", "kind"), [("v1.2.3", ""), ("v1.2.3-rc.1", " --prerelease")])
def test_release_of_a_candidate_is_a_pre_release(tag: str, kind: str, tmp_path: Path) -> None:
    environment = with_programs(tmp_path, gh='echo "$@" >>asked')
    environment |= {"GITHUB_REF_NAME": tag, "GITHUB_REPOSITORY": "owner/project"}
    (tmp_path / "files").mkdir()
    (tmp_path / "files/chart.tgz").touch()
    step = release_step("release", "Publish the release")
    run("bash", "-eo", "pipefail", "-c", step, folder=tmp_path, environment=environment)
    asked = f"release create {tag} --repo owner/project --verify-tag{kind} --notes-file notes.md files/chart.tgz\n"
    assert (tmp_path / "asked").read_text() == asked


@pytest.mark.parametrize("is_released", [True, False])
def test_version_that_is_released_is_not_released_again(is_released: bool, tmp_path: Path) -> None:
    environment = with_programs(tmp_path, gh="exit 0" if is_released else "exit 1")
    environment |= {"GITHUB_REF_NAME": "v1.2.3", "GITHUB_REPOSITORY": "owner/project"}
    step = release_step("version", "Refuse a version that is released, since images and charts would be pushed again")
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step], env=environment, capture_output=True, text=True)
    assert (done.returncode, "v1.2.3 is released already" in done.stderr) == ((1, True) if is_released else (0, False))


def test_pushed_image_is_signed_by_the_digest_that_the_registry_has(tmp_path: Path) -> None:
    digest = f"sha256:{'1' * 64}"
    docker = f'echo "$@" >>asked; case $* in *inspect*) echo {digest} ;; esac'
    environment = with_programs(tmp_path, docker=docker, dpkg="echo arm64")
    environment |= {
        "REGISTRY": "ghcr.io/Owner",
        "NAME": "pulsar-ingress-proxy",
        "SBOM": "sbom.cdx.json",
        "GITHUB_REF_NAME": "v1.2.3",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    (tmp_path / "dist/image").mkdir(parents=True)
    (tmp_path / "dist/image/sbom.cdx.json").touch()
    step = release_step("image", "Push the image")
    run("bash", "-eo", "pipefail", "-c", step, folder=tmp_path, environment=environment)
    pushed = "ghcr.io/owner/pulsar-ingress-proxy:1.2.3-arm64"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"tag pulsar-ingress-proxy:1.2.3 {pushed}",
        f"push {pushed}",
        f"buildx imagetools inspect {pushed} --format {{{{.Manifest.Digest}}}}",
    ]
    assert (tmp_path / "output").read_text().splitlines() == [
        "name=ghcr.io/owner/pulsar-ingress-proxy",
        f"digest={digest}",
        "artifact=release-sbom-pulsar-ingress-proxy-arm64",
    ]
    assert (tmp_path / "sbom/pulsar-ingress-proxy-arm64.cdx.json").is_file()
