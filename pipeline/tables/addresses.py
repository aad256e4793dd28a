"""Addresses that the address book lacks, and clients that name listeners themselves."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.hours import hour_of
from pipeline.tables.listeners import FIRST, LAST, is_lookup
from pipeline.tables.table import COUNT, SPAN, STRING, Field, Table

# As proxy.authorities reads a Location; only what it can be told apart by is looked at.
_URL = r"^(?i:(https?))://([^/?#]*)"
_AUTHORITY = r"^(\[[0-9A-Fa-f:.]+\]|[^:@\[\]]+?)\.?(?::([0-9]*))?$"


def address_of(url: Column) -> Column:
    """`host:port` of a URL, lower case, the port of its scheme filled in; null where it is no http URL."""
    scheme, authority = F.lower(F.regexp_extract(url, _URL, 1)), F.regexp_extract(url, _URL, 2)
    host, port = F.lower(F.regexp_extract(authority, _AUTHORITY, 1)), F.regexp_extract(authority, _AUTHORITY, 2)
    usual = F.when(scheme == "https", F.lit("443")).otherwise(F.lit("80"))
    whole = F.concat(host, F.lit(":"), F.when(port == "", usual).otherwise(F.regexp_replace(port, "^0+(?=.)", "")))
    return F.when(host != "", whole)


def unmapped_addresses(events: DataFrame) -> DataFrame:
    """Each hour's redirects to addresses that the address book had no answer for."""
    return (
        events.where(F.col("redirect_from").isNotNull() & F.col("redirect_to").isNull())
        .groupBy(hour_of(F.col("time")).alias(SPAN), "listener", address_of(F.col("redirect_from")).alias("address"))
        .agg(F.count(F.lit(1)).alias("redirects"), F.min("time").alias("first_seen"), F.max("time").alias("last_seen"))
    )


def merge_unmapped(parts: DataFrame) -> DataFrame:
    return parts.groupBy(SPAN, "listener", "address").agg(
        F.sum("redirects").alias("redirects"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
    )


def client_named(events: DataFrame) -> DataFrame:
    """Each hour's lookups that came with a listener's name."""
    return (
        events.where(is_lookup() & F.col("client_named").isNotNull())
        .groupBy(hour_of(F.col("time")).alias(SPAN), "user_agent", "tenant", F.col("client_named").alias("listener"))
        .agg(F.count(F.lit(1)).alias("lookups"))
    )


def merge_client_named(parts: DataFrame) -> DataFrame:
    return parts.groupBy(SPAN, "user_agent", "tenant", "listener").agg(F.sum("lookups").alias("lookups"))


TABLES = (
    Table(
        "unmapped_addresses",
        "Addresses that brokers redirect to and the address book has no answer for: lines that it lacks.",
        "listener and address of unmapped redirects, of all kinds of requests",
        (
            Field("listener", STRING, "the listener that the client was on"),
            Field("address", STRING, "host:port of the broker's Location; null where it is no http URL"),
            Field("redirects", COUNT, "redirects to it"),
            FIRST,
            LAST,
        ),
        unmapped_addresses,
        merge_unmapped,
        span="all",
    ),
    Table(
        "client_named",
        "Clients that name a listener themselves, and so would notice if names were no longer honoured.",
        "user agent, tenant and listener named of lookups",
        (
            Field("user_agent", STRING, "the first 256 characters"),
            Field("tenant", STRING, "a single name"),
            Field("listener", STRING, "the name that the client sent"),
            Field("lookups", COUNT, "lookups that named it"),
        ),
        client_named,
        merge_client_named,
        span="all",
    ),
)
