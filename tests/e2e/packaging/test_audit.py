"""`make audit` leaves no file of locked versions out."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def test_audit_reads_every_file_of_locked_versions() -> None:
    locked = sorted((ROOT / "deploy/requirements").glob("*.txt"))
    done = subprocess.run(["make", "audit", "ARGS=--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*(str(path.relative_to(ROOT)) for path in locked), "deploy/image/tools.txt"]
    assert done.stderr.count("would have audited") == len(locked) + 1
