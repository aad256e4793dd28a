"""A short run of the fuzzer on each target; `make fuzz` runs longer and keeps what it finds."""

from pathlib import Path

import pytest
from fuzzing import TARGETS, passes

SECONDS = 9


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_of_a_short_fuzzing_run_fails(target: str, tmp_path: Path) -> None:
    assert passes(target, tmp_path, SECONDS)
