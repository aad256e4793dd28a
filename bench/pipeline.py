"""The cost of the pipeline: small data, ingest, tables beside DuckDB's, bytes, and one more hour on a history.

    python -m bench.pipeline [--millions N…] [--no-small] [--no-increments] [--write]

Events are made once and kept in the user's cache. DuckDB makes the same tables of the same files in the same run, and
where one row differs there is no figure. Each figure is printed, and with --write written, as soon as there is one.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from bench import events
from bench.absorb import Taken
from bench.duck import Duck
from bench.pipeline_figures import Figures, Increment, Measured, Small
from bench.processes import CannotMeasure, Used, used_by

DOCS = Path(__file__).parents[1] / "docs"
INGEST = ("look", "events")
TABLES = ("tables", "commit")
HISTORIES = (1, 24, 240)
PER_HOUR = 18_000
"""Events per hour of increments: a sidecar with five per second."""
SMALL = 4_000
"""Events of a few hours, as in a first trial."""
TIMES = 3
"""Runs of each small command; their medians count."""


def main() -> None:
    options = _options()
    machine = f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, Python {platform.python_version()}"
    figures = Figures(machine, os.getloadavg()[0])

    def told(made: str) -> None:
        print(made, flush=True)
        if options.write:
            (DOCS / "bench-pipeline.md").write_text(figures.as_markdown())
            if figures.measured:
                (DOCS / "bench-pipeline.svg").write_text(figures.as_svg())

    try:
        if not options.no_small:
            figures.small = measure_small()
            told(figures.small_table())
        for millions in options.millions:
            figures.measured.append(measure(millions * 1_000_000))
            told(figures.table())
        if not options.no_increments:
            for increment in measure_increments():
                figures.increments.append(increment)
                told(figures.increments_table())
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    if figures.busy > 0.5:
        print(f"The machine was busy before this began (load average {figures.busy:.1f}): wall times say little.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, nargs="*", default=[10], metavar="N", help="of events (default 10)")
    parser.add_argument("--no-small", action="store_true", help="leave out `run` and `report` on a few events")
    parser.add_argument("--no-increments", action="store_true", help="leave out what an hour costs on history")
    parser.add_argument("--write", action="store_true", help="write docs/bench-pipeline.md and .svg")
    options = parser.parse_args()
    if min(options.millions, default=1) < 1:
        parser.error("--millions should be 1 or more")
    return options


def measure_small() -> list[Small]:
    """The commands as a user starts them, each from an empty start."""
    folder, _ = _made(f"{SMALL}", SMALL, 4, 0)
    found: dict[str, list[Used]] = {"run": [], "report": []}
    for _ in range(TIMES):
        with _scratch() as scratch:
            tables = ["--tables", str(scratch / "tables")]
            found["run"].append(_command(scratch, "run", "--events", str(folder), *tables))
            found["report"].append(_command(scratch, "report", *tables, "--out", str(scratch / "report.html")))
    return [
        Small(
            name,
            SMALL,
            *(median(values) for values in zip(*((one.cpu, one.wall, one.peak) for one in uses), strict=True)),
        )
        for name, uses in found.items()
    ]


def _command(scratch: Path, *arguments: str) -> Used:
    return used_by([sys.executable, "-m", "pulsar_ingress_pipeline", *arguments], scratch / "said")


def measure(count: int) -> Measured:
    """One size: `run` ingests the events in its own process, then DuckDB builds the tables."""
    folder, lines = _made(f"{count}", count, 24, 0)
    with _scratch() as scratch:
        [taken] = absorb(scratch, [folder])
        if taken.events != count:
            raise CannotMeasure(f"{count} events were made, and {taken.events} taken")
        with closing(Duck(scratch / "tables", scratch / "duck", len(os.sched_getaffinity(0)))) as duck:
            beside = duck.make()
            rows = duck.compare()
        parquet = sum(file.stat().st_size for file in (scratch / "tables" / "events").rglob("*.parquet"))
    packed = sum(file.stat().st_size for file in folder.glob("*.gz"))
    return Measured(count, duck.tables, rows, taken.cost(*INGEST), taken.cost(*TABLES), beside, lines, packed, parquet)


def measure_increments() -> Iterator[Increment]:
    """One process that grows a history and ingests two more hours at each size; the second hour is measured."""
    phases: list[tuple[str, int]] = []
    hour = 0
    for history in HISTORIES:
        phases.append(("history", history - hour))
        phases += [("warm", 1), ("hour", 1)]
        hour = history + 2
    folders, first = [], 0
    for place, (_, hours) in enumerate(phases):
        folders.append(_made(f"hours-{place}-{first}-{hours}", PER_HOUR * hours, hours, first)[0])
        first += hours
    histories = iter(HISTORIES)
    with _scratch() as scratch:
        for (kind, _), one in zip(phases, absorb(scratch, folders), strict=True):
            if kind == "hour":
                yield Increment(next(histories), one.events, one.cost())


def absorb(scratch: Path, folders: Sequence[Path]) -> Iterator[Taken]:
    command = [
        sys.executable,
        "-m",
        "bench.absorb",
        str(scratch / "tables"),
        str(scratch / "inbox"),
        *map(str, folders),
    ]
    with (scratch / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, start_new_session=True)
    with process:
        assert process.stdout is not None
        yield from (Taken.read(line.decode()) for line in process.stdout)
    if process.returncode:
        raise CannotMeasure((scratch / "said").read_text(errors="replace")[-2000:])


def _made(name: str, count: int, hours: int, first: int) -> tuple[Path, int]:
    """The folder of the events, from the cache or generated now, and the size of their lines in bytes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pulsar-ingress-proxy" / "bench-pipeline"
    folder, manifest = cache / name, cache / f"{name}.json"
    if not manifest.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making {count:,} events in {folder} …", file=sys.stderr)
        manifest.write_text(json.dumps({"lines": events.make(folder, count, hours, first_hour=first)}))
    return folder, int(json.loads(manifest.read_text())["lines"])


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as name:
        yield Path(name)


if __name__ == "__main__":
    main()
