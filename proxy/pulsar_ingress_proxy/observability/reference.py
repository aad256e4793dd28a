"""The tables of docs/metrics.md and docs/events.md. `make docs` generates them from the catalogue and the schema."""

import re
import sys
from pathlib import Path

from pulsar_ingress_proxy.observability.catalogue import Catalogue, Metric, Pipeline, Sidecar
from pulsar_ingress_proxy.observability.event_schema import FIELDS, Field


def reference(page: str) -> str:
    """The page with the current tables: of the sidecar's metrics, then of the pipeline's; of events."""
    metrics = iter((_metrics(Sidecar), _metrics(Pipeline)))
    page = re.sub(r"(?m)^\| metric \|.*\n(?:\|.*\n)*", lambda _: next(metrics), page)
    return re.sub(r"(?m)^\| field \|.*\n(?:\|.*\n)*", lambda _: _fields(), page)


def _metrics(catalogue: type[Catalogue]) -> str:
    return "".join(["| metric | kind | labels | meaning |\n|---|---|---|---|\n", *map(_metric, catalogue.every())])


def _metric(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


def _fields() -> str:
    return "".join(["| field | type | null | meaning |\n|---|---|---|---|\n", *map(_field, FIELDS)])


def _field(field: Field) -> str:
    return f"| `{field.name}` | {field.type} | {'may be' if field.nullable else 'never'} | {field.meaning} |\n"


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(reference(file.read_text(encoding="utf-8")), encoding="utf-8")
