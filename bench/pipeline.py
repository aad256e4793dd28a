"""What the pipeline costs: ingest, tables beside DuckDB's, bytes, and an hour's increment on more and more history.

    python -m bench.pipeline [--millions N…] [--no-increments] [--write]

Events are made once and kept in the user's cache. DuckDB makes the same tables of the same files in the same run, and
where one row differs there is no figure.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench import events
from bench.absorb import Taken
from bench.duck import Duck
from bench.pipeline_figures import Increment, Measured, as_markdown, as_svg, increments_table, table
from bench.processes import CannotMeasure

DOCS = Path(__file__).parents[1] / "docs"
INGEST = ("look", "events")
TABLES = ("tables", "commit")
HISTORIES = (1, 24, 240)
PER_HOUR = 18_000
"""Events of an hour of increments: a sidecar with five a second."""


def main() -> None:
    options = _options()
    busy = os.getloadavg()[0]
    measured: list[Measured] = []
    try:
        for millions in options.millions:
            measured.append(measure(millions * 1_000_000))
            print(table(measured[-1:]), file=sys.stderr)
        increments = [] if options.no_increments else measure_increments()
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    print(table(measured))
    if increments:
        print(increments_table(increments))
    if busy > 0.5:
        print(f"The machine was busy before this began (load average {busy:.1f}): wall times say little.")
    if options.write:
        machine = f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, Python {platform.python_version()}"
        (DOCS / "bench-pipeline.svg").write_text(as_svg(measured))
        (DOCS / "bench-pipeline.md").write_text(as_markdown(measured, increments, machine, busy))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, nargs="+", default=[10], metavar="N", help="of events (default 10)")
    parser.add_argument("--no-increments", action="store_true", help="leave out what an hour costs on history")
    parser.add_argument("--write", action="store_true", help="write docs/bench-pipeline.md and .svg")
    options = parser.parse_args()
    if min(options.millions) < 1:
        parser.error("--millions should be 1 or more")
    return options


def measure(count: int) -> Measured:
    """One size: the events are taken by `run` in a process of its own, then DuckDB makes the tables."""
    folder, lines = _made(f"{count}", count, 24, 0)
    with _scratch() as scratch:
        [taken] = absorb(scratch, [folder])
        if taken.events != count:
            raise CannotMeasure(f"{count} events were made, and {taken.events} taken")
        with closing(Duck(scratch / "tables", len(os.sched_getaffinity(0)))) as duck:
            began = time.monotonic()
            by_table = duck.make()
            seconds = time.monotonic() - began
            rows = duck.compare()
        parquet = sum(file.stat().st_size for file in (scratch / "tables" / "events").rglob("*.parquet"))
    packed = sum(file.stat().st_size for file in folder.glob("*.gz"))
    tables = taken.cost(*TABLES)
    ingest = taken.cost(*INGEST)
    return Measured(
        count, len(by_table), rows, ingest.cpu, ingest.wall, tables.cpu, tables.wall, seconds, lines, packed, parquet
    )


def measure_increments() -> list[Increment]:
    """One process that grows a history, and takes two more hours on each: the second is what counts."""
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
    with _scratch() as scratch:
        taken = absorb(scratch, folders)
    measured = [one for (kind, _), one in zip(phases, taken, strict=True) if kind == "hour"]
    return [
        Increment(history, one.events, one.cost().cpu, one.cost().wall)
        for history, one in zip(HISTORIES, measured, strict=True)
    ]


def absorb(scratch: Path, folders: Sequence[Path]) -> list[Taken]:
    command = [
        sys.executable,
        "-m",
        "bench.absorb",
        str(scratch / "tables"),
        str(scratch / "inbox"),
        *map(str, folders),
    ]
    with (scratch / "said").open("wb") as said:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=said, start_new_session=True, check=False)
    if done.returncode:
        raise CannotMeasure((scratch / "said").read_text(errors="replace")[-2000:])
    return [Taken.read(line) for line in done.stdout.decode().splitlines()]


def _made(name: str, count: int, hours: int, first: int) -> tuple[Path, int]:
    """The folder of the events, from the cache or made now, and the bytes of their lines."""
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
