"""Wheel and source distribution as `make dist` builds them: always the same bytes, and a page that indexes can show."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from zipfile import ZipFile

import pytest
from readme_renderer import markdown

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).parent / "uv"
SOURCES = (".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "deploy", "pipeline", "proxy", "pyproject.toml")
pytestmark = pytest.mark.timeout(600)


def run(command: Sequence[str | Path], cwd: Path = ROOT, umask: int = 0o022) -> str:
    ended = subprocess.run(command, cwd=cwd, umask=umask, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def build(folder: Path, out: Path, *options: str, umask: int = 0o022) -> dict[str, str]:
    """The digests of what the recipe of `make dist` leaves in a folder."""
    rule = re.search(r"^dist:.*\n\t(.*)\n", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    words = rule[1].replace("$(BIN)/uv", str(UV)).replace("$(or $(OUT),dist)", str(out)).replace("$(ARGS)", "").split()
    run([*words, *options], folder, umask)
    built = [path for path in out.iterdir() if path.suffix in (".gz", ".whl")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    assert len(build(ROOT, out)) == 2
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [built] = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> EmailMessage:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        found = BytesParser(policy=default).parsebytes(archive.read(name))
    assert isinstance(found, EmailMessage)
    return found


def test_builds_of_the_same_files_are_equal_byte_for_byte(dist: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "checkout"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    # The first wheel was built from the source distribution, this one from the files themselves.
    again = build(copy, tmp_path / "dist", "--sdist", "--wheel", umask=0o077)
    assert again == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dist.iterdir() if path.name in again
    }


def test_source_distribution_has_the_package_and_its_licence_only(dist: Path) -> None:
    [built] = dist.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    files = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert names == files | {"pipeline", "proxy"}


def test_wheel_contains_all_modules_and_no_tests(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(ROOT / top))
        for top in ("proxy", "pipeline")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == sources


def test_metadata_is_of_a_version_that_publishing_tools_accept(metadata: EmailMessage) -> None:
    assert metadata["Metadata-Version"] == "2.4"


def test_page_on_an_index_renders_and_has_no_dead_links(metadata: EmailMessage) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert isinstance(description, str)
    warnings = io.StringIO()
    html = markdown.render(description, stream=warnings)
    assert html is not None, warnings.getvalue()
    assert re.search(r"<h1[^>]*>pulsar-ingress-proxy<", html)
    assert "<table>" in html
    targets = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert "https://pulsar.apache.org" in targets
    assert [target for target in targets if not target.startswith(("https://", "#user-content-"))] == []
    assert "](" not in html


def test_demo_runs_from_the_wheel_without_an_installation(wheel: Path, tmp_path: Path) -> None:
    locked = ROOT / "deploy/requirements/core.txt"
    uvx: list[str | Path] = [
        UV,
        "tool",
        "run",
        "--isolated",
        "--python",
        sys.executable,
        "--constraints",
        locked,
        "--from",
        wheel,
    ]
    shown = run([*uvx, "pulsar-ingress-proxy", "demo", "--once"], tmp_path)
    assert "The same lookup with it" in shown
    assert "misses 0" in shown
