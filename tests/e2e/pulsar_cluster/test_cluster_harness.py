"""What a cluster leaves behind when its owner is killed, and what it says where something is missing."""

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from networks import sweep

HERE = Path(__file__).parent
OWNER = """
import signal
from children import Child
from networks import two_networks
with two_networks({"broker.inside": "10.96.0.10"}, {}) as networks:
    child = Child("sleeper", networks.inside.command("sleep", "600"), networks.folder / "sleeper.log")
    print(networks.folder.name, child.pid, flush=True)
    signal.pause()
"""


def places(name: str) -> list[Path]:
    namespaces = (f"{name}-inside", f"{name}-outside")
    folders = [Path(tempfile.gettempdir(), name)]
    return folders + [Path(place, network) for place in ("/run/netns", "/etc/netns") for network in namespaces]


def test_child_dies_and_namespaces_are_swept_after_their_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=HERE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        name, child = owner.stdout.readline().split()
        ending = os.pidfd_open(int(child))
        sweep()
        assert all(place.exists() for place in places(name)), "those of a living owner stay"
        owner.kill()
    ended, _, _ = select.select([ending], [], [], 30)
    os.close(ending)
    assert ended, "the child outlived its owner"
    assert all(place.exists() for place in places(name))
    sweep()
    assert not any(place.exists() for place in places(name))


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_harness_fails_and_names_the_missing_program(missing: str, tmp_path: Path) -> None:
    for program in {"java", "mvn"} - {missing}:
        (tmp_path / program).write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
        (tmp_path / program).chmod(0o755)
    for program in ("artifacts.py", "cluster.py"):
        done = subprocess.run(
            [sys.executable, HERE / program], env={"PATH": str(tmp_path)}, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert done.stderr == f"{missing} is missing: `make e2e` needs Java 17 or newer and Maven\n"
