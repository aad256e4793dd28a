"""What the parser of a command line has: its commands, their options, and what each of these takes."""

import argparse
from argparse import Action, ArgumentParser
from collections.abc import Iterator


def commands_of(parser: ArgumentParser) -> Iterator[tuple[str, str, ArgumentParser]]:
    """Each command's name, the text about it, and its own parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for about in action._choices_actions:
                yield about.dest, about.help or "", action.choices[about.dest]


def options_of(parser: ArgumentParser) -> list[Action]:
    return [action for action in parser._actions if action.option_strings]


def positionals_of(parser: ArgumentParser) -> list[Action]:
    """What is named by its place only, without the command itself."""
    return [
        action
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]


def value_name(action: Action) -> str:
    """What the value of an option or positional is called; nothing if it takes none."""
    return "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
