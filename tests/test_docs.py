"""The documents say what the code does: their configs load, their tables are the code's, their links lead somewhere."""

import re
from pathlib import Path

import pytest
import yaml

from proxy.cli import main
from proxy.config import load_mapping
from proxy.observe.metrics import PREFIX, Metrics, Number
from proxy.review import review
from proxy.snapshot import build

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def readme_config() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def test_the_readmes_config_is_valid_and_nothing_about_it_is_questionable() -> None:
    assert list(review(build(load_mapping(yaml.safe_load(readme_config()))))) == []


def test_explain_answers_what_the_readme_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(readme_config())
    command = re.search(r"pulsar-ingress-proxy explain --config config.yaml (\S+) \\\n\s+--location (\S+)", README)
    assert command is not None
    assert main(["explain", "--config", str(config), command[1], "--location", command[2]]) == 0
    promised = re.search(r"`explain` answers:\n\n```\n(.*?)```", README, re.DOTALL)
    assert promised is not None
    assert capsys.readouterr().out == promised[1]


def test_all_metrics_stand_in_the_docs() -> None:
    documented = re.findall(r"^\| `(\S+)` \| (.*?) \| (.*?) \|$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    catalogue = []
    for metric in Metrics("pulsar").catalogue():
        suffix = "_total" if isinstance(metric, Number) and metric.kind == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        catalogue.append((f"{PREFIX}{metric.name}{suffix}", labels, metric.help))
    assert documented == catalogue


def test_every_code_of_our_own_stands_in_the_docs() -> None:
    source = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    used = set(re.findall(r'(?:Refusal|BadHead|_refused)\((?:own, )?(?:\d{3}, )?"([a-z-]+)"', source))
    used |= set(re.findall(r'^    code = "([a-z0-9-]+)"', source, re.MULTILINE))
    documented = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs/decisions.md").read_text().partition("sidecar's own")[2]))
    assert used
    assert used <= documented, used - documented


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/decisions.md", "docs/metrics.md"]
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link


def test_the_two_commands_stand_on_the_readmes_first_screen() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen
