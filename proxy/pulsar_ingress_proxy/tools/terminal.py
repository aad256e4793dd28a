"""What commands show: colours and progress on a terminal, plain lines elsewhere."""

import os
import time
from collections.abc import Sequence
from typing import TextIO

_BETWEEN = 5.0
"""Seconds between two lines of progress where there is no terminal."""


class Palette:
    """Colours for one stream; none if it is not a terminal, or NO_COLOR is set (no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self._is_on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def bad(self, text: str) -> str:
        return self._wrap("31", text)

    def good(self, text: str) -> str:
        return self._wrap("32", text)

    def warn(self, text: str) -> str:
        return self._wrap("33", text)

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_on else text


class Progress:
    """One line that is overwritten on a terminal, and a new line every few seconds elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._told = time.monotonic()

    def show(self, text: str, detail: str = "") -> None:
        """The detail changes too often for plain lines."""
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{', '.join(filter(None, (text, detail)))}")
        elif time.monotonic() - self._told > _BETWEEN:
            self._told = time.monotonic()
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines in columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def printable(text: str, most: int = 600) -> str:
    """A text from elsewhere on one line: without control characters, which could change a terminal or spoil XML."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= most else f"{line[:most]}…"
