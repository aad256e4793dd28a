"""The tables in a folder: lists, reads, exports and maintains them, without Spark or Java.

Maintenance is safe while others read and write: files are removed a week after the version that dropped them, and a
commit fails if there is another one in between.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import arrow, fault_of, opened, words

SHARES = "_shares"
"""The folder of tables that others are merged from."""
RETAIN_HOURS = 168
_COMPACTED = ("events", "files", "quarantine")
"""Tables whose commits only add files; the others have one file for each day anyway."""


def names(tables: Storage) -> list[str]:
    """All Delta tables in a folder; it is a fault if there are none."""
    refuse_earlier_layout(tables)
    found = [name for name in tables.folders() if name != SHARES]
    found += [f"{SHARES}/{name}" for name in tables.folders(SHARES)]
    made = [name for name in found if tables.exists(f"{name}/_delta_log")]
    if not made:
        raise PipelineFault(f"{tables.url}: there are no tables; make them with `run`")
    return made


def refuse_earlier_layout(tables: Storage) -> None:
    """Versions before Delta Lake wrote plain Parquet files and a journal of their own."""
    has_plain_files = tables.exists("listener_windows") and not tables.exists("events/_delta_log")
    if tables.exists("_commits") or has_plain_files:
        raise PipelineFault(
            f"{tables.url}: these tables were written by an earlier version; "
            "run `pulsar-ingress-pipeline run` into an empty folder to make them again from the events"
        )


class Lake:
    """A folder of Delta tables."""

    def __init__(self, url: str) -> None:
        self._tables = Storage.of(url)
        self.url = self._tables.url

    def has(self, name: str) -> bool:
        return opened(self._tables.below(name)) is not None

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The newest version of a table; it is a fault if there is no such table."""
        url = f"{self.url}/{name}"
        found = opened(self._tables.below(name))
        if found is None:
            self.check()
            raise PipelineFault(f"{url}: there is no such table; make it with `run`")
        present = [field.name for field in found.schema().fields]
        if missing := [column for column in columns or () if column not in present]:
            raise PipelineFault(f"{url}: the table has no column {', '.join(missing)}")
        try:
            read = arrow(found.scan(columns=None if columns is None else list(columns)))
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise PipelineFault(f"{url}: cannot be read: {words(error)}") from None
        return read.cast(pa.schema([field.with_type(_plain(field.type)) for field in read.schema]))

    def check(self) -> None:
        """Raise a fault if there are no tables, or only tables of the layout before Delta Lake."""
        names(self._tables)


def _plain(kind: pa.DataType) -> pa.DataType:
    """delta-rs reads strings as views, which few of Arrow's functions support."""
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.list_(_plain(kind.value_type)) if pa.types.is_list(kind) else kind


def export(tables: Storage, out: str) -> Iterator[str]:
    """Write every table as a plain Parquet file to a folder of its own; gives a line for each table."""
    found = names(tables)
    if "://" in out:
        raise PipelineFault(f"--out {out}: should be a folder of this machine")
    target = Path(out)
    try:
        if target.exists() and any(target.iterdir()):
            raise PipelineFault(f"--out {out}: is not empty; export to a new folder")
        for name in found:
            if not name.startswith(SHARES):
                yield _export(tables, name, target / name)
    except OSError as error:
        raise PipelineFault(f"--out {out}: cannot be written: {error.strerror or error}") from None


def _export(tables: Storage, name: str, folder: Path) -> str:
    delta = opened(tables.below(name))
    assert delta is not None
    folder.mkdir(parents=True)
    rows = 0
    dataset = delta.to_pyarrow_dataset()
    with pq.ParquetWriter(folder / f"{name}.parquet", dataset.schema, compression="zstd") as writer:
        for batch in dataset.to_batches():
            writer.write_batch(batch)
            rows += len(batch)
    return f"{name}: {rows:,} rows of version {delta.version()}"


def maintain(tables: Storage, retain_hours: int = RETAIN_HOURS) -> Iterator[str]:
    """Merge small files, and remove files that no version needs; gives a line for each table."""
    for name in names(tables):
        yield _maintain(tables.below(name), name, retain_hours)


def _maintain(storage: Storage, name: str, retain_hours: int) -> str:
    delta, once, merged = opened(storage), CommitProperties(max_commit_retries=0), 0
    assert delta is not None
    try:
        if name in _COMPACTED:
            merged = delta.optimize.compact(commit_properties=once)["numFilesRemoved"]
        removed = delta.vacuum(
            retain_hours, dry_run=False, enforce_retention_duration=False, full=True, commit_properties=once
        )
        delta.create_checkpoint()
        delta.cleanup_metadata()
    except (DeltaError, OSError) as error:
        raise fault_of(error, storage, delta.version(), "maintained") from None
    gone = sum(path.endswith(".parquet") for path in removed)
    return f"{name}: version {delta.version()}, {merged} files merged, {gone} removed"
