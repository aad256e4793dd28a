"""Prometheus, promtool and Alertmanager: those on the PATH, else out of Debian's packages, unpacked and not installed.

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

PROMETHEUS = {"prometheus": "usr/bin/prometheus", "promtool": "usr/bin/promtool"}
ALERTMANAGER = {
    "prometheus-alertmanager": "usr/bin/prometheus-alertmanager",
    "share/prometheus/alertmanager/default.tmpl": "usr/share/prometheus/alertmanager/default.tmpl",
    "share/prometheus/alertmanager/email.tmpl": "usr/share/prometheus/alertmanager/email.tmpl",
}
"""What is kept of each package, and where it is in there."""
ATTEMPTS = 3
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Programs:
    prometheus: Path
    promtool: Path
    alertmanager: tuple[Path | str, ...]
    """The beginning of its command."""


def programs() -> Programs:
    """Where they are; fetched if they are not there yet."""
    prometheus, promtool = map(shutil.which, PROMETHEUS)
    if prometheus is not None and promtool is not None:
        return Programs(Path(prometheus), Path(promtool), _alertmanager())
    folder = _unpacked("prometheus", PROMETHEUS)
    return Programs(folder / "prometheus", folder / "promtool", _alertmanager())


def _alertmanager() -> tuple[Path | str, ...]:
    """Debian's reads templates below /usr/share, so it is run where that is the package's own: in its own mounts."""
    for name in ("alertmanager", "prometheus-alertmanager"):
        if (installed := shutil.which(name)) is not None:
            return (installed,)
    folder = _unpacked("prometheus-alertmanager", ALERTMANAGER)
    mounted = 'mount --bind "$0" /usr/share && exec "$@"'
    return "unshare", "--mount", "sh", "-c", mounted, folder / "share", folder / "prometheus-alertmanager"


def _unpacked(package: str, files: dict[str, str]) -> Path:
    folder = cache(package)
    with alone(folder):
        if not _is_whole(folder, files):
            say(f"unpacking Debian's package {package} into {folder}; once, 20 MB")
            _fetch(folder, package, files)
    return folder


def _is_whole(folder: Path, files: dict[str, str]) -> bool:
    try:
        whole = json.loads((folder / "whole.json").read_text())
        return bool(whole == {name: sha256(folder / name) for name in files})
    except FileNotFoundError:
        return False


def _fetch(folder: Path, package: str, files: dict[str, str]) -> None:
    if not all(map(shutil.which, ("apt-get", "dpkg"))):
        raise Missing(f"{package}: is not on the PATH, and without apt-get it cannot be fetched")
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for attempt in range(ATTEMPTS):
        if attempt:  # the lists may be missing, or older than the archive
            _run(unfinished, "apt-get", "update", "-qq")
        done = _run(unfinished, "apt-get", "download", "-qq", package)
        if done.returncode == 0:
            break
    else:
        raise Missing(f"apt-get download {package}: failed {ATTEMPTS} times\n{done.stdout}")
    (downloaded,) = unfinished.glob(f"{package}_*.deb")
    _run(unfinished, "dpkg", "-x", downloaded.name, ".").check_returncode()
    for name, packed in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(unfinished / packed, folder / name)
    (unfinished / "whole.json").write_text(json.dumps({name: sha256(folder / name) for name in files}))
    os.replace(unfinished / "whole.json", folder / "whole.json")
    shutil.rmtree(unfinished)


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )


def main() -> None:
    try:
        found = programs()
    except Missing as missing:
        sys.exit(str(missing))
    say(f"Prometheus: {found.prometheus}\nAlertmanager: {found.alertmanager[-1]}")


if __name__ == "__main__":
    main()
