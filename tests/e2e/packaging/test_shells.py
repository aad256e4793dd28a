"""`completion` in real zsh and fish; tests/tools/test_completion.py has bash."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_ingress_proxy.cli import main

# One key inserts all that zsh offers, and the program shows the words that the line then has.
ZSH = r"""
autoload -Uz compinit
compinit -u -D
zle -C insert-all complete-word _generic
bindkey '\ea' insert-all
zstyle ':completion:insert-all:*' completer _all_matches _complete
zstyle ':completion:insert-all:*' insert true
pulsar-ingress-proxy() { printf '[%s]' "$@"; print ' shown'; }
"""
LINES = [
    ("d", ["demo", "doctor"]),
    ("run --", ["--config", "--help", "--hold"]),
    ("run --config ", ["my config.yaml", "objects"]),
    ("run --config=m", ["--config=my config.yaml"]),
    ("check --manifests ", ["objects"]),
    ("doctor --listener ", []),
    ("completion ", ["bash", "fish", "zsh"]),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    (place / "objects").mkdir(parents=True)
    (place / "my config.yaml").touch()
    return place


def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str = "") -> Path:
    assert main(["completion", shell]) == 0
    path = tmp_path / f"script.{shell}"
    path.write_text(before + capsys.readouterr().out)
    return path


class Terminal:
    """A shell on a terminal, and all that it has shown."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._fd, child = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder.parent), "PS1": ""}
        self._shell = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, cwd=folder, env=environment, start_new_session=True
        )
        os.close(child)

    def type(self, keys: str, until: str) -> str:
        """The line that ends with a text, once the shell has shown it."""
        os.write(self._fd, keys.encode())
        shown = ""
        while not (line := re.search(rf"([^\r\n]*){until}\r?\n", shown)):
            shown += os.read(self._fd, 65536).decode()
        return line[1]

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._fd)


@pytest.fixture
def zsh(folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    path = script("zsh", folder.parent, capsys, before=ZSH)
    terminal = Terminal(folder, "zsh", "-f", "-i")
    try:
        terminal.type(f"source {path} && print rea''dy\n", until="ready")
        yield terminal
    finally:
        terminal.close()


def test_zsh_completes_commands_options_and_values(zsh: Terminal) -> None:
    for line, offered in LINES:
        shown = zsh.type(f"pulsar-ingress-proxy {line}\033a\n", until=" shown")
        words = re.findall(r"\[([^]]*)\]", shown)
        assert [word for word in words if word not in line.split()] == offered, (line, shown)


def test_fish_completes_commands_options_and_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("fish", folder.parent, capsys)
    for line, offered in LINES:
        ask = f"source {path}; complete -C 'pulsar-ingress-proxy {line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", ask],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder.parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        found = [row.partition("\t")[0].rstrip("/") for row in done.stdout.splitlines()]
        assert (found, done.stderr) == (offered, ""), line
