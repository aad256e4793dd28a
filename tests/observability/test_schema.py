"""The event schema is what operators and the pipeline were promised."""

import ast
import sys
from pathlib import Path

import pytest

from pulsar_ingress_proxy.observability import event_schema
from pulsar_ingress_proxy.observability.event_schema import FIELDS, NAMES, SCHEMA_VERSION

PROMISED = """
schema time id cluster sidecar generation protocol kind method scheme ingress bind host forwardedHost serverName
listener rule hit missReason clientNamed clientNamedBy tenant namespace topic broker status redirectAction redirectFrom
redirectTo hops leak durationMs upstreamMs requestBytes responseBytes clientClass userAgent
"""


def test_event_fields_are_those_of_schema_version_1_in_order() -> None:
    assert SCHEMA_VERSION == 1
    assert list(NAMES) == PROMISED.split()


@pytest.mark.parametrize(
    ("type", "names"),
    [
        ("boolean", "hit"),
        ("integer", "schema generation status hops requestBytes responseBytes"),
        ("number", "durationMs upstreamMs"),
    ],
)
def test_only_the_listed_event_fields_are_boolean_integer_or_number(type: str, names: str) -> None:
    assert {field.name for field in FIELDS if field.type == type} == set(names.split())


def test_all_event_fields_but_nine_are_strings() -> None:
    assert sum(field.type == "string" for field in FIELDS) == len(FIELDS) - 9


def test_every_event_field_has_a_meaning() -> None:
    assert all(field.meaning for field in FIELDS)


def test_event_schema_module_imports_only_the_standard_library() -> None:
    tree = ast.parse(Path(event_schema.__file__).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported <= sys.stdlib_module_names
