"""Addresses missing from the address book, answers that leak them, and clients that name listeners themselves."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.sources import each_event
from pulsar_ingress_pipeline.tables.table import COUNT, STRING, Field, Table

# How pulsar_ingress_proxy.syntax.authorities reads a Location, as far as addresses can be told apart by it.
_URL = r"^(?i:(https?|pulsar(?:\+ssl)?))://([^/?#]*)"
AUTHORITY = r"^(\[[0-9A-Fa-f:.]+\]|[^:@\[\]\s\p{Cntrl}]+?)\.?(?::([0-9]*))?$"
_PORTS = {"http": "80", "https": "443", "pulsar": "6650", "pulsar+ssl": "6651"}


def address_of(url: Column) -> Column:
    """`host:port` of a broker's URL in lower case, with the default port of its scheme; null if it is not a URL."""
    scheme, authority = F.lower(F.regexp_extract(url, _URL, 1)), F.regexp_extract(url, _URL, 2)
    host, port = F.lower(F.regexp_extract(authority, AUTHORITY, 1)), F.regexp_extract(authority, AUTHORITY, 2)
    usual = F.coalesce(*(F.when(scheme == name, F.lit(port_)) for name, port_ in _PORTS.items()))
    whole = F.concat(host, F.lit(":"), F.when(port == "", usual).otherwise(F.regexp_replace(port, "^0+(?=.)", "")))
    return F.when(host != "", whole)


def _leaked_address() -> Column:
    """The event does not have the address in an answer's body."""
    is_redirect = F.expr("leak = 'location' or (leak = 'binary' and redirect_action = 'passed')")
    return F.when(is_redirect, address_of(F.col("redirect_from")))


TABLES = (
    Table(
        "unmapped_addresses",
        "Addresses that brokers redirect to and that the address book lacks, in requests of all kinds.",
        (
            col.CLIENTS_LISTENER,
            Field(
                "address", STRING, "host:port of the broker's Location or binary redirect; null if it is not a URL",
                lambda: address_of(F.col("redirect_from")),
            ),
        ),
        (Field("redirects", COUNT, "redirects to it", "sum(requests)"), *col.SEEN),
        each_event,
        "redirect_from is not null and redirect_to is null",
    ),
    Table(
        "leaks",
        "Answers, to requests of all kinds, with an address that is not on the client's listener.",
        (
            col.INGRESS,
            col.CLIENTS_LISTENER,
            Field("found_in", STRING, "where the address was: location, body or binary", "leak"),
            Field("address", STRING, "host:port, of a redirect; null: not known", _leaked_address),
            col.USER_AGENT,
        ),
        (Field("leaks", COUNT, "answers with such an address", "sum(requests)"), *col.SEEN),
        each_event,
        "leak is not null",
    ),
    Table(
        "client_named",
        "Clients that name a listener themselves, and so would notice if names were no longer honoured.",
        (col.USER_AGENT, col.TENANT, col.NAMED),
        (Field("lookups", COUNT, "lookups that named it", "sum(requests)"),),
        each_event,
        f"{col.LOOKUP} and client_named is not null",
    ),
)  # fmt: skip
