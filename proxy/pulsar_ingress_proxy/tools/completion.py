"""`completion`: the script that lets a shell complete the command line, made from the parser of the command line.

An option's metavar says what its value is: FILE and DIR are completed as files and folders, choices as themselves.
"""

import argparse
import shlex
from argparse import Action, ArgumentParser
from collections.abc import Iterator

from pulsar_ingress_proxy.tools.command_line import commands_of, options_of, positionals_of, value_name

SUMMARY = "print the script that lets a shell complete these commands"
DETAILS = 'The first lines of the script say where it goes. In bash, for one session: eval "$(%(prog)s bash)"'

_BASH = """\
# bash 4 or newer. For one session: eval "$({program} completion bash)". For every session, put this into
# ~/.local/share/bash-completion/completions/{program} (where bash-completion is installed), or the eval into ~/.bashrc.
{function}() {{
    local command= word=$2 previous=$3
    ((COMP_CWORD > 1)) && command=${{COMP_WORDS[1]}}
    [[ $previous == = ]] && previous=${{COMP_WORDS[COMP_CWORD - 2]}} # --option=value is three words
    COMPREPLY=()
    case "$command $previous" in
{values}
    esac
    case $command in
{words}
    esac
}}
complete -F {function} {program}
"""

_ZSH = """\
#compdef {program}
# For one session, after compinit: eval "$({program} completion zsh)". For every session, put this as _{program}
# into a folder of $fpath.
{function}() {{
    local curcontext=$curcontext state line
    local -A opt_args
    local -a commands=(
{commands}
    )
    _arguments -C \\
{top} \\
        ': :->command' \\
        '*::: :->options'
    case $state in
        command) _describe command commands ;;
        options)
            words=($line[1] "${{words[@]}}")
            ((CURRENT++))
            case $line[1] in
{options}
            esac
            ;;
    esac
}}
if [[ $funcstack[1] == _{program} ]]; then {function} "$@"; else compdef {function} {program}; fi
"""

_FISH = """\
# For one session: {program} completion fish | source. For every session, put this into
# ~/.config/fish/completions/{program}.fish.
complete -c {program} -f
{lines}
"""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell")


def script(shell: str, parser: ArgumentParser) -> str:
    """What this shell has to read so that it completes the commands of a parser with subcommands."""
    return _SCRIPTS[shell](parser)


def _function(parser: ArgumentParser) -> str:
    return f"_{parser.prog}".replace("-", "_")


def _bash(parser: ArgumentParser) -> str:
    values, words = [], []
    top = [name for option in options_of(parser) for name in option.option_strings]
    top += [name for name, _, _ in commands_of(parser)]
    words.append(f'        "") COMPREPLY=($(compgen -W {shlex.quote(" ".join(top))} -- "$word")) ;;')
    for command, _, own in commands_of(parser):
        known = [str(choice) for action in positionals_of(own) for choice in action.choices or ()]
        for option in options_of(own):
            known += option.option_strings
            if value := value_name(option):
                patterns = " | ".join(f'"{command} {name}"' for name in option.option_strings)
                values.append(f"        {patterns}) {_bash_value(option, value)}return ;;")
        words.append(f'        {command}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(known))} -- "$word")) ;;')
    return _BASH.format(
        program=parser.prog, function=_function(parser), values="\n".join(values), words="\n".join(words)
    )


def _bash_value(option: Action, value: str) -> str:
    if option.choices is not None:
        return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(map(str, option.choices)))} -- "$word")); '
    # With no reply of its own, readline completes the names of files, and quotes what is odd in them.
    return {"FILE": "compopt -o default; ", "DIR": "compopt -o dirnames; "}.get(value, "")


def _zsh(parser: ArgumentParser) -> str:
    commands, options = [], []
    for command, about, own in commands_of(parser):
        commands.append(f"        {shlex.quote(f'{command}:{about}')}")
        specs = [spec for option in options_of(own) for spec in _zsh_option(option)]
        specs += [shlex.quote(f":{_zsh_value(action)}") for action in positionals_of(own)]
        options.append(
            "\n".join(
                [
                    f"                {command})",
                    f"                    _arguments {' '.join(specs)}",
                    "                    ;;",
                ]
            )
        )
    return _ZSH.format(
        program=parser.prog,
        function=_function(parser),
        commands="\n".join(commands),
        top=" \\\n".join(f"        {spec}" for option in options_of(parser) for spec in _zsh_option(option)),
        options="\n".join(options),
    )


def _zsh_option(option: Action) -> Iterator[str]:
    """A spec of `_arguments` for each name of an option."""
    value = _zsh_value(option) if value_name(option) else ""
    many = isinstance(option, argparse._AppendAction)
    others = "" if many or len(option.option_strings) == 1 else f"({' '.join(option.option_strings)})"
    for name in option.option_strings:
        joined = ("=" if name.startswith("--") else "+") if value else ""  # as a word of its own, or behind the name
        about = _zsh_text(option.help or "").replace("[", r"\[").replace("]", r"\]")
        yield shlex.quote(f"{others}{'*' if many else ''}{name}{joined}[{about}]{value and ':' + value}")


def _zsh_value(action: Action) -> str:
    name = value_name(action)
    if action.choices is not None:
        return f"{_zsh_text(name)}:({' '.join(map(str, action.choices))})"
    return f"{_zsh_text(name)}:" + {"FILE": "_files", "DIR": "_files -/"}.get(name, " ")


def _zsh_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", r"\:")


def _fish(parser: ArgumentParser) -> str:
    start = f"complete -c {parser.prog} -n"
    lines = [f"{start} __fish_use_subcommand {_fish_option(option)}" for option in options_of(parser)]
    for command, about, own in commands_of(parser):
        lines.append(f"{start} __fish_use_subcommand -a {command} -d {_fish_text(about)}")
        used = f"{start} '__fish_seen_subcommand_from {command}'"
        lines += [f"{used} {_fish_option(option)}" for option in options_of(own)]
        lines += [
            f"{used} -a {_fish_text(' '.join(map(str, action.choices)))}"
            for action in positionals_of(own)
            if action.choices is not None
        ]
    return _FISH.format(program=parser.prog, lines="\n".join(lines))


def _fish_option(option: Action) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.option_strings]
    value = value_name(option)
    if option.choices is not None:
        names.append(f"-x -a {_fish_text(' '.join(map(str, option.choices)))}")
    elif value:
        names.append({"FILE": "-r -F", "DIR": "-x -a '(__fish_complete_directories)'"}.get(value, "-x"))
    return f"{' '.join(names)} -d {_fish_text(option.help or '')}"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
