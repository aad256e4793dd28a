"""Prometheus and promtool: those on the PATH, else out of Debian's package, unpacked into a cache and not installed.

So no service is started. What is downloaded apt holds against the archive's signatures; what was unpacked, we against
what it was. Run as a program it does this ahead of the tests.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from caching import Missing, alone, cache, say, sha256

NAMES = ("prometheus", "promtool")
ATTEMPTS = 3
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Programs:
    prometheus: Path
    promtool: Path


def programs() -> Programs:
    """Where they are; fetched if they are not there yet."""
    installed = [shutil.which(name) for name in NAMES]
    if all(installed):
        return Programs(*(Path(path) for path in installed if path))
    folder = cache("prometheus")
    with alone(folder):
        if not _is_whole(folder):
            say(f"unpacking Debian's package of Prometheus into {folder}; once, 20 MB")
            _fetch(folder)
    return Programs(*(folder / name for name in NAMES))


def _is_whole(folder: Path) -> bool:
    try:
        whole = json.loads((folder / "whole.json").read_text())
        return bool(whole == {name: sha256(folder / name) for name in NAMES})
    except FileNotFoundError:
        return False


def _fetch(folder: Path) -> None:
    if not all(map(shutil.which, ("apt-get", "dpkg"))):
        raise Missing("prometheus and promtool are not on the PATH, and without apt-get they cannot be fetched")
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for attempt in range(ATTEMPTS):
        if attempt:  # the lists may be missing, or older than the archive
            _run(unfinished, "apt-get", "update", "-qq")
        done = _run(unfinished, "apt-get", "download", "-qq", "prometheus")
        if done.returncode == 0:
            break
    else:
        raise Missing(f"apt-get download prometheus: failed {ATTEMPTS} times\n{done.stdout}")
    (package,) = unfinished.glob("prometheus_*.deb")
    _run(unfinished, "dpkg", "-x", package.name, ".").check_returncode()
    for name in NAMES:
        os.replace(unfinished / "usr/bin" / name, folder / name)
    (unfinished / "whole.json").write_text(json.dumps({name: sha256(folder / name) for name in NAMES}))
    os.replace(unfinished / "whole.json", folder / "whole.json")
    shutil.rmtree(unfinished)


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )


def main() -> None:
    try:
        say(f"Prometheus: {programs().prometheus}")
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
