"""The documents say what the code does: their configs load, their tables are the code's, their links lead somewhere."""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

import pulsar_ingress_pipeline.cli as pipeline_cli
from pulsar_ingress_proxy.cli import main, make_parser
from pulsar_ingress_proxy.config import Config, load, load_mapping
from pulsar_ingress_proxy.config.model import json_schema
from pulsar_ingress_proxy.config.reference import example, reference
from pulsar_ingress_proxy.observability import reference as observability_reference
from pulsar_ingress_proxy.observability.catalogue import PREFIX, Metric, Pipeline, Sidecar
from pulsar_ingress_proxy.observability.event_schema import FIELDS
from pulsar_ingress_proxy.observability.metrics import Metrics, registry
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools import command_reference
from pulsar_ingress_proxy.tools.config_warnings import config_warnings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs" / "start.md").read_text()
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
COLUMNS = {re.sub("([A-Z])", r"_\1", field.name).lower() for field in FIELDS}  # of the pipeline's table of events
every_document = pytest.mark.parametrize("document", DOCUMENTS)


def words(document: str) -> list[str]:
    """What a document puts between single backticks."""
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def first_config() -> str:
    (text,) = re.findall(r"```yaml\n(.*?)```", START, re.DOTALL)
    assert isinstance(text, str)
    return text


def test_first_config_is_valid_and_gives_no_warnings() -> None:
    assert list(config_warnings(build(load_mapping(yaml.safe_load(first_config()))))) == []


def test_config_that_init_prints_for_the_first_page_decides_as_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = re.search(r"pulsar-ingress-proxy (init .*) > config.yaml", START)
    assert command is not None
    assert main(command[1].split()) == 0
    printed, shown = (yaml.safe_load(text) for text in (capsys.readouterr().out, first_config()))
    for key in ("bindAddresses", "brokers", "advertisedListeners", "metrics"):
        assert printed[key] == shown[key]
    assert printed["ingresses"][0].items() >= shown["ingresses"][0].items()


