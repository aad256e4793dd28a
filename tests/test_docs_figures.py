"""Figures in the documents: a command that gives them stands beside them, and those quoted are those measured."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GENERATED = {"docs/bench-pipeline.md", "docs/exactly-once.md", "docs/tables.md", "docs/metrics.md"}
DOCUMENTS = sorted(
    {str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"))}
    - GENERATED
    - {"CHANGELOG.md"}
)
SPEED = re.compile(r"\d ?µs|\d CPU-|\d(?: times)? what (?:it|they) costs?|\d \w+ (?:a|per) second(?! (?:for|later))")
COMMAND = re.compile(r"`(?:make (?:bench|soak|image)|python -m bench\.)")


def read(document: str) -> str:
    return (ROOT / document).read_text()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_sections_that_quote_speeds_name_the_command_that_measures_them(document: str) -> None:
    for section in re.split(r"^#+ ", read(document), flags=re.MULTILINE):
        if quoted := SPEED.search(section):
            assert COMMAND.search(section), f"{section.splitlines()[0]}: {quoted[0]}"


def test_sizes_of_the_pipeline_follow_from_what_was_measured() -> None:
    """All of `Sizing` but the estimates, from the rows of docs/bench-pipeline.md."""
    measured = re.search(r"^\| 10,000,000 \|(.*)\|$", read("docs/bench-pipeline.md"), re.MULTILINE)
    assert measured is not None
    ingest, tables, *_, gzip, parquet = (float(cell) for cell in measured[1].split("|"))
    hours = re.findall(r"^\| \d+ \| 18,000 \| ([\d.]+) \|", read("docs/bench-pipeline.md"), re.MULTILINE)
    sizing = re.split(r"^## ", read("docs/pipeline.md"), flags=re.MULTILINE)
    (text,) = (re.sub(r"\s+", " ", section) for section in sizing if section.startswith("Sizing"))
    batch, stream = round(ingest + tables), round(ingest + 6 * tables)  # twelve times an hour, of half of it on average
    gzip, parquet = round(gzip), round(parquet)
    events = [20 * 86400 * sidecars for sidecars in (1, 100, 10_000)]
    for sentence in (
        f"{ingest:.1f} CPU-µs to ingest an event and {tables:.0f} to derive all tables from it,",
        f"{gzip} bytes of gzip and {parquet} of Parquet.",
        f"turns the {tables:.0f} into {6 * tables:.0f} CPU-µs.",
        f"| gzip a day | {rounded(events[0] * gzip / 1e9)} GB | {rounded(events[1] * gzip / 1e9)} GB |",
        f"| Parquet a day | {rounded(events[0] * parquet / 1e6)} MB | {rounded(events[1] * parquet / 1e9)} GB |",
        f"`run` once an hour: {batch} µs an event |",
        f"| {rounded(events[1] * batch / 3.6e9)} | {rounded(events[2] * batch / 3.6e9)} |",
        f"`stream` every 5 minutes: {stream} µs |",
        f"commits of {min(map(float, hours)):.0f} to {max(map(float, hours)):.0f} CPU-s |",
        f"| {rounded(events[1] * stream / 3.6e9)} | {rounded(events[2] * stream / 3.6e9)} |",
    ):
        assert sentence in text, sentence


def rounded(figure: float) -> str:
    """To two digits that count."""
    return f"{float(f'{figure:.2g}'):g}"


def test_the_comparison_counts_the_lines_of_the_configurations_that_it_links() -> None:
    page = read("docs/comparison.md")
    rows = re.findall(r"^\| .+ \| [\d.]+ \| (\d+) \| (\[.*\)) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for count, links in rows:
        texts = [(ROOT / "docs" / link).read_text() for link in re.findall(r"\]\((.*?)\)", links)]
        assert int(count) == sum(not re.match(r"\s*(#|--|$)", line) for text in texts for line in text.splitlines())
