"""Reading a config: the file, then the environment over it, and every fault of both at once.

A fault is one line: where it is, what is wrong, what would be right.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.constructor import ConstructorError

from pulsar_ingress_proxy.config.model import Config, Metrics
from pulsar_ingress_proxy.config.sources import KeyPath, Sources, dotted, lines_of, read_path
from pulsar_ingress_proxy.syntax.listeners import without_user

ENV_PREFIX = "PULSAR_INGRESS_"

# What Kubernetes puts into every container for a Service called pulsar-ingress-…; never a setting of ours.
_SERVICE_VARIABLE = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT$|_PORT_\d+_.*$")


class ConfigFaults(Exception):
    """All faults of a config, one per line."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Config:
    """Read and validate a file, with the environment's overrides."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigFaults([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigFaults([f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}"]) from None
    try:
        values, lines, faults = _parse(text, str(path))
        return _validate(values, Sources(str(path), lines), os.environ if environ is None else environ, faults)
    except RecursionError:
        raise ConfigFaults([f"{path}: is nested too deeply, or an alias in it stands for itself"]) from None


def locate(config: Config, faults: Iterable[str]) -> list[str]:
    """Faults that were found after `load`, each beginning with its key: with the line or the variable that sets it."""
    keys = (fault.partition(": ") for fault in faults)
    return [config.sources.where(read_path(key)) + text for key, _, text in keys]


def load_mapping(values: Mapping[str, Any]) -> Config:
    """Validate a config that is already in memory."""
    return _validate(dict(values), Sources(), {}, [])


def glean(text: str | None, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The readable parts of an invalid config, without validation."""
    try:
        values = _Loader(text or "").get_single_data()
    except (yaml.YAMLError, RecursionError):
        values = None
    gleaned = values if isinstance(values, dict) else {}
    for _, path, value in _overrides(os.environ if environ is None else environ, []):
        _set(gleaned, path, value)
    return gleaned


def gleaned_status_address(gleaned: Mapping[str, Any]) -> str:
    """The address of /livez in such a config, as host:port."""
    section = gleaned.get("metrics")
    try:
        return Metrics.model_validate({"address": section["address"]} if isinstance(section, dict) else {}).address
    except (KeyError, ValidationError):
        return Metrics().address


class _Loader(yaml.SafeLoader):
    """Reports a scalar with its line if it does not fit its tag, as in `!!bool maybe`, or cannot be written as text."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str | int):
                str(value).encode()  # an int may have too many digits for it
        except (AttributeError, LookupError, OverflowError, ValueError):
            kind = node.tag.rpartition(":")[2]
            raise ConstructorError(None, None, f"not a valid {kind}", node.start_mark) from None
        return value


def _parse(text: str, name: str) -> tuple[dict[str, Any], dict[KeyPath, int], list[str]]:
    """The values of a file, the lines of its keys, and its first faults."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines, duplicates = lines_of(node)  # before values are made, which resolves merge keys in the nodes
        values = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigFaults([f"{name}{line}: is not YAML: {problem}"]) from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigFaults([f"{name}: should be a mapping of keys, not a {type(values).__name__}"])
    return values, lines, [f"{name}:{line}: {dotted(key)}: is there twice" for key, line in duplicates]


def _validate(values: dict[str, Any], file: Sources, environ: Mapping[str, str], faults: list[str]) -> Config:
    variables: dict[KeyPath, str] = {}
    for variable, path, value in _overrides(environ, faults):
        _set(values, path, value)
        variables[path] = variable
    sources = replace(file, variables=variables)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            faults += _lines(detail, sources)
        raise ConfigFaults(_in_order(faults)) from None
    if faults:
        raise ConfigFaults(faults)
    config._sources = sources
    return config


def _in_order(faults: list[str]) -> list[str]:
    """By line of the file, each once."""

    def line(fault: str) -> int:
        match = re.match(r"[^:]*:(\d+):", fault)
        return int(match[1]) if match else 0

    return sorted(dict.fromkeys(faults), key=line)


