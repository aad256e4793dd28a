"""docs/dependencies.md gives a reason for each package that users install, and for no other."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SIDECAR, EXTRAS = re.split(r"^## ", (ROOT / "docs/dependencies.md").read_text(), flags=re.MULTILINE)[1:3]


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements}
    return found - {PROJECT["name"]}


def rows(section: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert all(all(cell.strip() for cell in line) for line in lines)
    return lines


def test_every_dependency_of_the_sidecar_has_a_reason() -> None:
    listed = [re.findall("`([^`]+)`", cells[0]) for cells in rows(SIDECAR)]
    assert [name for [name] in listed] == sorted(names(PROJECT["dependencies"]))
    assert all(len(cells) == 3 for cells in rows(SIDECAR))


def test_every_dependency_of_an_extra_has_a_reason() -> None:
    listed: dict[str, set[str]] = {}
    for packages, extras, *_ in rows(EXTRAS):
        for extra in re.findall("`([^`]+)`", extras):
            listed.setdefault(extra, set()).update(re.findall("`([^`]+)`", packages))
    required = {extra: names(given) for extra, given in PROJECT["optional-dependencies"].items() if extra != "dev"}
    assert listed == required


def test_the_image_and_the_install_target_take_locked_versions_of_all_dependencies() -> None:
    for locks in ("core.txt", "image.txt"):
        locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "deploy/requirements" / locks).read_text(), re.MULTILINE))
        assert names(PROJECT["dependencies"]) <= locked
