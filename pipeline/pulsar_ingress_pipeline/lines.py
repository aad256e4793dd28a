"""Lines of text, many at once, and how they are got out of files' bytes. Spark's executors run this; it knows nothing
of Spark.

To let Java unpack files, find their lines and hand them over one by one costs a third more than all that is done here.
"""

import codecs
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

BLOCK = 16 << 20
"""Bytes of lines that are read at once; with fewer, what Arrow does for each column counts."""
_PIECE = 1 << 15
"""Bytes of a packed file that are unpacked at once: what is lost before a break."""


class Broken(Exception):
    """A file cannot be unpacked to its end."""


def unpacked(data: bytes) -> Iterator[bytes]:
    """What gzip made the bytes of, of one member or of several; raises Broken."""
    view, place = memoryview(data), 0
    while place < len(data):
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not inflate.eof:
            if place == len(data):
                raise Broken("gzip breaks off: the rest of the file is lost")
            piece = view[place : place + _PIECE]
            try:
                yield inflate.decompress(piece)
            except zlib.error as error:
                raise Broken(f"gzip is damaged: the rest of the file is lost ({error})") from None
            place += len(piece) - len(inflate.unused_data)


class Lines:
    """Each ends with a newline."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, lines: pa.BinaryArray) -> "Lines":
        if not len(lines):
            return cls(b"")
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        return cls(pc.binary_join(whole, b"\n")[0].as_py() + b"\n")

    @cached_property
    def _ends(self) -> npt.NDArray[np.intp]:
        """The places of all newlines."""
        return np.flatnonzero(self._bytes == ord("\n"))

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def start_of(self, line: int) -> int:
        """The place of its first byte."""
        return int(self._ends[line - 1]) + 1 if line else 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.data[:-1].split(b"\n") if self.data else ())

    @cached_property
    def are_braced(self) -> bool:
        """Whether each begins with a brace and ends with one: then no object of several lines can be read as one."""
        if not (self.data.startswith(b"{") and self.data.endswith(b"}\n")):
            return False
        between = self._ends[:-1]
        return bool((self._bytes[between - 1] == ord("}")).all() and (self._bytes[between + 1] == ord("{")).all())

    def halves(self) -> tuple["Lines", "Lines"]:
        middle = int(self._ends[len(self) // 2 - 1]) + 1
        return Lines(self.data[:middle]), Lines(self.data[middle:])


@dataclass(slots=True)
class Block:
    """Lines of several files, or some of one."""

    lines: Lines
    files: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Where the lines of each begin."""
    broken: list[tuple[str, str]] = field(default_factory=list)
    """Files that ended too soon, with the reason."""

    def file_of(self, line: int) -> str:
        return self.files[bisect_right(self.starts, self.lines.start_of(line)) - 1]


def blocks(files: Iterable[tuple[str, bytes]]) -> Iterator[Block]:
    """The lines of files, in as few blocks as there is room in. The last line of a file may lack its newline."""
    waiting = _Waiting()
    for name, data in files:
        waiting.begin(name)
        rest, mark = b"", codecs.BOM_UTF8  # which Spark takes off, too, where it reads large files
        try:
            for piece in unpacked(data) if name.endswith(".gz") else (data,):
                whole, newline, end = piece.rpartition(b"\n")
                if not newline:
                    rest += piece
                    continue
                waiting.add((rest + whole + newline).removeprefix(mark))
                rest, mark = end, b""
                if waiting.size >= BLOCK:
                    yield waiting.block()
                    waiting.begin(name)
        except Broken as fault:
            rest = b""  # a line of which the end is lost
            waiting.broken.append((name, str(fault)))
        if rest := rest.removeprefix(mark):
            waiting.add(rest + b"\n")
    yield waiting.block()


class _Waiting:
    """What the next block is to have."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._files: list[str] = []
        self._starts: list[int] = []
        self.broken: list[tuple[str, str]] = []

    def begin(self, name: str) -> None:
        self._files.append(name)
        self._starts.append(self.size)

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def block(self) -> Block:
        made = Block(Lines(b"".join(self._pieces)), self._files, self._starts, self.broken)
        self._clear()
        return made
