"""The sections of docs/commands.md, one for each command. `make docs` generates them from the programs' parsers."""

import argparse
import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from pulsar_ingress_proxy.tools.command_line import commands_of, options_of, positionals_of, value_name


def reference(page: str, parsers: Sequence[ArgumentParser]) -> str:
    """The page: its introduction as it is, and everything from the first program on as the parsers say."""
    introduction, _, _ = page.partition(f"## {parsers[0].prog}\n")
    return introduction + "\n".join(line for parser in parsers for line in _program(parser))


def _program(parser: ArgumentParser) -> Iterator[str]:
    yield f"## {parser.prog}"
    yield f"{parser.description} {parser.epilog}\n"
    for name, _, command in commands_of(parser):
        yield f"### `{name}`"
        yield f"{_text(command.description, command)}\n"
        actions = [*positionals_of(command), *(each for each in options_of(command) if each.dest != "help")]
        if actions:
            yield "\n".join(("| option | meaning |", "|---|---|", *(_row(each, command) for each in actions))) + "\n"


def _row(action: Action, command: ArgumentParser) -> str:
    value = "|".join(map(str, action.choices)) if action.choices is not None else value_name(action)
    repeats = " …" if isinstance(action, argparse._AppendAction) else ""
    about = _text(action.help, command)
    needed = " Required." if action.required and action.option_strings else ""
    name = f"{', '.join(action.option_strings)} {value}{repeats}".strip().replace("|", "\\|")
    return f"| `{name}` | {about[0].upper()}{about[1:]}.{needed} |"


def _text(text: str | None, command: ArgumentParser) -> str:
    return ((text or "") % {"prog": command.prog}).replace("|", "\\|")


if __name__ == "__main__":
    file, parsers = Path(sys.argv[1]), [import_module(name).make_parser() for name in sys.argv[2:]]
    file.write_text(reference(file.read_text(encoding="utf-8"), parsers), encoding="utf-8")
