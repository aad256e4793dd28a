"""Draw a dashboard from what a Prometheus answers to its panels: `python -m dashboards.picture --prometheus URL`.

Where no Grafana is at hand, as in a document. A PNG wants a Chromium on the PATH.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dashboards.__main__ import HERE
from dashboards.answers import Prometheus, Window
from dashboards.drawing import picture

_POINTS = 150
"""Samples from the left end to the right."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboards.picture", description=__doc__)
    parser.add_argument("--prometheus", required=True, metavar="URL", help="whom to ask")
    parser.add_argument("--board", default="overview", choices=[path.stem for path in sorted(HERE.glob("*.json"))])
    parser.add_argument("--minutes", type=float, default=60, metavar="NUMBER", help="up to now; 60 if not given")
    parser.add_argument(
        "--interval", type=float, default=60, metavar="SECONDS", help="over how long rates are: four scrapes or more"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="what to write: .svg or .png")
    asked = parser.parse_args()
    draw(asked.prometheus, asked.board, asked.minutes, asked.interval, asked.out)


def draw(prometheus: str, board: str, minutes: float, interval: float, out: Path) -> None:
    dashboard = json.loads((HERE / f"{board}.json").read_text(encoding="utf-8"))
    end, asking = time.time(), Prometheus(prometheus)
    step = max(1.0, round(minutes * 60 / _POINTS))
    window = Window(end - minutes * 60, end, step, interval)
    answers = {panel["id"]: asking.answers(panel, window) for panel in dashboard["panels"]}
    svg = picture(dashboard, answers, window)
    if out.suffix == ".png":
        _as_png(svg, out)
    else:
        out.write_text(svg, encoding="utf-8")


def _as_png(svg: str, out: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit(f"{out}: a PNG wants a Chromium on the PATH; write .svg instead")
    size = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert size is not None
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "picture.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><style>body{{margin:0}}</style>{svg}', encoding="utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/u",
            f"--window-size={size[1]},{size[2]}", f"--screenshot={out.absolute()}", page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603


if __name__ == "__main__":
    main()