def test_rollout_of_the_installation_page_switches_on_one_ingress() -> None:
    page = textwrap.dedent("\n".join(re.findall(r"^    .*", read("docs/install.md"), re.MULTILINE)))
    (values,) = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(config:.*?)```", page, re.DOTALL))
    config = load_mapping({**yaml.safe_load(first_config()), **values["config"]})
    assert config.shadow
    assert [ingress.shadow for ingress in config.ingresses] == [False, None]
    assert {ingress.listener for ingress in config.ingresses} == {"external"}


def test_explain_answers_what_the_first_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(first_config())
    command = re.search(r"pulsar-ingress-proxy explain --config config.yaml (\S+) \\\n\s+--location (\S+)", START)
    assert command is not None
    assert main(["explain", "--config", str(config), command[1], "--location", command[2]]) == 0
    promised = re.search(r"without sending it:\n\n```\n(.*?)```", START, re.DOTALL)
    assert promised is not None
    assert capsys.readouterr().out == promised[1]


@pytest.mark.parametrize(("document", "table", "tables"), [("metrics", "metric", 2), ("events", "field", 1)])
def test_the_pages_of_metrics_and_events_are_what_the_code_says(document: str, table: str, tables: int) -> None:
    page = read(f"docs/{document}.md")
    assert page.count(f"| {table} |") == tables
    assert page == observability_reference.reference(page), "run `make docs`"


def test_the_page_of_commands_is_what_the_programs_say() -> None:
    page = read("docs/commands.md")
    assert "### `explain`" in page
    assert page == command_reference.reference(page, [make_parser(), pipeline_cli.make_parser()]), "run `make docs`"


def test_every_refusal_code_is_documented() -> None:
    source = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    used = set(re.findall(r'(?:Refusal|BadHead|_refused)\((?:own, )?(?:\d{3}, )?"([a-z-]+)"', source))
    used |= set(re.findall(r'^    code = "([a-z0-9-]+)"', source, re.MULTILINE))
    documented = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs/decisions.md").read_text().partition("sidecar's own")[2]))
    assert used
    assert used <= documented, used - documented


def test_the_configuration_page_is_what_the_model_says() -> None:
    page = read("docs/configuration.md")
    assert page == reference(page), "run `make docs`"


def test_the_example_with_every_key_loads_and_has_every_key(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(example())
    load(config, {})
    schema = json_schema()
    assert all_keys(yaml.safe_load(example())) == set(schema_keys(schema, schema))


def test_every_key_of_the_configuration_page_has_the_variable_that_the_page_describes(tmp_path: Path) -> None:
    keys = re.findall(r"^\| `([\w.]+)` \|", reference(""), re.MULTILINE)
    assert len(keys) > 50
    config = tmp_path / "config.yaml"
    whole = load_mapping(yaml.safe_load(example()))
    for dotted in keys:
        variable = "PULSAR_INGRESS_" + re.sub("([A-Z])", r"_\1", dotted).replace(".", "__").upper()
        *sections, key = dotted.split(".")
        lacking = section = yaml.safe_load(example())
        for name in sections:
            section = section[name]
        value = section.pop(key)
        config.write_text(yaml.safe_dump(lacking))
        assert load(config, {variable: value if isinstance(value, str) else json.dumps(value)}) == whole, variable


@every_document
def test_every_metric_mentioned_in_a_document_exists(document: str) -> None:
    text = read(document)
    known = metric_names()
    for name in re.findall(rf"{PREFIX}(?!(?:proxy|pipeline)\b)\w+", text):
        assert name in known, name
    for word in {word for word in words(document) if not word.startswith("test_")} - COLUMNS:
        if match := re.fullmatch(r"((?:process|[a-z]+)_[a-z_]*(?:total|seconds|bytes|fds)|[a-z_]+(?={))({.*})?", word):
            assert match[1] in known or PREFIX + match[1] in known, word
            labels = known.get(match[1]) or known.get(PREFIX + match[1], ())
            for label in re.findall(r"(\w+)=", match[2] or ""):
                assert label in labels, word


@every_document
def test_every_config_key_mentioned_in_a_document_exists(document: str) -> None:
    schema = json_schema()
    known = set(schema_keys(schema, schema))
    sections = {key.partition(".")[0] for key in known if "." in key}
    for word in words(document):
        key = word.replace("[]", "")
        is_key = re.fullmatch(r"[a-z]\w*(\.[a-z]\w*)+(?<!\.py)", key)
        if is_key and key.partition(".")[0] in sections:
            assert key in known, word


def settings_in(document: str) -> Iterator[dict[str, Any]]:
    """`leaks: block` and the like; those of a section, as in `unmapped: pass`, have another with them."""
    top = json_schema()["properties"]
    for word in words(document):
        if (
            re.match(r"\w+: ", word)
            and isinstance(settings := yaml.safe_load(word), dict)
            and set(settings) <= set(top)
        ):
            yield settings


def configured(settings: dict[str, Any]) -> Config:
    return load_mapping({"brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]}} | settings)


def holds(section: BaseModel, settings: dict[str, Any]) -> bool:
    """Whether a config has the values of these settings, section by section."""
    values = {field.alias: getattr(section, name) for name, field in type(section).model_fields.items()}
    return all(
        holds(values[key], value) if isinstance(value, dict) else values[key] == value
        for key, value in settings.items()
    )


@every_document
def test_every_config_setting_mentioned_in_a_document_is_valid(document: str) -> None:
    for settings in settings_in(document):
        assert holds(configured(settings), settings), settings


def test_documents_mention_config_settings_that_are_not_the_default() -> None:
    mentioned = [settings for document in DOCUMENTS for settings in settings_in(document)]
    assert [settings for settings in mentioned if not holds(configured({}), settings)]


@every_document
def test_links_between_documents_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", path.read_text()):
        target = path.parent / link if link else path
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, anchor


def test_all_pages_can_be_reached_from_the_map_and_that_from_the_readme() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", read("docs/README.md")))
    assert "](docs/README.md)" in README


def test_files_and_functions_that_the_architecture_names_exist() -> None:
    """A path, or a path and a name that is defined there: `routing/selection.py`, `http/client.py:ClientConnection`."""
    roots = (ROOT, ROOT / "proxy" / "pulsar_ingress_proxy", ROOT / "pipeline" / "pulsar_ingress_pipeline")
    named = re.findall(r"`([\w./-]+\.(?:py|md|yaml)|[\w./-]+/)(?::(\w+))?`", read("ARCHITECTURE.md"))
    assert len(named) > 60
    for path, name in named:
        found = [root / path for root in roots if (root / path).exists()]
        assert found, path
        if name:
            assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b|^{name}\b.* =", found[0].read_text(), re.M), name


def test_readme_names_make_demo_and_make_test_in_its_first_40_lines() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def read(document: str) -> str:
    return (ROOT / document).read_text()


def metric_names() -> dict[str, tuple[str, ...]]:
    """All that the sidecar and the pipeline can show, with its labels."""
    names: dict[str, tuple[str, ...]] = {}
    for metric in (*Sidecar.every(), *Pipeline.every()):
        names |= {series.name: series.labels for series in (metric, *parts(metric))}
    exposition = generate_latest(registry(Metrics("pulsar"))).decode()
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            names.setdefault(sample.name, tuple(sample.labels))
    return names


def parts(metric: Metric) -> list[Metric]:
    if metric.kind != "histogram":
        return []
    return [metric.part("bucket"), metric.part("sum"), metric.part("count")]


def schema_keys(schema: dict[str, Any], node: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.get("properties", {}).items():
        yield prefix + key
        if inner := value.get("$ref") or value.get("items", {}).get("$ref"):
            yield from schema_keys(schema, schema["$defs"][inner.rpartition("/")[2]], f"{prefix}{key}.")


def all_keys(values: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in values.items():
        found.add(prefix + key)
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and key != "lookupProperties":
            found |= all_keys(inner, f"{prefix}{key}.")
    return found


def test_threat_model_names_tests_that_exist() -> None:
    model = ROOT / "docs/threat-model.md"
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", model.read_text())
    assert len(named) > 50
    for test, file in named:
        assert f"def {test}(" in (model.parent / file).read_text(), f"{file} has no {test}"
