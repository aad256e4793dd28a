"""`run` on a terminal: a line that changes while it works, and what stays when it is done."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spark_commands import SECONDS, Folder, arguments, environment

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]

CHANGED = "\r\x1b[K"
BAR = re.compile(r"[a-z: ]+\[#*-*\] \d+ of \d+(   [\d,]+ rows   [\d,]+/s)?")


def on_terminal(command: list[str]) -> tuple[int, str]:
    """Its exit code, and all that a terminal was given."""
    ours, theirs = pty.openpty()
    said = b""
    deadline = time.monotonic() + SECONDS
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment()) as process:
        os.close(theirs)
        while select.select([ours], [], [], deadline - time.monotonic())[0]:
            try:
                said += os.read(ours, 65536)
            except OSError:  # all who had the other side have closed it
                break
        code = process.wait(SECONDS)
    os.close(ours)
    return code, said.decode()


def test_run_draws_progress_in_one_changing_line_on_a_terminal(tmp_path: Path) -> None:
    events = Folder(tmp_path / "events", 2000)
    events.add()
    code, said = on_terminal(
        [sys.executable, "-m", "pulsar_ingress_pipeline", *arguments("run", events, tmp_path / "tables")]
    )
    assert code == 0, said
    *drawn, last = said.split(CHANGED)
    bars = [text for text in drawn if BAR.fullmatch(text)]
    assert bars, said
    stages = [bar.partition("[")[0].strip() for bar in bars]
    assert "events" in stages
    assert len(set(stages)) > 1
    # What is no bar is a line that stays, each after the bar before it was wiped away.
    kept = [text.strip() for text in (*drawn, last) if text.strip() and not BAR.fullmatch(text)]
    assert [re.sub(r", [\d.]+ s .*", "", text) for text in kept] == [
        "version 0: 1 files, 2,001 lines, 2,000 new events, 1 in quarantine, hours 2026-11-16T09 to 2026-11-18T11",
        f"{tmp_path / 'tables'}: 1 files, 2,000 events, 1 lines in quarantine",
    ]
