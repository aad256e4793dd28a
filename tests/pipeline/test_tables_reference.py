"""docs/tables.md is what the code says."""

from pathlib import Path

from pulsar_ingress_pipeline.tables.reference import reference


def test_tables_document_equals_the_reference_generated_from_code() -> None:
    document = Path(__file__).parents[2] / "docs" / "tables.md"
    assert document.read_text() == reference(), "python -m pulsar_ingress_pipeline.tables.reference > docs/tables.md"
