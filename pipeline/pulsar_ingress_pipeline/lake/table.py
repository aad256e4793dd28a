"""A Delta table of the pipeline: its current files, and commits that fail if there is another commit in between.

Every commit carries the table's new version as an application transaction. A later version that changes data without
one was written by another program. A derived table's commit also carries the version of `events` that it is derived
from. Transactions survive the cleanup of the log, custom metadata does not.
"""

import json
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.lake.storage import DataFile, Storage, hour_of

# delta-rs reads `%20` as a space, and panics at brackets.
_REFUSED = re.compile(r"[\[\]%]")
APPLICATION, SOURCE = "pulsar-ingress-pipeline", "pulsar-ingress-pipeline/events"
"""The application transactions: the table's own version, and that of the `events` it is derived from."""


class LakeTable:
    """A table as this command knows it: commits of others are not seen."""

    def __init__(self, tables: Storage, name: str, schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
        self.name = name
        self.storage = tables.below(name)
        self._partition_by = list(partition_by)
        self._arrow_schema, self._schema = schema, Schema.from_arrow(schema)
        self._delta = opened(self.storage)
        if self._delta is not None:
            self._check(self._delta)

    def _check(self, delta: DeltaTable) -> None:
        if delta.schema() != self._schema:
            raise PipelineFault(
                f"{self.storage.url}: the table has other columns than this version writes: it was made by another "
                "version, or changed by hand. Make the tables again, in an empty folder"
            )
        ours = delta.transaction_version(APPLICATION)
        if ours is None or any(self._is_changed_by(version) for version in range(ours + 1, delta.version() + 1)):
            raise PipelineFault(
                f"{self.storage.url}: version {delta.version()} of the table was written by another program. Delete "
                "the table's folder, and it is made again; if it is `events`, make all tables again, in an empty folder"
            )

    def _is_changed_by(self, version: int) -> bool:
        with suppress(FileNotFoundError):  # the log is cleaned up after 30 days
            return bool(self.changes(version))
        return False

    def changes(self, version: int) -> list[dict[str, Any]]:
        """The files that a version added and removed; raises FileNotFoundError if its log is gone.

        Merging small files does not change data.
        """
        log = self.storage.read(f"_delta_log/{version:020d}.json").splitlines()
        found = [change for action in map(json.loads, log) for change in (action.get("add"), action.get("remove"))]
        return [change for change in found if change is not None and change["dataChange"]]

    def changed_hours(self, since: int | None) -> list[str]:
        """The hours of `events` that have changed after a version; all hours if its log is gone."""
        if since is not None:
            with suppress(FileNotFoundError):
                found = [change for version in range(since + 1, self.version + 1) for change in self.changes(version)]
                return sorted({hour_of(change["partitionValues"]) for change in found})
        return sorted({file.hour for file in self.files()})

    @property
    def version(self) -> int:
        """-1 if there is no version yet."""
        return -1 if self._delta is None else self._delta.version()

    @property
    def derived_from(self) -> int | None:
        """The version of `events` that the table was last derived from."""
        return None if self._delta is None else self._delta.transaction_version(SOURCE)

    def expect(self, version: int) -> None:
        """Raise a fault if this command does not know a version that another table is derived from."""
        if version <= self.version:
            return
        there = opened(self.storage)
        if there is not None and there.version() >= version:
            raise _busy(self.storage)
        raise PipelineFault(
            f"{self.storage.url}: there is no version {version}, which other tables are derived from. Make the tables "
            "again, in an empty folder"
        )

    def last_commit(self) -> float:
        """The time of the last version, in seconds since 1970."""
        assert self._delta is not None
        return float(self._delta.history(1)[0]["timestamp"]) / 1000

    def files(self) -> list[DataFile]:
        if self._delta is None:
            return []
        wanted = ["path", "size_bytes", "num_records", *(f"partition.{name}" for name in self._partition_by)]
        columns = arrow(self._delta.get_add_actions(flatten=True)).select(wanted).to_pydict().values()
        return [
            DataFile(path, size, rows, dict(zip(self._partition_by, map(str, partition), strict=True)))
            for path, size, rows, *partition in zip(*columns, strict=True)
        ]

    def rows(self) -> pa.Table:
        """All rows, one file after the other."""
        paths = [file.path for file in self.files()]
        return self.storage.parquet(paths) if paths else self._arrow_schema.empty_table()

    def commit(self, add: Iterable[DataFile], remove: Iterable[DataFile] = (), source: int | None = None) -> None:
        """Commit a new version. Raises Busy if there is already one that this command has not seen."""
        adds, now = list(add), int(time.time() * 1000)
        self._check_files(adds)
        transactions = [Transaction(APPLICATION, self.version + 1, now)]
        if source is not None:
            transactions.append(Transaction(SOURCE, source, now))
        # A retry would commit on top of a version that this command has not read.
        properties = CommitProperties(max_commit_retries=0, app_transactions=transactions)
        actions = [
            AddAction(one.path, one.size, dict(one.partition), now, True, json.dumps({"numRecords": one.rows}))
            for one in adds
        ]
        removes = [RemoveAction(one.path, True, now, one.size, dict(one.partition)) for one in remove]
        try:
            if self._delta is None:
                create_table_with_add_actions(
                    self.storage.url, self._schema, actions, "error", self._partition_by or None,
                    storage_options=self.storage.for_delta, commit_properties=properties,
                )  # fmt: skip
            else:
                self._delta.create_write_transaction(
                    [*removes, *actions], "append", self._schema, self._partition_by or None,
                    commit_properties=properties,
                )  # fmt: skip
        except (DeltaError, OSError) as error:
            raise fault_of(error, self.storage, self.version, "written") from None
        self._delta = opened(self.storage)
        assert self._delta is not None

    def _check_files(self, adds: Sequence[DataFile]) -> None:
        """delta-rs does not check this, and a version with a missing file cannot be read."""
        for one in adds:
            if self.storage.size(one.path) != one.size:
                raise PipelineFault(f"{self.storage.url}/{one.path}: is not as it was written; nothing is committed")


def fault_of(error: Exception, storage: Storage, version: int, verb: str) -> PipelineFault:
    """Why a commit on top of a version has failed."""
    there = opened(storage)
    if there is not None and there.version() > version:
        return _busy(storage)
    return PipelineFault(f"{storage.url}: cannot be {verb}: {words(error)}")


def _busy(storage: Storage) -> Busy:
    return Busy(
        f"{storage.url}: another command has committed to these tables meanwhile; this one has not. "
        "Nothing is lost: run it again"
    )


def opened(storage: Storage) -> DeltaTable | None:
    """None if there is no such table."""
    if storage.is_local and _REFUSED.search(storage.url):
        raise PipelineFault(f"{storage.url}: Delta tables cannot be in a folder that has '[', ']' or '%' in its name")
    try:
        return DeltaTable(storage.url, storage_options=storage.for_delta)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise PipelineFault(f"{storage.url}: the table cannot be read: {words(error)}") from None


def arrow(stream: object) -> pa.Table:
    """A result of delta-rs as a pyarrow table. `pa.table` would import pandas, which takes a second."""
    return pa.RecordBatchReader.from_stream(stream).read_all()


# delta-rs prints its chain of causes as a tree, in colour, with the XML of a store's answer.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BRANCH = re.compile(r"\s*\n\s*↳?\s*")
_XML = re.compile(r"<\?xml.*<Message>(.*)</Message>.*", re.DOTALL)


def words(error: Exception) -> str:
    """An error of delta-rs in one line."""
    return _BRANCH.sub(": ", _XML.sub(r"\1", _COLOUR.sub("", str(error))).strip()) or type(error).__name__
