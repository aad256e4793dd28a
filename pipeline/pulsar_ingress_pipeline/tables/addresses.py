"""Addresses that the address book lacks, answers that leak them, and clients that name listeners themselves."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.hours import hour_of
from pulsar_ingress_pipeline.tables.listeners import FIRST, INGRESS, LAST, seen
from pulsar_ingress_pipeline.tables.sources import is_lookup
from pulsar_ingress_pipeline.tables.table import COUNT, SPAN, STRING, Field, Table

# As pulsar_ingress_proxy.syntax.authorities reads a Location; only what it can be told apart by is looked at.
_URL = r"^(?i:(https?|pulsar(?:\+ssl)?))://([^/?#]*)"
AUTHORITY = r"^(\[[0-9A-Fa-f:.]+\]|[^:@\[\]\s\p{Cntrl}]+?)\.?(?::([0-9]*))?$"
_PORTS = {"http": "80", "https": "443", "pulsar": "6650", "pulsar+ssl": "6651"}


def address_of(url: Column) -> Column:
    """`host:port` of a broker's URL, lower case, the port of its scheme filled in; null where it is none."""
    scheme, authority = F.lower(F.regexp_extract(url, _URL, 1)), F.regexp_extract(url, _URL, 2)
    host, port = F.lower(F.regexp_extract(authority, AUTHORITY, 1)), F.regexp_extract(authority, AUTHORITY, 2)
    usual = F.coalesce(*(F.when(scheme == name, F.lit(port_)) for name, port_ in _PORTS.items()))
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
    return parts.groupBy(SPAN, "listener", "address").agg(F.sum("redirects").alias("redirects"), *seen())


def leaks(events: DataFrame) -> DataFrame:
    """Each hour's answers that carried an address off the listener. That of an answer's body is not in the event."""
    is_redirect = (F.col("leak") == "location") | ((F.col("leak") == "binary") & (F.col("redirect_action") == "passed"))
    address = F.when(is_redirect, address_of(F.col("redirect_from")))
    found_in = F.col("leak").alias("found_in")
    return (
        events.where(F.col("leak").isNotNull())
        .groupBy(
            hour_of(F.col("time")).alias(SPAN), "ingress", "listener", found_in, address.alias("address"), "user_agent"
        )
        .agg(F.count(F.lit(1)).alias("leaks"), F.min("time").alias("first_seen"), F.max("time").alias("last_seen"))
    )


def merge_leaks(parts: DataFrame) -> DataFrame:
    keys = ("ingress", "listener", "found_in", "address", "user_agent")
    return parts.groupBy(SPAN, *keys).agg(F.sum("leaks").alias("leaks"), *seen())


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
            Field(
                "address",
                STRING,
                "host:port of the broker's Location, or of a binary redirect; null where it is no URL",
            ),
            Field("redirects", COUNT, "redirects to it"),
            FIRST,
            LAST,
        ),
        unmapped_addresses,
        merge_unmapped,
        span="all",
    ),
    Table(
        "leaks",
        "Answers that told clients an address which is not on their listener.",
        "ingress, listener, place, address and user agent of leaks, of all kinds of requests",
        (
            INGRESS,
            Field("listener", STRING, "the listener that the client was on"),
            Field("found_in", STRING, "where the address stood: location, body or binary"),
            Field("address", STRING, "host:port, of a redirect; null: not known"),
            Field("user_agent", STRING, "the first 256 characters"),
            Field("leaks", COUNT, "answers with such an address"),
            FIRST,
            LAST,
        ),
        leaks,
        merge_leaks,
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
