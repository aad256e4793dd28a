"""What a table is: its columns with their meaning, and the pure functions that make it.

`part` makes the rows of whole hours from their events. A table with a time of its own is made of that alone. A table
without one has rows of all hours together: `part` gives each hour's share, `merge` makes one share of several, over
days and then over all, and `finish` makes the table of it. A share has the column `span`: the hour, the day, or `all`.

Several tables can be made of one `source`, which has the events counted by all that they ask for: whoever makes many
tables makes it once, and gives it to `of`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

Make = Callable[[DataFrame], DataFrame]
Span = Literal["hour", "day", "all"]

SPAN = "span"

STRING, COUNT, TIME, DAY, NUMBER = T.StringType(), T.LongType(), T.TimestampType(), T.DateType(), T.DoubleType()
STRINGS = T.ArrayType(STRING)


@dataclass(frozen=True, slots=True)
class Field:
    """One column."""

    name: str
    type: T.DataType
    meaning: str


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
    finish: Make | None = None
    span: Span = "hour"
    """What one of its files holds."""
    source: Make | None = None

    def part(self, events: DataFrame) -> DataFrame:
        return self.of(events if self.source is None else self.source(events))

    @property
    def schema(self) -> T.StructType:
        return T.StructType([T.StructField(field.name, field.type) for field in self.fields])

    def exactly(self, made: DataFrame) -> DataFrame:
        """The columns as they are promised, in their order and of their types."""
        return made.select([made[field.name].cast(field.type).alias(field.name) for field in self.fields])
