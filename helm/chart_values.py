"""Writes what follows from the chart's values: values.yaml, values.schema.json, the README's tables, and files/.

`python helm/chart_values.py` writes them all; tests/test_chart.py fails where they differ from what is here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from chart_model import CONFIG_DEFAULTS, Values, fields
from pydantic import BaseModel

from pulsar_ingress_proxy import __version__

ROOT = Path(__file__).parents[1]
CHART = Path(__file__).parent / "pulsar-ingress-proxy"


def generated() -> dict[Path, str]:
    """Every file that follows from others, with its text."""
    readme = CHART / "README.md"
    files = {
        CHART / "Chart.yaml": _with_version((CHART / "Chart.yaml").read_text(encoding="utf-8")),
        CHART / "values.yaml": values_yaml(),
        CHART / "values.schema.json": json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n",
        readme: _with_tables(readme.read_text(encoding="utf-8")),
        CHART / "files/config-defaults.yaml": yaml.safe_dump(dict(CONFIG_DEFAULTS), sort_keys=False),
        CHART / "files/rbac-rules.yaml": yaml.safe_dump(_rules("pulsar-ingress-proxy"), sort_keys=False),
    }
    for source in sorted(ROOT.glob("dashboards/*.json")):
        files[CHART / "files/dashboards" / source.name] = source.read_text(encoding="utf-8")
    if (rules := ROOT / "dashboards/rules.yaml").exists():
        files[CHART / "files/rules.yaml"] = rules.read_text(encoding="utf-8")
    return files


def values_yaml() -> str:
    """The defaults, a line of comment each."""
    return "# Made by helm/chart_values.py from helm/chart_model.py: change that.\n" + "".join(_yaml(Values, ""))


def values_schema() -> dict[str, Any]:
    """JSON schema draft 7, which every Helm 3 and 4 reads."""
    schema = Values.model_json_schema(by_alias=True)
    for model in (schema, *(schema["$defs"][name] for name in _section_names(Values))):
        model["required"] = [key for key, value in model["properties"].items() if _is_needed(value)]
    schema["properties"]["global"] = {"type": "object", "description": "what parent charts share; not read here"}
    plain = _draft_7({key: value for key, value in schema.items() if key != "$defs"})
    models = {name: _draft_7(model) for name, model in schema["$defs"].items()}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **plain, "definitions": models}


def _section_names(model: type[BaseModel]) -> Iterator[str]:
    for _, _, _, section in fields(model):
        if section is not None:
            yield section.__name__
            yield from _section_names(section)


def _is_needed(schema: Mapping[str, Any]) -> bool:
    """Helm takes out what is null. That is the only way to be rid of a mapping's default, and of use nowhere else."""
    default = schema.get("default", "")
    return default is not None and not (isinstance(default, dict) and default and "$ref" not in schema)


def _draft_7(schema: Any) -> Any:
    """Without `$defs`, without what stands beside a `$ref`, which draft 7 ignores, and without made-up titles."""
    if isinstance(schema, list):
        return [_draft_7(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/$defs/", "#/definitions/")}
    return {
        key: {name: _draft_7(each) for name, each in value.items()} if key == "properties" else _draft_7(value)
        for key, value in schema.items()
        if key not in ("title", "default")
    }


def _yaml(model: type[BaseModel], indent: str) -> Iterator[str]:
    for key, default, about, section in fields(model):
        yield f"{'' if indent else chr(10)}{indent}# {about}\n"
        if section is not None:
            yield f"{indent}{key}:\n"
            yield from _yaml(section, indent + "  ")
        else:
            text = yaml.safe_dump({key: default}, sort_keys=False, allow_unicode=True, width=1000)
            yield "".join(f"{indent}{line}\n" for line in text.replace(": null\n", ":\n").splitlines())


def _rows(model: type[BaseModel], path: str) -> Iterator[str]:
    for key, default, about, section in fields(model):
        if section is not None:
            yield from _rows(section, f"{path}{key}.")
        else:
            shown = json.dumps(default, ensure_ascii=False) if default is not None else "null"
            yield f"| `{path}{key}` | `{shown}` | {about} |"


def _default_rows() -> Iterator[str]:
    for key, value in CONFIG_DEFAULTS["sidecar"].items():
        inner = {f"{key}.{name}": name for name in value} if isinstance(value, dict) else {key: None}
        for path, name in inner.items():
            cells = (
                (CONFIG_DEFAULTS[mode][key] if name is None else CONFIG_DEFAULTS[mode][key].get(name))
                for mode in ("sidecar", "gateway")
            )
            shown = " | ".join("the proxy's" if cell is None else f"`{json.dumps(cell)}`" for cell in cells)
            yield f"| `config.{path}` | {shown} |"


def _with_tables(readme: str) -> str:
    """The README with its tables made anew, between their marks."""
    values = "\n".join(("| value | default | meaning |", "|---|---|---|", *_rows(Values, "")))
    defaults = "\n".join(("| key | mode sidecar | mode gateway |", "|---|---|---|", *_default_rows()))
    return _between(_between(readme, "values", values), "config", defaults)


def _between(readme: str, mark: str, table: str) -> str:
    before, opening, rest = readme.partition(f"<!-- {mark} -->\n")
    _, closing, after = rest.partition(f"\n<!-- /{mark} -->")
    return before + opening + table + closing + after


def _with_version(chart: str) -> str:
    return re.sub(r"(?m)^(appVersion|version): .*$", rf'\1: "{__version__}"', chart)


def _rules(role: str) -> Any:
    documents = yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text(encoding="utf-8"))
    return next(each["rules"] for each in documents if each["kind"] == "Role" and each["metadata"]["name"] == role)


def main() -> None:
    """Write what is generated, and remove what no longer is."""
    files = generated()
    for stale in set((CHART / "files").glob("**/*.*")) - files.keys():
        stale.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
