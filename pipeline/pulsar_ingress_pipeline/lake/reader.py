"""Delta tables as Arrow tables. Neither Spark nor Java is needed, so commands that only read start at once."""

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake.exceptions import DeltaError

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake import layout
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import arrow, opened, words


class Lake:
    """A folder of Delta tables."""

    def __init__(self, url: str) -> None:
        self._tables = Storage.of(url)
        self.url = self._tables.url

    def has(self, name: str) -> bool:
        return opened(self._tables.below(name), name) is not None

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The newest version of a table; a fault if there is no such table."""
        url = f"{self.url}/{name}"
        found = opened(self._tables.below(name), name)
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
        layout.check(self._tables)


def _plain(kind: pa.DataType) -> pa.DataType:
    """delta-rs reads strings as views, which few of Arrow's functions take."""
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.list_(_plain(kind.value_type)) if pa.types.is_list(kind) else kind
