"""Addresses missing from the address book, answers that leak them, and clients that name listeners themselves."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.fields import COUNT, STRING, Field
from pulsar_ingress_pipeline.tables.sources import is_lookup, span_of, summed, tally
from pulsar_ingress_pipeline.tables.table import Table

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
    unmapped = events.where(F.col("redirect_from").isNotNull() & F.col("redirect_to").isNull())
    address = address_of(F.col("redirect_from")).alias("address")
    return unmapped.groupBy(span_of("time"), "listener", address).agg(*tally("redirects"))


def leaks(events: DataFrame) -> DataFrame:
    """Each hour's answers that carried an address off the listener. That of an answer's body is not in the event."""
    is_redirect = (F.col("leak") == "location") | ((F.col("leak") == "binary") & (F.col("redirect_action") == "passed"))
    address = F.when(is_redirect, address_of(F.col("redirect_from"))).alias("address")
    keys = ("ingress", "listener", F.col("leak").alias("found_in"), address, "user_agent")
    return events.where(F.col("leak").isNotNull()).groupBy(span_of("time"), *keys).agg(*tally("leaks"))


def client_named(events: DataFrame) -> DataFrame:
    """Each hour's lookups that came with a listener's name."""
    named = events.where(is_lookup() & F.col("client_named").isNotNull())
    keys = ("user_agent", "tenant", F.col("client_named").alias("listener"))
    return named.groupBy(span_of("time"), *keys).agg(F.count(F.lit(1)).alias("lookups"))


TABLES = (
    Table(
        "unmapped_addresses",
        "Addresses that brokers redirect to and that the address book lacks.",
        "listener and address of unmapped redirects, of all kinds of requests",
        (
            col.CLIENTS_LISTENER,
            Field("address", STRING, "host:port of the broker's Location or binary redirect; null where it is no URL"),
            Field("redirects", COUNT, "redirects to it"),
            *col.SEEN,
        ),
        unmapped_addresses,
        summed("listener", "address"),
    ),
    Table(
        "leaks",
        "Answers that told clients an address which is not on their listener.",
        "ingress, listener, place, address and user agent of leaks, of all kinds of requests",
        (
            col.INGRESS,
            col.CLIENTS_LISTENER,
            Field("found_in", STRING, "where the address stood: location, body or binary"),
            Field("address", STRING, "host:port, of a redirect; null: not known"),
            col.USER_AGENT,
            Field("leaks", COUNT, "answers with such an address"),
            *col.SEEN,
        ),
        leaks,
        summed("ingress", "listener", "found_in", "address", "user_agent"),
    ),
    Table(
        "client_named",
        "Clients that name a listener themselves, and so would notice if names were no longer honoured.",
        "user agent, tenant and listener named of lookups",
        (col.USER_AGENT, col.TENANT, col.NAMED, Field("lookups", COUNT, "lookups that named it")),
        client_named,
        summed("user_agent", "tenant", "listener"),
    ),
)
