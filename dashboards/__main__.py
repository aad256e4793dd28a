"""Generate the dashboards and the rules: `python -m dashboards`."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from dashboards.overview import overview
from dashboards.pipeline import pipeline
from dashboards.rules import RUNBOOKS, rules
from dashboards.sidecar import sidecar

HERE = Path(__file__).parent


def files(runbooks: str = RUNBOOKS, grafana: str = "") -> Mapping[str, Callable[[], str]]:
    return {
        "overview.json": overview,
        "sidecar.json": sidecar,
        "pipeline.json": pipeline,
        "rules.yaml": lambda: rules(runbooks, grafana),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE, metavar="DIR", help="where to (this package)")
    parser.add_argument("--runbooks", default=RUNBOOKS, metavar="URL", help=f"what precedes NAME.md ({RUNBOOKS})")
    parser.add_argument("--grafana", default="", metavar="URL", help="where the dashboards are, for links in alerts")
    asked = parser.parse_args()
    for name, text in files(asked.runbooks, asked.grafana).items():
        (asked.into / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
