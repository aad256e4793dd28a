"""`completion`: what readline of a real bash makes of a line, once it has read the script."""

import os
import re
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.tools import completion

INSERT_ALL = "\033*"  # readline's insert-completions
# Shows the words that the completed line has.
PROGRAM = "pulsar-ingress-proxy() { printf '[%s]' \"$@\"; }"


@pytest.fixture
def scripts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    printed = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        printed[shell] = capsys.readouterr().out
    return printed


def completed_by_bash(script: str, folder: Path, line: str, program: str = PROGRAM) -> list[str]:
    """The words of a line after all that bash offers at its end was inserted."""
    shell = subprocess.run(
        ["bash", "--norc", "--noprofile", "-i"],
        input=f"{program}\n{script}\n{line}{INSERT_ALL}\n",
        cwd=folder,
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "", "INPUTRC": os.devnull},
        capture_output=True,
        text=True,
        start_new_session=True,  # so that it takes no terminal over
        check=True,
    )
    return re.findall(r"\[(.*?)\]", shell.stdout)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("d", ["demo", "doctor"]),
        ("--v", ["--version"]),
        ("run --", ["run", "--config", "--help", "--hold"]),
        ("run --config ", ["run", "--config", "my config.yaml", "objects"]),
        ("run --config my", ["run", "--config", "my config.yaml"]),
        ("run --config=my", ["run", "--config=my config.yaml"]),
        ("check --config=o --st", ["check", "--config=o", "--strict"]),
        ("check --manifests ", ["check", "--manifests", "objects"]),
        ("doctor --listener ", ["doctor", "--listener"]),
        ("explain --j", ["explain", "--json"]),
        ("completion b", ["completion", "bash"]),
        ("completion zs", ["completion", "zsh"]),
        ("config-schema x", ["config-schema", "x"]),
    ],
)
def test_bash_completes_commands_options_and_values(
    line: str, words: list[str], scripts: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "my config.yaml").touch()
    (tmp_path / "objects").mkdir()
    assert completed_by_bash(scripts["bash"], tmp_path, f"pulsar-ingress-proxy {line}") == words


def test_bash_offers_every_command_that_help_lists(
    scripts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    ([a-z][a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert "completion" in listed
    offered = completed_by_bash(scripts["bash"], tmp_path, "pulsar-ingress-proxy ")
    assert [word for word in offered if not word.startswith("-")] == sorted(listed)


def test_values_with_choices_and_texts_with_quotes_are_completed(tmp_path: Path) -> None:
    parser = ArgumentParser(prog="odd-program")
    command = parser.add_subparsers().add_parser("paint", help="a broker's $HOME")
    command.add_argument("--colour", "-c", choices=["red", "blue"], help='of "it": [any] \\ colour')
    program = PROGRAM.replace("pulsar-ingress-proxy", "odd-program")
    for option in ("--colour ", "-c ", "--colour=b"):
        words = completed_by_bash(completion.script("bash", parser), tmp_path, f"odd-program paint {option}", program)
        assert words[-1] in ("red", "blue", "--colour=blue")
    assert r"'(--colour -c)--colour=[of \"it\"\: \[any\] \\ colour]:COLOUR:(red blue)'".replace(
        r"\"", '"'
    ) in completion.script("zsh", parser)
    assert "-l colour -s c -x -a 'red blue'" in completion.script("fish", parser)
    assert r"-a paint -d 'a broker\'s $HOME'" in completion.script("fish", parser)


def test_an_unknown_shell_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
