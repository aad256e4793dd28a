"""Commands in the documents: those that need no cluster run as written, and the others name what there is."""

import argparse
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_manifests import brokers

import pulsar_ingress_pipeline.cli
import pulsar_ingress_proxy.cli

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "docs", "docs/runbooks", "bench", "dashboards", "deploy/spark", "helm/pulsar-ingress-proxy")
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
PROGRAMS = {"pulsar-ingress-proxy": pulsar_ingress_proxy.cli, "pulsar-ingress-pipeline": pulsar_ingress_pipeline.cli}
USERS_OWN = {"config.yaml", "values.yaml", "manifests", "FILE", "-"}  # the pages say what is in them; - is stdin
FILE_OPTIONS = {"-f", "-k", "--patch-file", "--config", "--manifests"}
every_document = pytest.mark.parametrize("document", DOCUMENTS)


def shell_lines(document: str) -> list[str]:
    """Lines of `sh` blocks, those that end in a backslash joined; what one quotes over lines is one."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
    lines: list[str] = []
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        if lines and lines[-1].count('"') % 2:
            lines[-1] += " " + line
        else:
            lines.append(line)
    return lines


def simple_commands(document: str) -> Iterator[list[str]]:
    """The words of every command; what `kubectl exec` runs in a container is one of its own."""
    for line in shell_lines(document):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, "\n"]:
            if word in ("|", "&&", ";", "--", "\n"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def inline_commands(document: str) -> Iterator[list[str]]:
    """In single backticks: `make bench`, or a command of ours with its options."""
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    for quoted in re.findall(r"`((?:make|python3? -m|pulsar-ingress-\w+) [^`\n]+)`", text):
        if "…" not in quoted:
            yield shlex.split(quoted)


def commands(document: str) -> list[list[str]]:
    return [*simple_commands(document), *inline_commands(document)]


def make_targets() -> dict[str, str]:
    """By name, the recipe of each."""
    recipes = re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return dict(recipes)


@every_document
def test_our_programs_take_the_options_that_documents_give_them(document: str) -> None:
    for program, *arguments in commands(document):
        if program in PROGRAMS:
            parser: argparse.ArgumentParser = PROGRAMS[program].make_parser()
            given = arguments[: arguments.index(">")] if ">" in arguments else arguments
            try:
                parser.parse_args(given)
            except SystemExit as ended:
                if ended.code:
                    pytest.fail(shlex.join([program, *arguments]))


@every_document
def test_make_has_the_targets_and_variables_that_documents_use(document: str) -> None:
    targets = make_targets()
    assert "help" in targets
    for program, *arguments in commands(document):
        if program == "make":
            variables = [word.partition("=")[0] for word in arguments if "=" in word]
            for target in (word for word in arguments if "=" not in word):
                assert target in targets
                assert all(f"$({variable})" in targets[target] for variable in variables), arguments


@every_document
def test_modules_that_documents_run_are_there(document: str) -> None:
    for program, *arguments in commands(document):
        if program in ("python", "python3") and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None, arguments


@every_document
def test_files_that_commands_name_are_in_the_repository_or_made_by_a_line_before(document: str) -> None:
    made = set(USERS_OWN)
    for command in commands(document):
        for option, word in zip(command, [*command[1:], ""], strict=True):
            if option == ">":
                made.add(word)
            elif option in FILE_OPTIONS and not word.startswith("/"):
                assert word in made or (ROOT / word).exists(), word
            elif re.match(r"(deploy|helm|docs|tests|bench|dashboards)/", option):
                assert (ROOT / option).exists(), option


def first_config(document: str) -> str:
    """The page's own, if its first block of YAML is one, else that of the first page."""
    for page in (document, "docs/start.md"):
        blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
        if blocks and blocks[0].startswith("bindAddresses:"):
            return str(blocks[0])
    raise AssertionError


@every_document
def test_commands_that_need_no_cluster_run_as_written(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(first_config(document))
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/brokers.yaml").write_text(brokers(3))
    monkeypatch.chdir(tmp_path)
    for program, *arguments in simple_commands(document):
        if program != "pulsar-ingress-proxy" or arguments[0] not in ("check", "explain"):
            continue
        if "--kubeconfig" not in arguments:
            in_pod = [word.replace("/etc/pulsar-ingress-proxy/", "") for word in arguments]
            assert pulsar_ingress_proxy.cli.main(in_pod) == 0, capsys.readouterr().err
