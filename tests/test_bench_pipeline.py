"""The pipeline's benchmark: its events are events and always the same, and its figures are of what was measured."""

import gzip
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import events
from bench.absorb import Cost, Taken
from bench.pipeline_figures import Increment, Measured, as_markdown, as_svg, table
from pulsar_ingress_pipeline.ingest.parsing import read_line


def measured(millions: int) -> Measured:
    count = millions * 1_000_000
    return Measured(count, 18, 1000, 12e-6 * count, 9.0, 20e-6 * count, 30.0, 10.0, 900 * count, 90 * count, 45 * count)


def test_generated_events_are_valid_and_the_same_every_time(tmp_path: Path) -> None:
    sizes = [events.make(tmp_path / name, 600, hours=2, first_hour=3) for name in ("one", "other")]
    files = sorted((tmp_path / "one").iterdir())
    assert len(files) == 24
    assert [gzip.decompress(file.read_bytes()) for file in files] == [
        gzip.decompress(file.read_bytes()) for file in sorted((tmp_path / "other").iterdir())
    ]
    lines = b"".join(gzip.decompress(file.read_bytes()) for file in files).splitlines(keepends=True)
    assert sizes == [sum(map(len, lines))] * 2
    read = [read_line(line) for line in lines]
    rows = [row for row in read if isinstance(row, dict)]
    assert len(rows) == len({row["id"] for row in rows}) == 600
    first = events.START.timestamp() * 1e6 + 3 * 3600e6
    assert all(first <= row["time"] < first + 2 * 3600e6 for row in rows)
    assert {row["kind"] for row in rows} == {"lookup", "admin"}
    assert 0 < sum("missReason" in row for row in rows) < 60


def test_table_chart_and_page_show_the_measured_figures() -> None:
    sizes = [measured(millions) for millions in (1, 3, 10)]
    assert [one.ingest_us for one in sizes] == pytest.approx([12.0] * 3)
    assert sizes[0].ratio == 3.0
    assert table(sizes).splitlines()[-1] == "| 10,000,000 | 12.0 | 20.0 | 30.0 | 10.0 | 3.0 | 900 | 90 | 45.0 | 20.0 |"
    picture = ElementTree.fromstring(as_svg(sizes))
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"1 M", "3 M", "10 M", "ingest 12.0", "DuckDB 10.0"} <= set(words)
    page = as_markdown(sizes, [Increment(24, 18_000, 5.0, 4.0)], "2 cores", 0.1)
    assert "| 24 | 18,000 | 5.0 | 4.0 |" in page


def test_cost_of_a_stage_is_the_sum_of_its_parts() -> None:
    taken = Taken(10, {"read": Cost(1, 2), "tables: hours": Cost(3, 4), "tables: days": Cost(5, 6)})
    assert taken.cost("tables") == Cost(8, 10)
    assert taken.cost() == Cost(9, 12)
