"""A base image where none can be pulled: Debian with its own Python, made by debootstrap and kept in the cache.

It has the packages of the last point release, whose signatures debootstrap has checked, and no later security updates:
right for building and testing, while an image for others is built from one that is kept up to date.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
ATTEMPTS = 3  # a package may fail to arrive
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Missing(Exception):
    """Something that the build needs is not there; says what to do."""


def cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "pulsar-ingress-proxy" / "image"


def key(packages: Sequence[str]) -> str:
    """What a base is made of, in a word."""
    return hashlib.sha256(" ".join((SUITE, *packages)).encode()).hexdigest()[:12]


def archive(packages: Sequence[str]) -> Path:
    """The base as a tar, made if it is not there whole. Where two do so at once, the second finds it done."""
    folder = cache() / f"base-{SUITE}-{key(packages)}"
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / "lock"):
        tar, whole = folder / "base.tar", folder / "whole.json"
        if whole.exists() and tar.exists() and json.loads(whole.read_text()) == {"sha256": _sha256(tar)}:
            return tar
        _make(tar, packages)
        whole.write_text(json.dumps({"sha256": _sha256(tar)}))
        return tar


def _make(tar: Path, packages: Sequence[str]) -> None:
    debootstrap = shutil.which("debootstrap") or "/usr/sbin/debootstrap"
    if not Path(debootstrap).exists():
        raise Missing("debootstrap is missing, which makes the base image: sh deploy/image/setup.sh")
    if not KEYRING.exists():  # without it debootstrap would go on unverified
        raise Missing(f"{KEYRING} is missing, which Debian's packages are verified by: install debian-archive-keyring")
    if os.geteuid() != 0:
        raise Missing("debootstrap needs root to make the base image: use sudo, or a Docker daemon")
    say(f"making a base of Debian {SUITE} with {', '.join(packages)} in {tar.parent}; once, a few minutes")
    for attempt in range(1, ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(dir=tar.parent) as root:
            command = [
                debootstrap, "--variant=minbase", f"--keyring={KEYRING}",
                f"--include={','.join(packages)}", SUITE, root,
            ]  # fmt: skip
            done = subprocess.run(["nice", "-n", "10", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode == 0:
                leave = ("./dev/*", "./proc/*", "./sys/*", "./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*")
                exclude = [f"--exclude={path}" for path in leave]
                Path(root).chmod(0o755)
                unfinished = tar.with_suffix(".unfinished")
                subprocess.run(["tar", *exclude, "-C", root, "-cf", unfinished, "."], check=True)
                unfinished.replace(tar)
                return
        last = done.stdout.decode(errors="replace").splitlines()[-5:]
        say(f"debootstrap failed, attempt {attempt} of {ATTEMPTS}:", *last)
    raise Missing("debootstrap did not make a base; what it said last stands above")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def alone(file: Path, *, wait: bool = True) -> Iterator[None]:
    """One process at a time; the lock goes with the process that holds it, however that ends. Without waiting,
    BlockingIOError if another holds it."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def say(*lines: str) -> None:
    for line in lines:
        sys.stderr.write(f"image: {line}\n")