def _overrides(environ: Mapping[str, str], faults: list[str]) -> Iterator[tuple[str, KeyPath, Any]]:
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or _SERVICE_VARIABLE.search(variable):
            continue
        try:
            yield variable, _path_of(variable), _value(environ[variable])
        except ValueError as fault:
            faults.append(f"environment: {variable}: {fault}")


def _path_of(variable: str) -> KeyPath:
    """`PULSAR_INGRESS_REDIRECTS__MAX_HOPS` is `redirects.maxHops`."""
    path: list[str | int] = []
    model: Any = Config
    for part in variable.removeprefix(ENV_PREFIX).split("__"):
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise ValueError(f"{path[-1]} has no keys of its own: set it whole, lists and records as JSON")
        known = {name.upper(): name for name in model.model_fields}
        if part not in known:
            near = _nearest(part, list(known))
            raise ValueError(f"no such key{f'; did you mean {near}?' if near else ''}")
        field = model.model_fields[known[part]]
        path.append(field.alias or known[part])
        model = field.annotation
    return tuple(path)


def _value(text: str) -> Any:
    """Lists and records are JSON; a scalar is left for its key's type to read."""
    if text.strip() == "null":
        return None
    try:
        value = json.loads(text) if text.lstrip()[:1] in ("[", "{") else text
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("is not text") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return value


def _set(values: dict[str, Any], path: KeyPath, value: Any) -> None:
    *parents, last = path
    section: Any = values
    for key in parents:
        inner = {} if section.get(key) is None else section[key]
        if not isinstance(inner, dict):
            return  # no record in the file, which is a fault of its own
        section[key] = section = dict(inner)  # an alias may stand for it elsewhere
    section[last] = value


def _lines(detail: ErrorDetails, sources: Sources) -> Iterator[str]:
    key = tuple(detail["loc"])
    for line in _text(detail, key).splitlines():
        place, text = key, line
        # A fault between keys names its own place.
        named, _, rest = line.partition(": ")
        if named.startswith(f"{key[0]}."):
            place, text = read_path(named), rest
        yield sources.where(place) + text


def _text(detail: ErrorDetails, path: KeyPath) -> str:
    """A fault in words: what is wrong, and what would be right."""
    value, context = detail.get("input"), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(path)
        case "missing":
            return "is missing"
        case "literal_error":
            expected = [word.strip("' ") for word in re.split(r",| or ", str(context.get("expected")))]
            near = _nearest(str(value), expected)
            return f"'{value}' is not one of {', '.join(expected)}{f'; did you mean {near}?' if near else ''}"
        case "value_error":
            return str(context.get("error"))
        case "model_type" | "dict_type":
            return f"should be a mapping of keys, not {_shown(value, path)}"
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {_shown(value, path)}"


def _shown(value: object, path: KeyPath) -> str:
    if "lookupProperties" in path:  # may be a credential
        return f"a value of type {type(value).__name__}"
    text = "empty" if value is None else without_user(repr(value))
    return text if len(text) <= 60 else text[:57] + "…"


def _unknown_key(path: KeyPath) -> str:
    *parents, key = path
    known = [dotted.rpartition(".") for dotted in _all_keys(Config, "")]
    section = ".".join(parent for parent in parents if isinstance(parent, str))  # without places in lists
    siblings = [name for place, _, name in known if place == section]
    if near := _nearest(str(key), siblings):
        return f"unknown key; did you mean {near}?"
    if elsewhere := next((place + dot + name for place, dot, name in known if name == key), None):
        return f"unknown key here; did you mean {elsewhere}?"
    return f"unknown key; known here are {', '.join(siblings)}"


def _all_keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key
        if section := section_of(field.annotation):
            yield from _all_keys(section, key + ".")


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The record that a key holds, or that each element of its list is."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := section_of(inner))), None)


def _nearest(word: str, words: list[str]) -> str | None:
    folded = {known.lower(): known for known in words}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None
