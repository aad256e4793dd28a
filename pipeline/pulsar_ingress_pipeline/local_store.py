"""Folders of this machine, without Hadoop: its local file system neither replaces a file nor makes one for one only."""

import os
import re
import shutil
from pathlib import Path

from pulsar_ingress_pipeline.storage import File


class LocalStore:
    """A folder, as a client of Spark Connect sees it; Spark's server knows it by the same path."""

    def __init__(self, url: str) -> None:
        self._root = Path(os.path.abspath(re.sub("^file:/+", "/", url)))
        self.url = f"file:{self._root}"

    def exists(self, relative: str) -> bool:
        return (self._root / relative).exists()

    def is_file(self, relative: str) -> bool:
        return (self._root / relative).is_file()

    def modified(self, relative: str) -> int | None:
        try:
            return (self._root / relative).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def entries(self, relative: str) -> tuple[list[File], list[str]]:
        files, folders = [], []
        try:
            with os.scandir(self._root / relative) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.name)
                    else:
                        status = entry.stat()
                        url = f"{self.url}/{relative}/{entry.name}" if relative else f"{self.url}/{entry.name}"
                        files.append(File(url, status.st_size, status.st_mtime_ns // 1_000_000))
        except FileNotFoundError:
            return [], []
        return files, folders

    def read(self, relative: str) -> str:
        return (self._root / relative).read_text()

    def write(self, relative: str, text: str) -> None:
        replace(self._root / relative, text)

    def create(self, relative: str, text: str) -> bool:
        return create(self._root / relative, text)

    def rename(self, source: str, target: str) -> None:
        (self._root / target).parent.mkdir(parents=True, exist_ok=True)
        (self._root / source).replace(self._root / target)

    def remove(self, relative: str) -> None:
        path = self._root / relative
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def replace(target: Path, text: str) -> None:
    """Readers find the old file or the new one, also after a power cut."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    with unfinished.open("w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.replace(target)


def create(target: Path, text: str) -> bool:
    """Of two who make it at once, one is told that it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("x") as opened:
            opened.write(text)
    except FileExistsError:
        return False
    return True
