"""Event files: unfinished ones, whose names begin with a dot, finished ones, and recovery after a crash.

An unfinished file is valid after every write: each write ends with the file's trailer, and the next one overwrites it.
So finishing is a rename, which works on a full disk, and kill -9 costs no more than the write it interrupts.
"""

import contextlib
import fcntl
import gzip
import json
import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

fast_zlib: ModuleType | None
try:
    from isal import isal_zlib as fast_zlib
except ImportError:  # not available on all platforms
    fast_zlib = None

log = logging.getLogger("proxy.events")

# RFC 1952: deflate, no flags, no time, fastest algorithm, unknown system.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# RFC 1951 3.2.6: an empty last block; valid after any sync flush.
_LAST_BLOCK = b"\x03\x00"

# For zlib: lines are similar, so a small hash table compresses as well as a large one, and faster.
_LEVEL, _MEMORY = 1, 5

_PIECE = 65536


class _Plain:
    """Uncompressed lines."""

    suffix = ".jsonl"

    def encode(self, data: bytes) -> bytes:
        return data

    def tail(self) -> bytes:
        return b""


class _Gzip:
    """Lines compressed as one stream, to a tenth of their size; one stream per write would give half."""

    suffix = ".jsonl.gz"

    def __init__(self) -> None:
        self._head = _GZIP_HEAD
        if fast_zlib is not None:
            self._deflate = fast_zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._crc32 = fast_zlib.crc32
        else:
            self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY)
            self._crc32 = zlib.crc32
        self._crc = 0
        self._size = 0

    def encode(self, data: bytes) -> bytes:
        self._crc = self._crc32(data, self._crc)
        self._size += len(data)
        head, self._head = self._head, b""
        return b"".join((head, self._deflate.compress(data), self._deflate.flush(zlib.Z_SYNC_FLUSH)))

    def tail(self) -> bytes:
        return _LAST_BLOCK + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)


class Unfinished:
    """A file being written; its lock distinguishes it from one left by a crash. Raises OSError."""

    def __init__(self, folder: Path, stem: str, compress: bool, now: float) -> None:
        self.began = now
        self.events = 0
        self.size = 0
        """Size of its lines before compression."""
        self._codec = _Gzip() if compress else _Plain()
        self._folder, self._stem = folder, stem
        self._path = folder / f".{stem}{self._codec.suffix}"
        self._end = 0
        self._tail = b""
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        _lock(self._file)
        self._inode = os.fstat(self._file).st_ino

    def write(self, data: bytes, events: int) -> None:
        """Add whole lines. After a failure no more can be added, as the compressor's state is ahead of the file."""
        encoded = self._codec.encode(data)
        tail = self._codec.tail()
        self._put(encoded + tail, self._end)
        # Detects a folder that was removed, or replaced by another mount.
        if os.stat(self._path).st_ino != self._inode:
            raise FileNotFoundError(f"{self._path} is gone")
        self._end += len(encoded)
        self._tail = tail
        self.size += len(data)
        self.events += events

    def roll_back(self) -> None:
        self._put(self._tail, self._end)
        os.ftruncate(self._file, self._end + len(self._tail))

    def finish(self) -> None:
        """Rename to the final name; a file without events is removed."""
        if self.events:
            os.fsync(self._file)
            os.rename(self._path, self._folder / f"{self._stem}_{self.events}{self._codec.suffix}")
        else:
            os.unlink(self._path)
        self.close()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self.close()

    def close(self) -> None:
        """Close the file as it is."""
        with contextlib.suppress(OSError):  # network file systems may report errors only here
            os.close(self._file)

    def _put(self, data: bytes, place: int) -> None:
        while data:
            count = os.pwrite(self._file, data, place)
            data, place = data[count:], place + count


