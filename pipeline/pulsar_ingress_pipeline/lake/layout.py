"""Which tables a folder has."""

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.storage import Storage

SHARES = "_shares"
"""The folder of tables that others are merged from."""


def names(tables: Storage) -> list[str]:
    """All Delta tables in a folder."""
    found = [name for name in tables.folders() if name != SHARES]
    found += [f"{SHARES}/{name}" for name in tables.folders(SHARES)]
    return [name for name in found if tables.exists(f"{name}/_delta_log")]


def check(tables: Storage) -> None:
    """Raise a fault if there are no tables."""
    refuse_earlier_layout(tables)
    if not names(tables):
        raise PipelineFault(f"{tables.url}: there are no tables; make them with `run`")


def refuse_earlier_layout(tables: Storage) -> None:
    """Versions before Delta Lake wrote plain Parquet files and a journal of their own."""
    has_plain_files = tables.exists("listener_windows") and not tables.exists("events/_delta_log")
    if tables.exists("_commits") or has_plain_files:
        raise PipelineFault(
            f"{tables.url}: these tables were written by an earlier version; "
            "run `pulsar-ingress-pipeline run` into an empty folder to make them again from the events"
        )
