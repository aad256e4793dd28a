"""The tables of docs/metrics.md. `make docs` generates them from the catalogue."""

import re
import sys
from pathlib import Path

from pulsar_ingress_proxy.observability.catalogue import Catalogue, Metric, Pipeline, Sidecar


def reference(page: str) -> str:
    """The page with the current tables: of the sidecar, then of the pipeline."""
    tables = iter((_table(Sidecar), _table(Pipeline)))
    return re.sub(r"(?m)^\| metric \|.*\n(?:\|.*\n)*", lambda _: next(tables), page)


def _table(catalogue: type[Catalogue]) -> str:
    return "".join(["| metric | kind | labels | meaning |\n|---|---|---|---|\n", *map(_row, catalogue.every())])


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(reference(file.read_text(encoding="utf-8")), encoding="utf-8")
