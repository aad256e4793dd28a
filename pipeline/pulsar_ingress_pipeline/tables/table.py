"""What a table is: its columns with their meaning, and the pure functions that make it.

`of` makes the rows of whole hours from their events. A table with a time of its own is made of that alone. A table
without one has rows of all hours together: `of` gives each hour's share, `merge` makes one share of several, over
days and then over all, and `finish` makes the table of it. A share has the column `span`: the hour, the day, or `all`.

Several tables can be made of one `source`, which has the events counted by all that they ask for: whoever makes many
tables makes it once, and gives it to `of`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables.fields import Field

Make = Callable[[DataFrame], DataFrame]

SPAN = "span"


@dataclass(frozen=True, slots=True)
class Table:
    """One folder of Parquet files."""

    name: str
    meaning: str
    grain: str
    """What one row stands for."""
    fields: tuple[Field, ...]
    of: Make
    """Makes the rows, or the shares, of whole hours: of their source, or of events where there is none."""
    merge: Make | None = None
    finish: Make = lambda merged: merged
    span: Literal["day", "all"] = "all"
    """What shares are merged to, and one of its files holds. Files of a table without shares hold a day."""
    source: Make | None = None

    @property
    def schema(self) -> T.StructType:
        return T.StructType([T.StructField(field.name, field.type) for field in self.fields])
