"""The config in force, key by key, and where each is set. Pure."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.config.model import AT_START
from pulsar_ingress_proxy.config.sources import KeyPath, Sources, dotted
from pulsar_ingress_proxy.console.models import Setting

# The only text of a config that could be a credential: its URLs have no user, and keys and tokens are in files.
_SECRET = re.compile(r"auth|token|jwt|bearer|secret|pass|pw|cred|private|key|cookie|session|sign", re.IGNORECASE)


def settings(newest: Config, started: Config) -> Iterator[Setting]:
    """Every key to the leaf, in the order of the reference; `started` is the config at the start."""
    for name in Config.model_fields:
        in_force = _top(started if name in AT_START else newest, name)
        for setting, wanted in zip(in_force, _top(newest, name), strict=True):
            if setting.value == wanted.value:
                yield wanted
            else:  # its line was that of an older file
                yield setting.model_copy(update={"pending": True, "line": None})


def _top(config: Config, name: str) -> Iterator[Setting]:
    alias = Config.model_fields[name].alias or name
    return _key((alias,), getattr(config, name), name in config.model_fields_set, config.sources)


def lookup_property(name: str, value: str) -> str:
    """A value of `lookupProperties` as the console shows it."""
    return "hidden" if _SECRET.search(name) else value


def _key(path: KeyPath, value: Any, is_set: bool, sources: Sources) -> Iterator[Setting]:
    match value:
        case BaseModel():
            for name, field in type(value).model_fields.items():
                is_set = name in value.model_fields_set
                yield from _key((*path, field.alias or name), getattr(value, name), is_set, sources)
        case tuple() if value:
            if (*path, len(value)) in sources.lines:  # bindAddresses may name a socket twice, and places shift then
                sources = replace(sources, lines={path: sources.lines[path]})
            for place, item in enumerate(value):
                yield from _key((*path, place), item, is_set, sources)
        case dict() if value:
            for name, item in value.items():
                text = lookup_property(name, item) if isinstance(item, str) else ", ".join(map(str, item.values()))
                yield _setting((*path, name), text, is_set, sources)
        case _:
            yield _setting(path, value, is_set, sources)


def _setting(path: KeyPath, value: Any, is_set: bool, sources: Sources) -> Setting:
    if isinstance(value, tuple | dict):
        value = []  # an empty one
    elif value == math.inf:
        value = ".inf"  # JSON has no number for it
    elif not isinstance(value, bool | int | float | None):
        value = str(value)
    variable = sources.variable(path) if is_set else None
    return Setting(
        key=dotted(path),
        value=value,
        source="environment" if variable else "file" if is_set else "default",
        line=sources.line(path) if is_set and not variable else None,
        variable=variable,
        pending=False,
    )
