"""Colours on a terminal, plain text elsewhere."""

import os
from typing import TextIO


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
