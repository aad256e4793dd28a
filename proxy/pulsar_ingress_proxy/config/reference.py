"""The tables and the example of docs/configuration.md. `make docs` generates them from the model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pulsar_ingress_proxy.config.load import section_of
from pulsar_ingress_proxy.config.model import Config, json_schema

_FIRST_TITLE = "Keys of the file"

_EXAMPLE = """\
## All keys in one file
Values are the defaults, except for addresses, names and values that show the syntax of a key. Most keys can be left
out: [Try it](start.md#2-write-a-config) has a config of fifteen lines.

```yaml
{example}```
"""


def reference(page: str) -> str:
    """The page: its introduction as it is, and everything from the first table on as the model says."""
    introduction, _, _ = page.partition(f"## {_FIRST_TITLE}\n")
    schema = json_schema()
    tables = _tables(Config, {**schema["$defs"], "Config": schema}, "")
    return f"{introduction}## {_FIRST_TITLE}\n\n" + "\n".join(tables) + "\n" + _EXAMPLE.format(example=example())


def example() -> str:
    return Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")


def _tables(model: type[BaseModel], schemas: dict[str, Any], path: str) -> Iterator[str]:
    """The table of an object's keys, and after it the tables of the objects in it."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    inner: list[str] = []
    for name, field in model.model_fields.items():
        place = f"{path}{field.alias or name}"
        section = section_of(field.annotation)
        is_list = section is not field.annotation
        if section is not None:
            inner_path = f"{place}[]" if is_list else place
            inner.append(f"## `{inner_path}`\n{section.__doc__}\n")
            inner += _tables(section, schemas, f"{inner_path}.")
        if section is None or is_list:
            schema = schemas[model.__name__]["properties"][field.alias or name]
            cells = (f"`{place}`", _kind(schema), _default(field), schema["description"])
            lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines) + "\n"
    yield from inner


def _kind(schema: dict[str, Any]) -> str:
    """The allowed values."""
    if "enum" in schema:
        *others, last = (f"`{value}`" for value in schema["enum"])
        return f"{', '.join(others)} or {last}"
    if "anyOf" in schema:
        return ", or ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        return "objects"
    match schema["type"]:
        case "array":
            return f"list of {_kind(schema['items'])}"
        case "object":
            return "mapping of text"
        case "string":
            return "text"
        case "boolean":
            return "`true` or `false`"
        case kind:
            least = schema.get("minimum")
            return f"{kind} above 0" if least is None else f"{kind}, {least} or more"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    match field.default:
        case None:
            return "unset"
        case bool(value):
            return f"`{str(value).lower()}`"
        case () | {} as value if not value:
            return "empty"
        case tuple(values):
            return ", ".join(f"`{value}`" for value in values)
        case value:
            return f"`{value}`"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(reference(page.read_text(encoding="utf-8")), encoding="utf-8")
