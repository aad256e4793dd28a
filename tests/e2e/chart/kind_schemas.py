"""JSON schemas for kubeconform: of Kubernetes' own kinds, and of custom ones, made from their definitions."""

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Schema = dict[str, Any]


def core_schemas(kubernetes: str) -> Path:
    """Those of Kubernetes' own kinds in a version, as the package kubernetes-validate has them."""
    package = find_spec("kubernetes_validate")
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0], "kubernetes-json-schema", f"v{kubernetes}.0-local-strict")


def write_core_schemas(kubernetes: str, folder: Path) -> None:
    """The same files with references to each other that hold outside of that package: `kind-group-version.json`."""
    folder.mkdir(parents=True)
    for file in core_schemas(kubernetes).glob("*.json"):
        schema = json.loads(file.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (folder / file.name).write_text(json.dumps(schema))


def write_custom_schemas(definitions: Iterable[Schema], kubernetes: str, folder: Path) -> None:
    """A file for each served version of a kind: `group/kind_version.json`. Metadata are of that Kubernetes version."""
    common = json.loads((core_schemas(kubernetes) / "_definitions.json").read_text())["$defs"]
    for definition in definitions:
        spec = definition["spec"]
        for version in spec["versions"]:
            if version["served"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"] |= {
                    "apiVersion": {"const": f"{spec['group']}/{version['name']}"},
                    "kind": {"const": spec["names"]["kind"]},
                    "metadata": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
                }
                schema["required"] = sorted({*schema.get("required", []), "apiVersion", "kind", "metadata"})
                schema["$defs"] = {name: each for name, each in common.items() if ".meta.v1." in name}
                file = folder / spec["group"] / f"{spec['names']['singular']}_{version['name']}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(schema))


def strict(schema: Schema) -> Schema:
    """A structural schema in the words of JSON Schema; what the API server would prune is an error.

    Inside `allOf`, `anyOf`, `oneOf` and `not` structural schemas say nothing about which fields there are.
    """
    made = {key: value for key, value in schema.items() if not key.startswith("x-")}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if "properties" in schema:
        made["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
        if not open_ended:
            made["additionalProperties"] = False
    elif schema.get("type") == "object" and "additionalProperties" not in schema and not open_ended:
        made["additionalProperties"] = False
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            made[key] = strict(schema[key])
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if made.pop("nullable", False) and "type" in made:
        made["type"] = [made["type"], "null"]
    return made
