"""What the end-to-end tests download or build, kept between runs: where, whole, and by one process at a time."""

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Missing(Exception):
    """Something that the tests need is not there; never a reason to skip them."""


def cache(name: str) -> Path:
    """The folder of that name among this project's caches; it may not be there yet."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "pulsar-ingress-proxy" / name


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder, and keep others out of it. The lock goes with the process that holds it, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
