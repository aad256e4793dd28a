"""The hosts that clients request, and those among them that no ingress has."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.addresses import AUTHORITY
from pulsar_ingress_pipeline.tables.sources import counted
from pulsar_ingress_pipeline.tables.table import COUNT, LATER, STRING, TIME, Field, Table, requests_where


def _host() -> Column:
    """A host as ingresses match it: lower case, without port and trailing dot. Anything else stays as it is."""
    authority = F.coalesce("host", "server_name")
    host = F.lower(F.regexp_extract(authority, AUTHORITY, 1))
    is_bare = F.translate(authority, ":@[]", "") == F.rtrim(authority, F.lit("."))
    return F.when(is_bare, F.lower(authority)).when(host != "", host).otherwise(authority)


def finish_drift(merged: DataFrame) -> DataFrame:
    """The hosts whose newest request had no ingress."""
    is_open = F.expr("host is not null and requests > 0 and (held is null or last_seen > held.at)")
    state = F.expr("if(held is null, 'seen-not-configured', 'no-longer-configured')")
    columns = {"state": state, "ingress": F.col("held.ingress"), "configured_until": F.col("held.at")}
    return merged.where(is_open).withColumns(columns)


HOST = Field("host", STRING, "lower case, without port; binary: the TLS server name; an invalid one as sent", _host)
_OUTSIDE = "ingress is null"
_HELD = T.StructType([T.StructField("at", TIME), T.StructField("ingress", STRING)])

TABLES = (
    Table(
        "hosts",
        "Hosts that clients request, and the ingress of each.",
        (HOST, col.INGRESS, col.PROTOCOL),
        (
            Field("requests", COUNT, "requests of all kinds", "sum(requests)"),
            Field("lookups", COUNT, "lookups among them", requests_where(col.LOOKUP)),
            Field("misses", COUNT, "lookups that had no listener or were refused", requests_where(col.MISS)),
            *col.SEEN,
        ),
        counted,
    ),
    Table(
        "drift",
        "Hosts that clients request and no ingress has, by the newest request. Which hosts of a config nobody requests "
        "is not in events: `report --config` and `suggest --config` show that.",
        (HOST,),
        (
            Field("state", STRING, "seen-not-configured: it never had an ingress; no-longer-configured: it had", LATER),
            Field("ingress", STRING, "the ingress that it had; null: none ever", LATER),
            Field("configured_until", TIME, "time of the last request that had it", LATER),
            Field("requests", COUNT, "requests of all kinds without an ingress", requests_where(_OUTSIDE)),
            Field("lookups", COUNT, "lookups among them", requests_where(f"{_OUTSIDE} and {col.LOOKUP}")),
            Field("first_seen", TIME, "time of the first without an ingress", f"min(if({_OUTSIDE}, first_seen, null))"),
            Field("last_seen", TIME, "time of the last", f"max(if({_OUTSIDE}, last_seen, null))"),
        ),
        counted,
        # On a socket that has a listener of its own the host decides nothing, so such requests say nothing about it.
        "ingress is not null or not rule <=> 'bind'",
        only_in_shares=(
            Field(
                "held", _HELD, "the last request that had an ingress",
                f"max(if({_OUTSIDE}, null, struct(last_seen as at, ingress)))",
            ),
        ),
        finish=finish_drift,
    ),
)  # fmt: skip
