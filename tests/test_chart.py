"""The Helm chart, as far as it can be tested without Helm: generated files, values, and configs that the proxy takes.

What Helm makes of it is tested by the chart's own suites and in tests/e2e/chart.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import chart_model as model
import chart_values as chart
import pytest
import yaml
from pydantic import ValidationError

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config.model import json_schema

HELM = Path(__file__).parents[1] / "helm"
CHART = HELM / "pulsar-ingress-proxy"
EXAMPLES = sorted(CHART.glob("ci/*-values.yaml"))
TEMPLATES = sorted(path for path in CHART.glob("templates/**/*") if path.is_file())


def read(path: Path) -> dict[str, Any]:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("path", chart.generated(), ids=lambda path: path.relative_to(CHART).as_posix())
def test_generated_chart_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == chart.generated()[path], "run python helm/chart_values.py"


def test_chart_files_folder_holds_only_generated_files() -> None:
    assert {path for path in (CHART / "files").rglob("*") if path.is_file()} <= chart.generated().keys()


def test_the_chart_has_the_version_of_the_proxy() -> None:
    assert read(CHART / "Chart.yaml")["appVersion"] == __version__


def test_the_oldest_kubernetes_is_the_same_wherever_it_is_stated() -> None:
    root = HELM.parent
    (oldest,) = re.findall(r"^>=(1\.\d+)\.0-0$", read(CHART / "Chart.yaml")["kubeVersion"])
    pages = [root / "README.md", CHART / "README.md", *root.glob("docs/**/*.md"), *root.glob("deploy/**/*.yaml")]
    stated = {page: re.findall(r"Kubernetes (?:v|version )?(1\.\d+)", page.read_text()) for page in pages}
    assert stated[CHART / "README.md"]
    assert stated[root / "docs/install.md"]
    assert {version for versions in stated.values() for version in versions} == {oldest}, stated


def test_the_values_for_any_other_gateway_are_an_example_of_the_chart() -> None:
    page = (HELM.parent / "docs/gateways.md").read_text().partition("## Any other gateway\n")[2]
    (values,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert yaml.safe_load(values) == read(CHART / "ci/gateway-values.yaml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_config_of_every_example_passes_check(path: Path, tmp_path: Path) -> None:
    values = read(path)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(model.with_defaults(values["config"], values.get("mode", "sidecar"))))
    assert main(["check", "--no-files", "--config", str(config)]) == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_has_only_known_values(path: Path) -> None:
    values = read(path)
    values["config"] = model.with_defaults(values["config"], values.get("mode", "sidecar"))
    model.Values.model_validate(values)
    for unknown in ({"noSuchValue": 1}, {"config": {**values["config"], "noSuchValue": 1}}):
        with pytest.raises(ValidationError, match=r"noSuchValue\n +Extra inputs are not permitted"):
            model.Values.model_validate({**values, **unknown})


@pytest.mark.parametrize("mode", ["sidecar", "gateway"])
def test_user_config_keys_override_chart_defaults_one_by_one(mode: str) -> None:
    ours = {"events": {"path": None}, "bindAddresses": ["http://127.0.0.1:1"], "leaks": "block"}
    config = model.with_defaults(ours, mode)
    assert config["events"] == {**model.CONFIG_DEFAULTS[mode]["events"], "path": None}
    assert config["bindAddresses"] == ["http://127.0.0.1:1"]
    assert config["leaks"] == "block"
    assert config["metrics"] == model.CONFIG_DEFAULTS[mode]["metrics"]


def test_sidecar_mode_binds_proxy_and_console_to_loopback_by_default() -> None:
    defaults = model.CONFIG_DEFAULTS["sidecar"]
    assert all("://127.0.0.1:" in address for address in defaults["bindAddresses"])
    assert defaults["console"]["address"].startswith("127.0.0.1:")


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every record that a schema describes key by key."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def test_unknown_keys_are_refused_at_every_depth_of_the_schema() -> None:
    found = list(objects(chart.values_schema()))
    assert len(found) > 25
    assert all(schema["additionalProperties"] is False for schema in found)
    assert chart.values_schema()["properties"]["global"]["type"] == "object"  # Helm's own, for parent charts


def test_chart_config_schema_has_the_proxys_keys_and_requires_none() -> None:
    ours, its = chart.values_schema()["definitions"]["Config"], json_schema()
    assert ours["properties"].keys() == its["properties"].keys()
    assert "required" not in ours  # the chart has defaults that depend on the mode


def test_every_value_has_a_line_of_comment() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    commented = {line.split(":")[0].strip() for above, line in pairwise(lines) if "# " in above}
    names = {path.rpartition(".")[2] for path in value_paths(model.Values)}
    assert names <= commented


def value_paths(section_of: Any, path: str = "") -> Iterator[str]:
    for key, _, _, section in model.fields(section_of):
        yield f"{path}{key}"
        if section is not None:
            yield from value_paths(section, f"{path}{key}.")


def test_templates_use_only_known_values_and_all_of_them() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    known = set(value_paths(model.Values))
    used = set(re.findall(r"\.Values\.([A-Za-z]+(?:\.[A-Za-z]+)?)", text))
    assert {path for path in used if path not in known and not path.startswith("config.")} == set()
    leaves = {path.rpartition(".")[2] for path in known}
    assert {name for name in leaves if not re.search(rf"\.{name}\b", text)} == set()


def test_templates_name_no_other_image_than_the_values() -> None:
    images = [line for path in TEMPLATES for line in path.read_text(encoding="utf-8").splitlines() if "image:" in line]
    assert [line.strip() for line in images] == ['image: {{ include "pip.image" . | quote }}']


def test_every_template_has_a_suite() -> None:
    manifests = {path.relative_to(CHART / "templates") for path in TEMPLATES if path.suffix == ".yaml"}
    suites = {path.name for path in (CHART / "tests").glob("*_test.yaml")}
    assert {f"{'-'.join(path.with_suffix('').parts)}_test.yaml" for path in manifests} <= suites
