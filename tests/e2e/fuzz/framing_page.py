"""The tables of docs/framing.md: how each peer divides the named cases. As a program it measures and writes them.

python tests/e2e/fuzz/framing_page.py
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).parents[3]
    sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests", "tests/http", "tests/e2e/pulsar_cluster")]

import artifacts
from framing_cases import CASES, NEXT
from framing_peers import SIDECAR, standing
from framing_readings import Reading, differ, readings

from bench.peers import ENVOY, HAPROXY, NGINX

PAGE = Path(__file__).parents[3] / "docs" / "framing.md"
MARKS = ("<!-- written by tests/e2e/fuzz/framing_page.py -->", "<!-- to here -->")
COLUMNS = (SIDECAR, "nginx", "HAProxy", "Envoy", "Jetty 12", "Jetty 9.4")
LOCKED = (SIDECAR, "Envoy", "Jetty 12", "Jetty 9.4")
"""Those of which the project chooses the version."""
Rows = Mapping[str, Mapping[str, Reading]]  # by case and peer


def cell(reading: Reading) -> str:
    """The requests before NEXT, with the bytes of their bodies, and how it ended if NEXT did not arrive."""
    words = []
    for request in reading.requests:
        if request is None:
            words.append("error")
        elif request.target != "/next":
            name = "inner" if request.target == "/inner" else "case"
            words.append(f"{name} {len(request.body)}")
    if reading.end != "closed":
        words.append(reading.end)
    return ", ".join(words)


def read_differently(row: Mapping[str, Reading]) -> bool:
    found = list(row.values())
    return any(differ(one, other) for one in found for other in found)


def tables(rows: Rows) -> str:
    jetties = " and ".join(artifacts.WEB_SERVERS[line].version for line in ("5.0", "4.0"))
    proxies = ", ".join(f"{peer.name} {peer.version()}" for peer in (NGINX, HAPROXY))
    versions = f"{proxies}, Envoy {ENVOY.version()}, Jetty {jetties}."
    differing = [name for name, row in rows.items() if read_differently(row)]
    agreed = [name for name in rows if name not in differing]
    parts = [f"Versions: {versions}"]
    for title, names in (("Requests that two of them divide differently", differing), ("All other requests", agreed)):
        lines = [f"| | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
        lines += [f"| {name} | {' | '.join(cell(rows[name][peer]) for peer in COLUMNS)} |" for name in names]
        parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join(parts)


def cells(page: str) -> dict[tuple[str, str], str]:
    """What the page says, by case and peer."""
    rows = re.findall(r"^\| ([^|]+) " + r"\| ([^|]*) " * len(COLUMNS) + r"\|$", page, re.MULTILINE)
    return {(name, peer): text for name, *texts in rows for peer, text in zip(COLUMNS, texts, strict=True)}


def main() -> None:
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    with tempfile.TemporaryDirectory() as folder, standing(Path(folder)) as peers:
        rows, _ = asyncio.run(readings(peers, [case + NEXT for case in CASES.values()]))
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{tables(dict(zip(CASES, rows, strict=True)))}\n\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
