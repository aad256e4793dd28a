"""The configuration reference, docs/configuration.md, made from the model by `make docs`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from pulsar_ingress_proxy.config.load import ENV_PREFIX
from pulsar_ingress_proxy.config.model import Config, Section, json_schema

_INTRODUCTION = """\
# Configuration

One YAML file, `--config FILE`. Keys are camelCase, with the broker's own names where the broker has one. An unknown
key is a fault, and the nearest known one is named. `check` prints every fault with its line, and of a file that is
valid what is questionable about it; `config-schema` prints the JSON schema, for editors. This page is made by
`make docs` from the model that reads the file.

## Templates
A line of `advertisedListeners` may stand for many brokers. `{{n}}` (any word will do) stands for one run of letters,
digits and hyphens, the same wherever it is repeated; `{{n+6651}}` wants digits and adds to them. Templates are read
both ways: from what a broker calls itself to its addresses, and from an address back to the broker. A word that
`broker` does not have is a fault. A `broker` without a port takes any port.

## Environment
Any key may come from the environment, and then beats the file: `{prefix}REDIRECTS__MAX_HOPS=3` is
`redirects.maxHops` (upper snake case, levels joined by two underscores). Lists and records are JSON, `null` unsets:

```sh
{prefix}BROKERS__WEB_SERVICE_URL='["http://pulsar-broker:8080"]'
{prefix}EVENTS__PATH=/var/lib/pulsar-ingress/events
```

A variable that names no key is a fault, like a key. Those that Kubernetes makes for Services (`*_SERVICE_HOST`,
`*_SERVICE_PORT*`, `*_PORT`, `*_PORT_<n>_*`) are ignored. Keys of a list's elements have no variable: set the list
whole.

## Reload
SIGHUP, or a change of the file, puts a new config in force; the file is looked at every second, through links, so
that a ConfigMap may swap them. A bad file changes nothing: the log says why, and
`pulsar_ingress_config_last_reload_successful` is 0 until a good one comes. Requests that have begun keep the config
they began with. [Operations](operations.md) has the whole life, from start to drain.

| what changes | takes effect |
|---|---|
| certificates, keys and CAs (the files; no reload is needed) | with the next connection |
| `limits.headBytes`, `limits.headers`, `timeouts.clientIdle` | for connections made from then on |
| `bindAddresses` | new sockets open, those no longer named are drained; those that stay keep their connections |
| the scheme of a socket, its address staying as it is | with the next start: a reload is refused |
| `kubernetes`, `brokers` | discovery begins anew; what was found before stays in force until it has found something |
| `metrics`, `console`, `events`, `clusterName` | with the next start: the log says so |
| the environment | with the next start |
| everything else | at once |

"""

_EXAMPLE = """\
## All keys in one file
Values are defaults, apart from addresses, names and what shows how a key is written. Nobody needs all of them: the
[Start here](start.md) has a config of twenty lines.

```yaml
{example}```
"""


def reference() -> str:
    """The page."""
    introduction = _INTRODUCTION.format(prefix=ENV_PREFIX)
    return introduction + "\n".join(_sections()) + "\n" + _EXAMPLE.format(example=example())


def example() -> str:
    """A config with every key."""
    return Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")


def _sections() -> Iterator[str]:
    schema = json_schema()
    yield _table("Keys of the file", None, Config, schema, "", ENV_PREFIX)
    yield from _subsections(Config, schema, schema["$defs"], "", ENV_PREFIX)


def _subsections(
    model: type[Section], schema: dict[str, Any], models: dict[str, Any], path: str, variable: str | None
) -> Iterator[str]:
    """The tables of the records that a record holds, each followed by those that it holds itself."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = _record(field)
        if inner is None:
            continue
        is_list = not isinstance(field.annotation, type)
        place = f"{path}{key}[]." if is_list else f"{path}{key}."
        inner_variable = None if is_list or variable is None else f"{variable}{name.upper()}__"
        inner_schema = models[inner.__name__]
        yield _table(f"`{place[:-1]}`", inner.__doc__, inner, inner_schema, place, inner_variable)
        yield from _subsections(inner, inner_schema, models, place, inner_variable)


def _table(
    title: str, about: str | None, model: type[Section], schema: dict[str, Any], path: str, variable: str | None
) -> str:
    lines = [f"## {title}", *([about] if about else []), ""]
    lines += ["| key | value | default | meaning | environment |", "|---|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if _record(field) is not None and isinstance(field.annotation, type):
            continue
        key = field.alias or name
        value = _kind(schema["properties"][key])
        meaning = str(field.description)
        environment = f"`{variable}{name.upper()}`" if variable is not None else ""
        lines.append(f"| `{path}{key}` | {value} | {_default(field)} | {meaning} | {environment} |")
    return "\n".join(lines) + "\n"


def _record(field: FieldInfo) -> type[Section] | None:
    """The record that a key holds, or that each element of its list is."""
    inner = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((one for one in inner if isinstance(one, type) and issubclass(one, Section)), None)


def _kind(schema: dict[str, Any]) -> str:
    """What may be written there."""
    if "enum" in schema:
        *others, last = (f"`{value}`" for value in schema["enum"])
        return f"{', '.join(others)} or {last}"
    if "anyOf" in schema:
        return ", or ".join(_kind(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        return "records"
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
    sys.stdout.write(reference())
