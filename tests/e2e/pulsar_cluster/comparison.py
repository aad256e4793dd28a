"""Every scenario through every product, and what came of it as the tables of docs/comparison.md: run as a program.

The prose of that page is written by hand; the program writes what stands between its marks.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from brokers import Options
from children import Failed
from cluster import Cluster, running
from jvm import Missing
from rivals import PRODUCTS, Product, standing
from scenarios import SCENARIOS, Scenario

PAGE = Path(__file__).parents[3] / "docs" / "comparison.md"
MARKS = ("<!-- written by tests/e2e/pulsar_cluster/comparison.py -->", "<!-- to here -->")
WORKS = "works"
FAILS = "**fails**"
CONFIGS = "../tests/e2e/pulsar_cluster/configs"

# The last broker is in no product's configuration.
OPEN = Options(brokers=4, partner=True)
GUARDED = Options(
    partner=True, authorization=True, proxy_roles=("proxy",), conf={"superUserRoles": "admin,broker,proxy"}
)
Outcomes = Mapping[tuple[str, str], str | None]  # by scenario and product; None, or why it failed


def outcome(cluster: Cluster, product: Product, scenario: Scenario) -> str | None:
    """None where it works. A failure counts where it happens twice: brokers have bad moments of their own."""
    for _ in range(2):
        try:
            scenario.run(cluster, product)
        except AssertionError as failure:
            why = plain(str(failure))
        else:
            return None
    return why


def plain(why: str) -> str:
    """The first line, without what differs from run to run."""
    why = re.sub(r"broker-\d+", "broker-N", why.partition("\n")[0])
    why = re.sub(r"(broker-N[\w.-]+):\d+", r"\1", why)
    return why.replace("pulsar-broker-N.pulsar-broker.pulsar.svc.cluster.local", "pulsar-broker-N.….svc.cluster.local")


def all_outcomes() -> Outcomes:
    found: dict[tuple[str, str], str | None] = {}
    for options in (OPEN, GUARDED):
        with running(options, say) as cluster:
            for product in PRODUCTS:
                with standing(product, cluster):
                    for scenario in SCENARIOS:
                        if scenario.authorization == options.authorization:
                            why = outcome(cluster, product, scenario)
                            found[scenario.name, product.name] = why
                            say(f"{product.name}: {scenario.name}: {why or WORKS}")
    return found


def tables(outcomes: Outcomes) -> str:
    names = [product.name for product in PRODUCTS]
    lines = [
        f"Pulsar {OPEN.release.version}, {OPEN.load_manager} load manager.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for scenario in SCENARIOS:
        cells = [FAILS if outcomes[scenario.name, name] else WORKS for name in names]
        lines.append(f"| {scenario.name} | {' | '.join(cells)} |")
    lines += ["", "| what failed | at | what happened |", "|---|---|---|"]
    for scenario in SCENARIOS:
        reasons: dict[str, list[str]] = {}
        for name in names:
            if why := outcomes[scenario.name, name]:
                reasons.setdefault(why, []).append(name)
        lines += [f"| {scenario.name} | {', '.join(failed)} | {why} |" for why, failed in reasons.items()]
    lines += ["", "| product | version | lines of configuration | |", "|---|---|---|---|"]
    for product in PRODUCTS:
        files = ", ".join(f"[{file}]({CONFIGS}/{file})" for file in product.files)
        lines.append(f"| {product.name} | {product.version()} | {product.lines()} | {files} |")
    return "\n".join(lines)


def verdicts(page: str) -> dict[tuple[str, str], bool]:
    """Which scenarios work with which products, as the page says."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    first = next(number for number, row in enumerate(rows) if row[1:] == [product.name for product in PRODUCTS])
    found: dict[tuple[str, str], bool] = {}
    for name, *cells in rows[first + 2 :]:
        if not set(cells) <= {WORKS, FAILS}:
            break
        found |= {(name, product.name): cell == WORKS for product, cell in zip(PRODUCTS, cells, strict=True)}
    return found


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    begin, end = MARKS
    page = PAGE.read_text()
    assert begin in page, f"{PAGE} has lost its marks"
    assert end in page, f"{PAGE} has lost its marks"
    try:
        written = tables(all_outcomes())
    except (Failed, Missing) as failed:
        sys.exit(str(failed))
    before, after = page.partition(begin)[0], page.partition(end)[2]
    PAGE.write_text(f"{before}{begin}\n\n{written}\n\n{end}{after}")


if __name__ == "__main__":
    main()
