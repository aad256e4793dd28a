"""What was measured of the pipeline: as a table, as a page of the docs, and as a plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import plots
from bench.plots import Line, Panel


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of events, taken into empty tables by one `run`."""

    events: int
    tables: int
    rows: int
    """Of all tables, the same in both engines."""
    ingest_cpu: float
    ingest_wall: float
    tables_cpu: float
    tables_wall: float
    duck_wall: float
    lines: int
    packed: int
    parquet: int

    @property
    def ingest_us(self) -> float:
        return self.ingest_cpu / self.events * 1e6

    @property
    def tables_us(self) -> float:
        return self.tables_cpu / self.events * 1e6

    @property
    def ratio(self) -> float:
        return self.tables_wall / self.duck_wall


@dataclass(frozen=True, slots=True)
class Increment:
    """One more hour."""

    history: int
    """Hours that there are already."""
    events: int
    cpu: float
    wall: float


_COLUMNS: tuple[tuple[str, Callable[[Measured], str]], ...] = (
    ("events", lambda one: f"{one.events:,}"),
    ("ingest, CPU-µs/event", lambda one: f"{one.ingest_us:.1f}"),
    ("tables, CPU-µs/event", lambda one: f"{one.tables_us:.1f}"),
    ("tables, s", lambda one: f"{one.tables_wall:.1f}"),
    ("DuckDB, s", lambda one: f"{one.duck_wall:.1f}"),
    ("ratio", lambda one: f"{one.ratio:.1f}"),
    ("JSON, bytes/event", lambda one: f"{one.lines / one.events:.0f}"),
    ("gzip", lambda one: f"{one.packed / one.events:.0f}"),
    ("Parquet", lambda one: f"{one.parquet / one.events:.1f}"),
    ("JSON by Parquet", lambda one: f"{one.lines / one.parquet:.1f}"),
)


def table(measured: Sequence[Measured]) -> str:
    rows = [[head for head, _ in _COLUMNS], ["---"] * len(_COLUMNS)]
    rows += [[cell(one) for _, cell in _COLUMNS] for one in measured]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def increments_table(increments: Sequence[Increment]) -> str:
    rows = ["| hours there are | events of the new hour | CPU-s | wall s |", "|---|---|---|---|"]
    rows += [f"| {one.history} | {one.events:,} | {one.cpu:.1f} | {one.wall:.1f} |" for one in increments]
    return "\n".join(rows)


def as_markdown(measured: Sequence[Measured], increments: Sequence[Increment], machine: str, busy: float) -> str:
    of, sizes = measured[-1], " ".join(str(one.events // 1_000_000) for one in measured)
    parts = [
        "# What the pipeline costs\n",
        f'Written by `make bench-pipeline ARGS="--millions {sizes} --write"`; '
        "[pipeline.md](pipeline.md#sizing) has what follows from it.\n",
        f"On {machine}, load average {busy:.1f} before it began. CPU time is of all processes, Java's and Python's, "
        "from an empty start: what Java compiles is in it. Java has 3 GB. *ingest* is from gzip files of JSON lines "
        "to sorted Parquet "
        f"with the index of ids, each id looked for among all. *tables* are all {of.tables} that DuckDB makes too, of "
        f"the same Parquet on the same cores, {of.rows:,} rows that were compared: "
        "all equal, quantiles within their error. Spark writes its tables as files, DuckDB keeps them in memory.\n",
        table(measured),
        "\n![CPU time of an event, and seconds for all tables](bench-pipeline.svg)\n",
    ]
    if increments:
        parts += ["One more hour, in a process that runs on, as `stream` does:\n", increments_table(increments), ""]
    return "\n".join(parts)


def as_svg(measured: Sequence[Measured]) -> str:
    sizes = [f"{one.events // 1_000_000} M" for one in measured]
    cpu = [
        Line("ours", "ingest", [one.ingest_us for one in measured]),
        Line("theirs", "tables", [one.tables_us for one in measured]),
    ]
    wall = [
        Line("ours", "Spark", [one.tables_wall for one in measured]),
        Line("theirs", "DuckDB", [one.duck_wall for one in measured]),
    ]
    return plots.as_svg([Panel("CPU-µs an event", sizes, cpu), Panel("seconds for all tables", sizes, wall)])
