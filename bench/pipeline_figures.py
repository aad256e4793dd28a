"""Formats the pipeline's measurements as tables, as a page of the docs, and as a plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import plots
from bench.absorb import Cost
from bench.plots import Line, Panel


@dataclass(frozen=True, slots=True)
class Small:
    """A command on a few events."""

    command: str
    events: int
    cpu: float
    wall: float
    peak: float
    """Bytes of memory."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A number of events, ingested into empty tables by one `run`."""

    events: int
    tables: int
    rows: int
    """Rows of all tables, equal in both engines."""
    ingest: Cost
    derived: Cost
    duck: Cost
    lines: int
    packed: int
    parquet: int

    @property
    def ingest_us(self) -> float:
        return self.ingest.cpu / self.events * 1e6

    @property
    def tables_us(self) -> float:
        return self.derived.cpu / self.events * 1e6

    @property
    def ratio(self) -> float:
        return self.derived.cpu / self.duck.cpu


@dataclass(frozen=True, slots=True)
class Increment:
    """One more hour."""

    history: int
    """Hours that are already in the tables."""
    events: int
    cost: Cost


_COLUMNS: tuple[tuple[str, Callable[[Measured], str]], ...] = (
    ("events", lambda one: f"{one.events:,}"),
    ("ingest, CPU-µs/event", lambda one: f"{one.ingest_us:.1f}"),
    ("tables, CPU-µs/event", lambda one: f"{one.tables_us:.1f}"),
    ("tables, CPU-s", lambda one: f"{one.derived.cpu:.1f}"),
    ("DuckDB, CPU-s", lambda one: f"{one.duck.cpu:.1f}"),
    ("ratio", lambda one: f"{one.ratio:.1f}"),
    ("tables, wall s", lambda one: f"{one.derived.wall:.1f}"),
    ("DuckDB, wall s", lambda one: f"{one.duck.wall:.1f}"),
    ("JSON, bytes/event", lambda one: f"{one.lines / one.events:.0f}"),
    ("gzip", lambda one: f"{one.packed / one.events:.0f}"),
    ("Parquet", lambda one: f"{one.parquet / one.events:.1f}"),
)


@dataclass(slots=True)
class Figures:
    """The results so far."""

    machine: str
    busy: float
    """The load average before the start."""
    small: Sequence[Small] = ()
    measured: list[Measured] = field(default_factory=list)
    increments: list[Increment] = field(default_factory=list)

    def small_table(self) -> str:
        rows = ["| command | events | CPU-s | wall s | memory, MB |", "|---|---|---|---|---|"]
        rows += [
            f"| `{one.command}` | {one.events:,} | {one.cpu:.1f} | {one.wall:.1f} | {one.peak / 1e6:.0f} |"
            for one in self.small
        ]
        return "\n".join(rows)

    def table(self) -> str:
        rows = [[head for head, _ in _COLUMNS], ["---"] * len(_COLUMNS)]
        rows += [[cell(one) for _, cell in _COLUMNS] for one in self.measured]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def increments_table(self) -> str:
        rows = ["| hours there are | events of the new hour | CPU-s | wall s |", "|---|---|---|---|"]
        rows += [
            f"| {one.history} | {one.events:,} | {one.cost.cpu:.1f} | {one.cost.wall:.1f} |" for one in self.increments
        ]
        return "\n".join(rows)

    def as_markdown(self) -> str:
        sizes = " ".join(str(one.events // 1_000_000) for one in self.measured)
        parts = [
            "# What the pipeline costs\n",
            f'Written by `make bench-pipeline ARGS="--millions {sizes} --write"`; '
            "[The pipeline](pipeline.md#sizing) has what follows from it.\n",
            f"On {self.machine}, load average {self.busy:.1f} before it began. CPU time is of all processes, "
            "Java's and Python's, from an empty start: what Java compiles is in it.\n",
        ]
        if self.small:
            parts += [
                "Commands on few events, as a person starts them; medians of three. Memory is the most that all "
                "processes had at a time.\n",
                self.small_table(),
                "",
            ]
        if self.measured:
            of = self.measured[-1]
            parts += [
                "Many events, taken into empty tables by one process whose Java has 3 GB. *ingest* is from gzip files "
                "of JSON lines to sorted Parquet files committed to `events`, each event once. *tables* are all "
                f"derived tables; *DuckDB* makes the {of.tables} that people read, of the same Parquet files on the "
                f"same cores, {of.rows:,} rows that were compared: all equal, quantiles within their error. Both write "
                "files. *ratio* is of CPU time.\n",
                self.table(),
                "\n![CPU time of an event, and CPU time for all tables](bench-pipeline.svg)\n",
            ]
        if self.increments:
            parts += [
                "One more hour, in a process that runs on, as `stream` does:\n",
                self.increments_table(),
                "",
            ]
        return "\n".join(parts)

    def as_svg(self) -> str:
        sizes = [f"{one.events // 1_000_000} M" for one in self.measured]
        event = [
            Line("ours", "ingest", [one.ingest_us for one in self.measured]),
            Line("theirs", "tables", [one.tables_us for one in self.measured]),
        ]
        tables = [
            Line("ours", "Spark", [one.derived.cpu for one in self.measured]),
            Line("theirs", "DuckDB", [one.duck.cpu for one in self.measured]),
        ]
        return plots.as_svg([Panel("CPU-µs an event", sizes, event), Panel("CPU-s for all tables", sizes, tables)])
