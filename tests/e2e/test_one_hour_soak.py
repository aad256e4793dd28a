"""An hour of mixed load while config, brokers, Kubernetes objects and certificates change; writes docs/soak.md."""

import subprocess
import sys

import pytest

MINUTES = 60

pytestmark = [pytest.mark.full, pytest.mark.timeout(60 * (MINUTES + 10))]


def test_counts_add_up_and_memory_descriptors_and_tasks_stay_level_under_load_and_churn() -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", str(MINUTES), "--write"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "DOES NOT HOLD" not in ran.stdout
