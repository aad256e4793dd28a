"""Ten minutes of mixed load while config, brokers, Kubernetes objects and certificates change."""

import subprocess
import sys

import pytest

MINUTES = 10

pytestmark = [pytest.mark.full, pytest.mark.timeout(60 * (MINUTES + 5))]


def test_counts_add_up_and_memory_descriptors_and_tasks_stay_level_under_load_and_churn() -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", str(MINUTES)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "DOES NOT HOLD" not in ran.stdout
