"""Where the keys of a config are set: a line of its file, or a variable of the environment over it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import yaml

KeyPath = tuple[str | int, ...]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Sources:
    """The lines and the variables of one config.

    They are no part of what a config says: configs that say the same are equal, wherever their keys are set.
    """

    file: str | None = field(default=None, compare=False)
    """None: the config was made in memory."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False)
    variables: Mapping[KeyPath, str] = field(default_factory=dict, compare=False)

    def line(self, path: KeyPath) -> int | None:
        """The line of the key, or of the nearest one above it."""
        return _nearest(self.lines, path)

    def variable(self, path: KeyPath) -> str | None:
        """The variable that sets the key, or a record or list that it is part of."""
        return _nearest(self.variables, path)

    def where(self, path: KeyPath) -> str:
        """How a fault of the key begins: with the variable, or with file, line and key."""
        if variable := self.variable(path):
            return f"environment: {variable}: {'' if path in self.variables else dotted(path) + ': '}"
        line = self.line(path)
        return f"{self.file or 'config'}{f':{line}' if line else ''}: {dotted(path) + ': ' if path else ''}"


def lines_of(node: yaml.Node | None) -> tuple[dict[KeyPath, int], list[tuple[KeyPath, int]]]:
    """The line of every key and item, and those keys that a mapping has twice: YAML parsers silently keep the last."""
    lines: dict[KeyPath, int] = {}
    duplicates: list[tuple[KeyPath, int]] = []

    def read(node: yaml.Node | None, path: KeyPath) -> None:
        children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            scalars = ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))
            children = [(key.value, key, value) for key, value in scalars]
        elif isinstance(node, yaml.SequenceNode):
            children = [(place, value, value) for place, value in enumerate(node.value)]
        own: set[KeyPath] = set()
        for name, marked, value in children:
            place, line = (*path, name), marked.start_mark.line + 1
            if place in own:
                duplicates.append((place, line))
            own.add(place)
            lines.setdefault(place, line)
            read(value, place)

    read(node, ())
    return lines, duplicates


def dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def read_path(text: str) -> KeyPath:
    """The path of a dotted key, where a number is a place in a list."""
    return tuple(int(part) if part.isdigit() else part for part in text.split("."))


def _nearest(known: Mapping[KeyPath, Found], path: KeyPath) -> Found | None:
    return next((known[path[:end]] for end in range(len(path), 0, -1) if path[:end] in known), None)
