"""The pipeline's benchmark: its events are events and always the same, and its figures are of what was measured."""

import gzip
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import events
from bench.absorb import Cost, Taken
from bench.pipeline_figures import Figures, Increment, Measured, Small
from bench.processes import CannotMeasure, used_by
from pulsar_ingress_pipeline.ingest.parsing import read_line


def measured(millions: int) -> Measured:
    count = millions * 1_000_000
    ingest, tables, duck = Cost(12e-6 * count, 9.0), Cost(20e-6 * count, 30.0), Cost(5e-6 * count, 4.0)
    return Measured(count, 18, 1000, ingest, tables, duck, 900 * count, 90 * count, 45 * count)


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
    figures = Figures("2 cores", 0.1, measured=[measured(millions) for millions in (1, 3, 10)])
    assert [one.ingest_us for one in figures.measured] == pytest.approx([12.0] * 3)
    assert figures.measured[0].ratio == 4.0
    last = "| 10,000,000 | 12.0 | 20.0 | 200.0 | 50.0 | 4.0 | 30.0 | 4.0 | 900 | 90 | 45.0 |"
    assert figures.table().splitlines()[-1] == last
    picture = ElementTree.fromstring(figures.as_svg())
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"1 M", "3 M", "10 M", "ingest 12.0", "DuckDB 50.0"} <= set(words)
    assert last in figures.as_markdown()


def test_page_has_what_was_measured_before_a_bench_broke_off() -> None:
    figures = Figures("2 cores", 0.1, [Small("report", 4000, 0.9, 1.8, 240e6)])
    assert "| `report` | 4,000 | 0.9 | 1.8 | 240 |" in figures.as_markdown()
    figures.increments.append(Increment(24, 18_000, Cost(5.0, 4.0)))
    assert "| 24 | 18,000 | 5.0 | 4.0 |" in figures.as_markdown()


def test_cpu_time_and_memory_of_a_command_include_children_that_nobody_waited_for(tmp_path: Path) -> None:
    burn = "import time\nheld = bytearray(50_000_000)\nwhile time.process_time() < 1: pass"
    forked = f"import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif not os.fork():\n exec({burn!r})\n"
    orphaned = f"{forked}else:\n try: os.wait()\n except ChildProcessError: pass"
    used = used_by([sys.executable, "-c", orphaned], tmp_path / "said")
    assert used.cpu > 0.4  # more than Python takes to start; a child that ends is seen up to a sample before its end
    assert used.peak > 50_000_000
    with pytest.raises(CannotMeasure, match="no such thing"):
        used_by([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path / "said")


def test_cost_of_a_stage_is_the_sum_of_its_parts() -> None:
    taken = Taken(10, {"read": Cost(1, 2), "tables: hours": Cost(3, 4), "tables: days": Cost(5, 6)})
    assert taken.cost("tables") == Cost(8, 10)
    assert taken.cost() == Cost(9, 12)