class Folder:
    """A sidecar's files in a folder that it may share with other sidecars.

    Names are TIME_SIDECAR_COUNTER_EVENTS: unique, sorted by time, with the number of events.
    """

    def __init__(self, path: str, sidecar: str, compress: bool) -> None:
        self.path = Path(path)
        self._sidecar = re.sub(r"[^A-Za-z0-9.-]", "-", sidecar)[:128]
        self._compress = compress
        self._begun = 0
        stem = rf"\d{{8}}T\d{{6}}\.\d{{6}}Z_{re.escape(self._sidecar)}_\d+"
        self._finished = re.compile(rf"{stem}_(\d+)\.jsonl(?:\.gz)?")
        self._unfinished = re.compile(rf"\.({stem})(\.jsonl(?:\.gz)?)")

    def begin(self, now: float) -> Unfinished:
        self.path.mkdir(parents=True, exist_ok=True)
        self._begun += 1
        time = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        return Unfinished(self.path, f"{time}_{self._sidecar}_{self._begun:06d}", self._compress, now)

    def trim(self, keep: int) -> int:
        """Remove the oldest finished files beyond `keep` bytes; returns the number of events in them."""
        found: list[tuple[str, int, int]] = []
        for entry in os.scandir(self.path):
            if match := self._finished.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # a collector may have moved it
                    found.append((entry.name, entry.stat().st_size, int(match[1])))
        removed, total = 0, sum(size for _, size, _ in found)
        for name, size, events in sorted(found):
            if total <= keep:
                break
            total -= size
            try:
                os.unlink(self.path / name)
                removed += events
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("events: %s is beyond retainBytes and cannot be removed: %s", self.path / name, error)
        return removed

    def salvage(self, now: float) -> list[OSError]:
        """Finish files left by a crash; returns the errors for those that remain."""
        self.path.mkdir(parents=True, exist_ok=True)
        faults = []
        for name in sorted(os.listdir(self.path)):
            if match := self._unfinished.fullmatch(name):
                try:
                    self._salvage(self.path / name, match[1], match[2], now)
                except OSError as error:
                    faults.append(error)
        return faults

    def _salvage(self, path: Path, stem: str, suffix: str, now: float) -> None:
        """Rename a complete file, copy the whole lines of a torn one, remove an empty one; skip one that is locked."""
        compressed = suffix.endswith(".gz")
        with path.open("rb") as file:
            if not _lock(file.fileno()):
                return
            events = _count(file, compressed)
            if events:
                path.rename(self.path / f"{stem}_{events}{suffix}")
                return
            file.seek(0)
            self._copy(_readable(file, compressed), now)
            path.unlink()

    def _copy(self, pieces: Iterator[bytes], now: float) -> None:
        copy = self.begin(now)
        seen: set[object] = set()
        try:
            for piece in pieces:
                lines = piece.splitlines(keepends=True)
                events = list(takewhile(lambda line: _is_new_event(line, seen), lines))
                copy.write(b"".join(events), len(events))
                if len(events) < len(lines):
                    break
            copy.finish()
        except OSError:
            copy.discard()
            raise


def _lock(file: int) -> bool:
    """Lock a file; false if another process has it. File systems without locks count as unlocked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_new_event(line: bytes, seen: set[object]) -> bool:
    """Whether a line is an event and no duplicate: a torn stream may decode to garbage, or repeat earlier lines."""
    try:
        event = json.loads(line)
    except ValueError:
        return False
    if not isinstance(event, dict) or not isinstance(event.get("id"), str) or event["id"] in seen:
        return False
    seen.add(event["id"])
    return True


def _count(file: BinaryIO, compressed: bool) -> int | None:
    """The number of lines; None if the file is torn."""
    lines, last = 0, b"\n"
    source = gzip.GzipFile(fileobj=file) if compressed else file
    try:
        while piece := source.read(_PIECE):
            lines += piece.count(b"\n")
            last = piece[-1:]
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
    return lines if last == b"\n" else None


def _readable(file: BinaryIO, compressed: bool) -> Iterator[bytes]:
    """The whole lines of a torn file, in pieces, as far as it can be read."""
    rest = b""
    for piece in _inflated(file) if compressed else iter(lambda: file.read(_PIECE), b""):
        whole, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield whole + newline


def _inflated(file: BinaryIO) -> Iterator[bytes]:
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while piece := file.read(_PIECE):
        before = inflate.copy()
        try:
            yield inflate.decompress(piece)
        except zlib.error:
            # An error discards the output before it, so feed the piece again byte by byte.
            with contextlib.suppress(zlib.error):
                for place in range(len(piece)):
                    yield before.decompress(piece[place : place + 1])
            return
