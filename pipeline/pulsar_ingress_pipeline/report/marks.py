"""HTML and SVG as values. What is not `Markup` is text, and is escaped: names in a report come from clients."""

import re
from html import escape

_VOID = frozenset({"meta", "br", "wbr"})
# Characters that would break the file, or turn the reading order of what stands around them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LONGEST = 120


class Markup(str):
    """What is markup already."""

    __slots__ = ()


Child = str | None
Value = str | float | None


def text(words: str) -> Markup:
    """Words as markup that shows them."""
    return Markup(escape(_UNSEEN.sub("\ufffd", words)))


def clip(words: str, longest: int = _LONGEST) -> str:
    """A name that leaves room for others."""
    return words if len(words) <= longest else words[: longest - 1] + "…"


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element; `class_` and `view_box` are written as HTML and SVG write them, None is left out."""
    head = "".join(f' {_key(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{head}>")
    inner = "".join(child if isinstance(child, Markup) else text(child) for child in children if child is not None)
    return Markup(f"<{name}{head}>{inner}</{name}>")


def join(*parts: Child) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None))


def number(value: float) -> str:
    """A coordinate, as short as it is exact enough."""
    return f"{round(value, 1) + 0.0:.7g}"


def _key(key: str) -> str:
    return "viewBox" if key == "view_box" else key.removesuffix("_").replace("_", "-")


def _value(value: str | float) -> str:
    return text(value) if isinstance(value, str) else number(value)
