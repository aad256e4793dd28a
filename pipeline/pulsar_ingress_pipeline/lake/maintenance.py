"""Keeps tables small and fast to read: merges small files, and removes files that no version needs.

This is safe while others read and write: files are removed a week after the version that dropped them, and a commit
fails if there is another one in between.
"""

from collections.abc import Iterator

from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties

from pulsar_ingress_pipeline.lake.reader import names
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import fault_of, opened

RETAIN_HOURS = 168
EVERY = 86_400.0
"""Seconds between two runs in `stream`."""
_ALONE = CommitProperties(max_commit_retries=0)
COMPACTED = ("events", "files", "quarantine")
"""Tables whose commits only add files; the others have one file for each day anyway."""


def maintain(tables: Storage, retain_hours: int = RETAIN_HOURS) -> Iterator[str]:
    """Maintain every table; gives a line for each as soon as it is done."""
    for name in names(tables):
        yield _maintain(tables.below(name), name, retain_hours)


def _maintain(storage: Storage, name: str, retain_hours: int) -> str:
    delta = opened(storage)
    assert delta is not None
    try:
        merged = 0
        if name in COMPACTED:
            merged = delta.optimize.compact(commit_properties=_ALONE)["numFilesRemoved"]
        removed = delta.vacuum(
            retain_hours, dry_run=False, enforce_retention_duration=False, full=True, commit_properties=_ALONE
        )
        delta.create_checkpoint()
        delta.cleanup_metadata()
    except (DeltaError, OSError) as error:
        raise fault_of(error, storage, delta.version(), "maintained") from None
    gone = sum(path.endswith(".parquet") for path in removed)
    return f"{name}: version {delta.version()}, {merged} files merged, {gone} removed"
