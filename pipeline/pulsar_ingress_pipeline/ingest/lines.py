"""Lines of text, many at once, and how they are got out of files' bytes. Spark's executors run this."""

import codecs
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

BLOCK = 16 << 20
"""Bytes of lines that are read at once; with fewer, what Arrow does for each column counts."""
PIECE = 1 << 15
"""Bytes of a file that are unpacked at once: what is lost before a break."""


class Broken(Exception):
    """A file cannot be unpacked to its end."""


def unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """What gzip made the bytes of, of one member or of several; raises Broken."""
    inflate = None
    for piece in pieces:
        while piece:
            if inflate is None:
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield inflate.decompress(piece)
            except zlib.error as error:
                raise Broken(f"gzip is damaged: the rest of the file is lost ({error})") from None
            piece = inflate.unused_data
            inflate = None if inflate.eof else inflate
    if inflate is not None:
        raise Broken("gzip breaks off: the rest of the file is lost")


class Lines:
    """Each ends with a newline."""

    def __init__(self, data: bytes) -> None:
        self.data = data

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

    def between(self, start: int, end: int) -> int:
        """How many end in these bytes."""
        first, last = np.searchsorted(self._ends, (start, end))
        return int(last - first)

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

    def lines_by_file(self) -> Iterator[tuple[str, int]]:
        for file, (start, end) in zip(self.files, pairwise([*self.starts, len(self.lines.data)]), strict=True):
            yield file, self.lines.between(start, end)


def blocks(files: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[Block]:
    """The lines of files, in as few blocks as there is room in. The last line of a file may lack its newline."""
    waiting = _Waiting()
    for name, pieces in files:
        waiting.begin(name)
        rest, mark = b"", codecs.BOM_UTF8
        try:
            for piece in unpacked(pieces) if name.endswith(".gz") else pieces:
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
