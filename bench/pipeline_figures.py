"""What was measured of the pipeline: as a table, as a page of the docs, and as a plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


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


_STYLE = """
  text { font: 12px sans-serif; fill: #333 } .axis { stroke: #999 }
  .ours { stroke: #0b62a4; fill: none; stroke-width: 2 }
  .theirs { stroke: #b45309; fill: none; stroke-width: 2 } .dot.ours { fill: #0b62a4 } .dot.theirs { fill: #b45309 }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .axis { stroke: #777 } .ours { stroke: #6bb1ee }
    .theirs { stroke: #f2a65a } .dot.ours { fill: #6bb1ee } .dot.theirs { fill: #f2a65a } }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 180, 46, 34


def as_svg(measured: Sequence[Measured]) -> str:
    panels = [
        _panel(
            0, "CPU-µs an event", measured,
            [("ours", "ingest", [one.ingest_us for one in measured]),
             ("theirs", "tables", [one.tables_us for one in measured])],
        ),
        _panel(
            _WIDTH + 90, "seconds for all tables", measured,
            [("ours", "Spark", [one.tables_wall for one in measured]),
             ("theirs", "DuckDB", [one.duck_wall for one in measured])],
        ),
    ]  # fmt: skip
    width, height = 2 * _WIDTH + 240, _HEIGHT + _TOP + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n<style>{_STYLE}</style>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _panel(
    left: int, title: str, measured: Sequence[Measured], lines: Sequence[tuple[str, str, Sequence[float]]]
) -> str:
    """Sizes stand side by side at equal steps, as each is about three times the one before."""
    top = max(value for _, _, values in lines for value in values) * 1.1
    step = _WIDTH / max(len(measured) - 1, 1)

    def at(place: int, value: float) -> tuple[float, float]:
        return round(left + _LEFT + place * step, 1), round(_TOP + _HEIGHT * (1 - value / top), 1)

    base = _TOP + _HEIGHT
    parts = [
        f'<text x="{left + _LEFT}" y="18">{title}</text>',
        f'<path class="axis" fill="none" d="M{left + _LEFT} {_TOP}V{base}H{left + _LEFT + _WIDTH}"/>',
        f'<text x="{left + _LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{left + _LEFT - 6}" y="{_TOP + 12}" text-anchor="end">{top:.0f}</text>',
    ]
    parts += [
        f'<text x="{at(place, 0)[0]}" y="{base + 18}" text-anchor="middle">{one.events // 1_000_000} M</text>'
        for place, one in enumerate(measured)
    ]
    for kind, name, values in lines:
        points = [at(place, value) for place, value in enumerate(values)]
        parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')
        parts += [f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="3"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 6}" y="{y + 4}">{name} {values[-1]:.1f}</text>')
    return "\n".join(parts)
