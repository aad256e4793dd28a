"""The configuration reference, docs/configuration.md. `make docs` generates it from the model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from pulsar_ingress_proxy.config.load import ENV_PREFIX
from pulsar_ingress_proxy.config.model import Config, Section, json_schema

_INTRODUCTION = """\
# Configuration

The config is one YAML file, `--config FILE`. Keys are camelCase, and a key that the broker has too has the broker's
name. An unknown key is an error, and the message suggests the nearest known one. `check` prints every error with its
line, and warnings for a valid file. `config-schema` prints the JSON schema, for editors. `make docs` generates this
page from the config model.

## Templates
An entry of `advertisedListeners` can describe many brokers. `{{n}}`, or any other word in braces, stands for a run of
letters, digits and hyphens, the same wherever it is repeated. `{{n+6651}}` requires digits and adds to them.
Templates work in both directions: from a broker's name to its addresses, and from an address back to the broker. A
word that is not in `broker` is an error. A `broker` without a port matches any port.

## Environment
An environment variable can set any key, and overrides the file. `{prefix}REDIRECTS__MAX_HOPS=3` sets
`redirects.maxHops`: upper snake case, with two underscores between levels. Lists and objects are JSON, and `null`
unsets a key:

```sh
{prefix}BROKERS__WEB_SERVICE_URL='["http://pulsar-broker:8080"]'
{prefix}EVENTS__PATH=/var/lib/pulsar-ingress/events
```

A variable that matches no key is an error. The variables that Kubernetes sets for Services (`*_SERVICE_HOST`,
`*_SERVICE_PORT*`, `*_PORT`, `*_PORT_<n>_*`) are ignored. Keys inside a list's elements have no variable: set the
whole list.

## Reload
The sidecar reloads the config on SIGHUP and when the file changes. It checks the file every second and follows
symbolic links, so it notices when Kubernetes updates a mounted ConfigMap. A bad file changes nothing: the log has the
reason, and `pulsar_ingress_config_last_reload_successful` is 0 until a valid file is loaded. Requests in progress
keep the config they began with. [Operations](operations.md) describes the whole life cycle, from start to drain.

| change | takes effect |
|---|---|
| contents of certificate, key and CA files | with the next connection; no reload is needed |
| `limits.headBytes`, `limits.headers`, `timeouts.clientIdle` | for new connections |
| `bindAddresses` | at once: new sockets open, removed ones drain, and the others keep their connections |
| the scheme of a socket at the same address | for new connections; open ones drain |
| `kubernetes`, `brokers` | discovery restarts; earlier results stay in force until it has new ones |
| `metrics`, `console`, `events`, `clusterName` | after a restart; the log says so |
| the environment | after a restart |
| everything else | at once |

"""

_EXAMPLE = """\
## All keys in one file
Values are the defaults, except for addresses, names and values that show the syntax of a key. Most keys can be left
out: [Start here](start.md) has a config of twenty lines.

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
    """The tables of all nested objects, each followed by the tables of the objects in it."""
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
    """The object that a key holds, or that each element of its list is."""
    inner = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((one for one in inner if isinstance(one, type) and issubclass(one, Section)), None)


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
    sys.stdout.write(reference())
