"""From event files to rows: lines are read as text and parsed by the explicit schema; what is no event is put aside.

A line is no event where its bytes are no UTF-8, where it is no JSON object or more than one, where a value has another
type than the schema's, or where `id` or `time` is missing. It goes to `quarantine` with the reason. A field that the
schema does not have is dropped, and an event of a newer schema is read as far as it is known.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pipeline.schema import JSON, snake
from pipeline.storage import encoded, literal, shown
from proxy.observe.schema import SCHEMA_VERSION

_UNREAD = "_unread"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _UNREAD,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_BITS = 32768
"""Of the picture of files that have bad lines: as many as one bitmap of Spark's holds."""

# RFC 3339 5.6; Spark's own cast would take `2026` and `12:30` too.
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
_ESCAPED = r"\\."
_STRINGS = r'"(?:[^"\\]|\\.)*+"'

QUARANTINE = T.StructType([T.StructField(name, T.StringType()) for name in ("file", "line_text", "reason")])


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen while the events were written."""

    lines: int
    bad: int
    newer: int
    """Events of a schema that is newer than this pipeline's."""
    files_with_bad: bytes | None

    def has_bad(self, place: int) -> bool:
        return self.files_with_bad is not None and bool(self.files_with_bad[place // 8] & 1 << place % 8)


def lines(spark: SparkSession, files: Sequence[str], is_broken: bool = False) -> DataFrame:
    """Lines with their file, as in a URL: %20 for a space. Of a broken file those before the break, and no error."""
    reader = spark.read.option("lineSep", "\n").option("ignoreCorruptFiles", str(is_broken).lower())
    return reader.text([literal(file) for file in files]).select("value", F.col("_metadata.file_path").alias("file"))


def parsed(lines: DataFrame) -> DataFrame:
    """Each line with its event, and the reason why it is none: empty for a blank line, which is nothing."""
    schema = T.StructType([*JSON.fields, T.StructField(_UNREAD, T.StringType())])
    read = lines.withColumn("event", F.from_json("value", schema, _OPTIONS))
    time = F.when(F.col("event.time").rlike(_TIME), F.col("event.time").try_cast("timestamp"))
    return read.withColumn("at", time).withColumn("reason", _reason())


def _reason() -> Column:
    event = F.col("event")
    return (
        F.when(event.isNull(), F.lit(""))
        .when(~F.is_valid_utf8("value"), F.lit("not UTF-8"))
        .when(event[_UNREAD].isNotNull(), _why_unread())
        .when(_goes_on(), F.lit("more than one JSON object"))
        .when(event["id"].isNull(), F.lit("no id"))
        .when(event["time"].isNull(), F.lit("no time"))
        .when(F.col("at").isNull(), F.lit("time is not RFC 3339"))
        .when(_is_odd(), F.lit("a value of another type than the schema's"))
    )


def _why_unread() -> Column:
    """Spark says only that; an object that can be read without types has a value of a wrong one."""
    is_object = F.ltrim(F.col("value")).startswith("{") & F.try_parse_json("value").isNotNull()
    return F.when(is_object, F.lit("a value of another type than the schema's")).otherwise(F.lit("not a JSON object"))


def _goes_on() -> Column:
    """Whether something follows the object, which Spark does not look at. Most lines have one brace, the last."""
    value = F.col("value")
    suspect = F.octet_length(F.substring_index(value, "}", 1)) < F.octet_length(value) - 1
    return suspect & F.regexp_replace(value, _STRINGS, "").rlike(r"\}\s*[^\s,}\]]")


def _is_odd() -> Column:
    """Whether a text is no JSON string: Spark takes a number, a word or an object for its text.

    Where the line has as many `":"` as it has texts they are strings, which is all that is looked at as a rule.
    """
    names = [field.name for field in JSON.fields if isinstance(field.dataType, T.StringType)]
    value = F.col("value")
    texts = functools.reduce(operator.add, (F.col(f"event.{name}").isNotNull().cast("int") for name in names))
    strings = F.octet_length(value) - F.octet_length(F.replace(value, F.lit('":"'), F.lit('""')))
    stands = rf'"(?:{"|".join(names)})"\s*:\s*[^"n\s]'
    return (strings != texts) & F.regexp_replace(value, _ESCAPED, "").rlike(stands)


def events(parsed: DataFrame) -> DataFrame:
    """The rows of `events` that the lines are."""
    columns = [
        (F.col("at") if field.name == "time" else F.col(f"event.{field.name}")).alias(snake(field.name))
        for field in JSON.fields
    ]
    return parsed.where(F.col("reason").isNull()).select(columns)


def quarantined(parsed: DataFrame) -> DataFrame:
    """The rows of `quarantine` that the lines are; their text is made valid, so that other engines can read it."""
    # A plus is no space in a path.
    file = F.regexp_replace(F.url_decode(F.replace("file", F.lit("+"), F.lit("%2B"))), "^file:/+", "/")
    return parsed.where(F.col("reason") != "").select(
        file.alias("file"), F.make_valid_utf8("value").alias("line_text"), "reason"
    )


def broken_off(spark: SparkSession, files: Sequence[str], reasons: Sequence[str]) -> DataFrame:
    """A row of `quarantine` for what cannot be read of each broken file."""
    rows = [(shown(file), "", reason) for file, reason in zip(files, reasons, strict=True)]
    return spark.createDataFrame(rows, QUARANTINE)


def watched(parsed: DataFrame, observation: Observation) -> DataFrame:
    """The same lines; what they are is counted as they go by, so that no second pass is needed where all are good."""
    is_good, is_bad = F.col("reason").isNull(), F.col("reason") != ""
    return parsed.observe(
        observation,
        F.count(F.lit(1)).alias("lines"),
        F.count_if(is_bad).alias("bad"),
        F.count_if(is_good & (F.col("event.schema") > SCHEMA_VERSION)).alias("newer"),
        F.bitmap_construct_agg(F.when(is_bad, place(F.col("file")))).alias("files"),
    )


def place(file: Column) -> Column:
    """The bit of a file."""
    return F.pmod(F.xxhash64(file), F.lit(_BITS))


def seen(observation: Observation) -> Seen:
    found = observation.get
    files = found["files"]
    return Seen(int(found["lines"]), int(found["bad"]), int(found["newer"]), bytes(files) if files else None)


def with_bad(spark: SparkSession, files: Sequence[str], seen: Seen) -> list[str]:
    """The files that have bad lines, or share their bit with one that has."""
    if not seen.bad:
        return []
    as_urls = [(file, encoded(spark, file)) for file in files]
    places = spark.createDataFrame(as_urls, "file string, url string").select("file", place(F.col("url")))
    return [file for file, bit in places.collect() if seen.has_bad(bit)]
