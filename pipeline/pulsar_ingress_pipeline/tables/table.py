"""What a table is: its columns with their meaning, and how Spark computes them.

Most tables count events: they group the rows of a source by their keys, and each other column is an aggregate in SQL.
A table with `span="hour"` has a time of its own, so the rows of an hour are final. Any other table has one row for all
hours: `rows` gives each hour's share, `merge` merges shares into those of a day and then of all time, and `finish`
makes the table of them. A share has the column `span`: the hour, the day, or `all`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables.sources import window_of

Make = Callable[[DataFrame], DataFrame]

SPAN = "span"
_MERGED_BY = {"first_seen": F.min, "last_seen": F.max, "held": F.max}
"""How columns of shares are merged that are not counts."""

STRING, COUNT, TIME, DAY, NUMBER = T.StringType(), T.LongType(), T.TimestampType(), T.DateType(), T.DoubleType()


LATER = ""
"""Instead of SQL: `finish` computes the column."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column: the value of a key, or an aggregate over rows of the source."""

    name: str
    type: T.DataType
    meaning: str
    sql: str | Callable[[], Column] | None = None
    """None: the column of this name in the source, or in what `make_rows` gives."""

    @property
    def column(self) -> Column:
        sql = self.sql or self.name
        return (F.expr(sql) if isinstance(sql, str) else sql()).alias(self.name)


def span_of(hour: str | Column) -> Column:
    """The span of an hour's share: `2026-11-16T09`, in UTC."""
    return F.date_format(hour, "yyyy-MM-dd'T'HH").alias(SPAN)


@dataclass(frozen=True, slots=True)
class Table:
    """A derived table."""

    name: str
    meaning: str
    keys: tuple[Field, ...]
    """There is one row for each combination of them."""
    values: tuple[Field, ...]
    source: Make
    """Gives the rows that are counted. Tables with the same source share its result."""
    where: str | None = None
    """Which rows of the source are counted, as SQL."""
    span: Literal["hour", "day", "all"] = "all"
    """What one row of the table covers. A table of hours has files of a day."""
    only_in_shares: tuple[Field, ...] = ()
    """Columns that shares have and the table does not."""
    make_rows: Make | None = None
    make_merged: Make | None = None
    finish: Make = lambda merged: merged

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.keys + self.values

    @property
    def schema(self) -> T.StructType:
        return _schema(self.fields)

    @property
    def share_schema(self) -> T.StructType:
        return _schema((Field(SPAN, STRING, "hour, day or all"), *self._keys, *self._values))

    @property
    def _keys(self) -> list[Field]:
        return [field for field in self.keys if field.sql != LATER]

    @property
    def _values(self) -> list[Field]:
        return [field for field in (*self.values, *self.only_in_shares) if field.sql != LATER]

    def rows(self, source: DataFrame) -> DataFrame:
        """The rows of whole hours, or their shares."""
        if self.make_rows is not None:
            return self.make_rows(source)
        keys, values = [field.column for field in self._keys], [field.column for field in self._values]
        chosen = source if self.where is None else source.where(self.where)
        if self.span == "hour":
            return chosen.groupBy(*keys).agg(*values)
        hour = F.expr(window_of("window_start", minutes=60)).alias("of_hour")
        shares = chosen.groupBy(hour, *keys).agg(*values)
        return shares.select(span_of("of_hour"), *shares.columns[1:])

    def merge(self, shares: DataFrame) -> DataFrame:
        """One share for each span and key: counts are added up."""
        if self.make_merged is not None:
            return self.make_merged(shares)
        merged = [_MERGED_BY.get(field.name, F.sum)(field.name).alias(field.name) for field in self._values]
        return shares.groupBy(SPAN, *(field.name for field in self._keys)).agg(*merged)


def _schema(fields: Iterable[Field]) -> T.StructType:
    return T.StructType([T.StructField(field.name, field.type) for field in fields])


LOOKUP, HIT = "kind = 'lookup'", "kind = 'lookup' and hit"
MISS = "kind = 'lookup' and not hit"


def requests_where(condition: str) -> str:
    """How many requests fulfil a condition, as SQL."""
    return f"sum(if({condition}, requests, 0))"


WINDOW = Field("window_start", TIME, "start of the five minutes, UTC")
HOUR = Field("window_start", TIME, "start of the hour, UTC", window_of("window_start", minutes=60))
DATE = Field("date", DAY, "the day, UTC", "to_date(window_start)")
SIDECAR = Field("sidecar", STRING, "the sidecar that decided")
INGRESS = Field("ingress", STRING, "the ingress it came through; null: none")
LISTENER = Field("listener", STRING, "the listener selected; null: none")
CLIENTS_LISTENER = Field("listener", STRING, "the listener that the client was on")
NAMED = Field("listener", STRING, "the name that the client sent", "client_named")
BROKER = Field("broker", STRING, "the broker that answered, or that a lookup's answer names; null: none")
RULE = Field("rule", STRING, "rule that decided: query, header, bind, ingress, default or none")
PROTOCOL = Field("protocol", STRING, "http or binary")
KIND = Field("kind", STRING, "lookup, admin or other")
ASKED = Field("host", STRING, "the requested Host, as in the event")
REASON = Field("reason", STRING, "the miss reason, as in the metric", "miss_reason")
TENANT = Field("tenant", STRING, "a single name")
USER_AGENT = Field("user_agent", STRING, "the first 256 characters")
REQUESTS = Field("requests", COUNT, "requests, all that have an event", "sum(requests)")
LOOKUPS = Field("lookups", COUNT, "lookups, hits and misses together", requests_where(LOOKUP))
HITS = Field("hits", COUNT, "lookups that had a listener and were served by it", requests_where(HIT))
MISSES = Field("misses", COUNT, "lookups that were not", requests_where(MISS))
SEEN = (
    Field("first_seen", TIME, "time of the first", "min(first_seen)"),
    Field("last_seen", TIME, "time of the last", "max(last_seen)"),
)
