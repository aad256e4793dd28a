"""Splits the bytes of event files into blocks of lines. Spark's executors run this."""

import codecs
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

BLOCK = 16 << 20
"""Bytes of lines in a block; with smaller ones, Arrow's cost for each column matters."""
PIECE = 1 << 15
"""Bytes that are decompressed at once. This much can be lost before damage in a file."""


class Broken(Exception):
    """A file cannot be decompressed to its end."""


def unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip of one or several members; raises Broken."""
    inflate = None
    for piece in pieces:
        while piece:
            inflate = inflate or zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield inflate.decompress(piece)
            except zlib.error as error:
                raise Broken(f"gzip is damaged: the rest of the file is lost ({error})") from None
            piece = inflate.unused_data
            inflate = None if inflate.eof else inflate
    if inflate is not None:
        raise Broken("gzip breaks off: the rest of the file is lost")


class Lines:
    """Lines, each with a newline at its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def ends(self) -> npt.NDArray[np.intp]:
        """The positions of all newlines."""
        return np.flatnonzero(self._bytes == ord("\n"))

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.data[:-1].split(b"\n") if self.data else ())

    @cached_property
    def are_braced(self) -> bool:
        """Whether each line begins and ends with a brace, so that no JSON object can span several lines."""
        if not (self.data.startswith(b"{") and self.data.endswith(b"}\n")):
            return False
        between = self.ends[:-1]
        return bool((self._bytes[between - 1] == ord("}")).all() and (self._bytes[between + 1] == ord("{")).all())

    def halves(self) -> tuple["Lines", "Lines"]:
        middle = int(self.ends[len(self) // 2 - 1]) + 1
        return Lines(self.data[:middle]), Lines(self.data[middle:])


class Block:
    """Lines of several files, or a part of one file."""

    def __init__(self) -> None:
        self.size = 0
        self.broken: list[tuple[str, str]] = []
        """Files that could not be read to their end, with the reason."""
        self._pieces: list[bytes] = []
        self._files: list[str] = []
        self._starts: list[int] = []
        """Where the lines of each file begin."""

    def begin(self, file: str) -> None:
        self._files.append(file)
        self._starts.append(self.size)

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    @cached_property
    def lines(self) -> Lines:
        """All lines, after the last of them was added."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return Lines(data)

    def file_of(self, line: int) -> str:
        start = int(self.lines.ends[line - 1]) + 1 if line else 0
        return self._files[bisect_right(self._starts, start) - 1]

    def lines_by_file(self) -> Iterator[tuple[str, int]]:
        ends = np.searchsorted(self.lines.ends, [*self._starts, self.size])
        return zip(self._files, np.diff(ends).tolist(), strict=True)


def blocks(files: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[Block]:
    """The lines of files in as few blocks as possible. The last line of a file may have no newline."""
    block = Block()
    for name, pieces in files:
        block.begin(name)
        rest, mark = b"", codecs.BOM_UTF8
        try:
            for piece in unpacked(pieces) if name.endswith(".gz") else pieces:
                whole, newline, end = piece.rpartition(b"\n")
                if not newline:
                    rest += piece
                    continue
                block.add((rest + whole + newline).removeprefix(mark))
                rest, mark = end, b""
                if block.size >= BLOCK:
                    yield block
                    block = Block()
                    block.begin(name)
        except Broken as fault:
            rest = b""  # the end of this line is lost
            block.broken.append((name, str(fault)))
        if rest := rest.removeprefix(mark):
            block.add(rest + b"\n")
    yield block
