"""docs/tables.md is what the code says."""

from pathlib import Path

from pulsar_ingress_pipeline.tables.reference import reference


def test_the_document_is_the_codes_own_words() -> None:
    document = Path(__file__).parents[2] / "docs" / "tables.md"
    assert document.read_text() == reference(), "python -m pulsar_ingress_pipeline.tables.reference > docs/tables.md"
