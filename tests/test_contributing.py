"""What CONTRIBUTING.md promises: a check asks for changelog lines, and the hooks are those of `make lint`."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (["proxy/a.py"], 1),
        (["helm/values.yaml", "tests/test_a.py"], 1),
        (["proxy/a.py", "CHANGELOG.md"], 0),
        (["proxy/CHANGELOG.md"], 1),
        (["tests/test_a.py", "docs/a.md"], 0),
    ],
)
def test_changelog_is_asked_for_where_users_may_see_a_change(tmp_path: Path, changed: list[str], code: int) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "base")
    git("checkout", "-q", "-b", "change")
    for name in changed:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("changed\n")
    git("add", ".")
    git("commit", "-q", "-m", "change")
    done = subprocess.run(
        [ROOT / ".github" / "changelog", "main"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert ("no-changelog" in done.stderr) == bool(code)


def test_hooks_are_the_checks_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["entry"].replace(" --force-exclude", "") for hook in config["repos"][0]["hooks"]}
    rule = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    assert hooks == {line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in rule[1].splitlines()}
