"""Each table from a few rows that can be counted by hand."""

import functools
import re
from datetime import datetime
from typing import Any

from made_events import MISS, at, event, frame
from made_tables import TABLES, expect, made
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.schema import EVENTS, snake
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_pipeline.tables.addresses import address_of
from pulsar_ingress_proxy.observability.event_schema import NAMES
from pulsar_ingress_proxy.syntax.authorities import parse_location

# The contract, to the letter.
CONTRACT = {
    "listener_windows": "window_start ingress listener rule protocol hits misses",
    "misses": "ingress host reason protocol misses first_seen last_seen",
    "namespaces": "date tenant namespace lookups hits misses redirects",
    "latency_windows": "window_start ingress kind requests p50_ms p95_ms p99_ms",
    "unmapped_addresses": "listener address redirects first_seen last_seen",
    "owner_changes": "topic lookups changes brokers",
    "client_named": "user_agent tenant listener lookups",
}


def test_columns_are_those_of_the_contract() -> None:
    assert {name: " ".join(TABLES[name].schema.names) for name in CONTRACT} == CONTRACT
    assert len(TABLES) == len(DERIVED)
    assert EVENTS.names == [re.sub("([A-Z])", r"_\1", name).lower() for name in NAMES]
    assert snake("redirectFrom") == "redirect_from"


def test_listener_windows_count_lookups_alone(spark: SparkSession) -> None:
    events = [
        event(1, 0), event(2, 299.999999), event(3, 300, rule="query"), event(4, 10, kind="admin"),
        event(5, 20, **MISS), event(6, 21, **MISS | {"ingress": "public"}), event(7, -0.000001, protocol="binary"),
        event(8, 30, hit=None),
    ]  # fmt: skip
    expect(spark, "listener_windows", events, [
        (at(0), "public", "external", "ingress", "http", 2, 1),
        (at(300), "public", "external", "query", "http", 1, 0),
        (at(0), None, None, "none", "http", 0, 1),
        (at(0), "public", None, "none", "http", 0, 1),
        (at(-300), "public", "external", "ingress", "binary", 1, 0),
    ])  # fmt: skip


def test_misses_are_summed_over_all_time(spark: SparkSession) -> None:
    other = MISS | {"host": None, "missReason": "unknown-listener"}
    events = [
        event(1, 0), event(2, 5, **MISS), event(3, 90_000, **MISS), event(4, -7200, **MISS), event(5, 1, **other),
        event(6, 2, **MISS | {"kind": "other"}),
    ]  # fmt: skip
    expect(spark, "misses", events, [
        (None, "pulsar.example.com", "no-rule", "http", 3, at(-7200), at(90_000)),
        (None, None, "unknown-listener", "http", 1, at(1), at(1)),
    ])  # fmt: skip


def test_namespaces_count_lookups_by_day(spark: SparkSession) -> None:
    redirect = {"redirectFrom": "http://broker-1:8080/"}
    events = [
        event(1, 0), event(2, 3600, **redirect), event(3, 7200, **MISS), event(4, 86_400),
        event(5, 0, tenant=None, namespace=None), event(6, 0, kind="admin", **redirect),
    ]  # fmt: skip
    day, next_day = datetime(2026, 11, 16).date(), datetime(2026, 11, 17).date()
    expect(spark, "namespaces", events, [
        (day, "acme", "orders", 3, 2, 1, 1),
        (next_day, "acme", "orders", 1, 1, 0, 0),
        (day, None, None, 1, 1, 0, 0),
    ])  # fmt: skip


def test_latency_windows_have_quantiles_for_each_request_kind(spark: SparkSession) -> None:
    events = [event(number, number, durationMs=float(number)) for number in range(1, 101)]
    events += [event(1000, 0, kind="admin", durationMs=7.0, ingress=None)]
    expect(spark, "latency_windows", events, [
        (at(0), "public", "lookup", 100, 50.0, 95.0, 99.0),
        (at(0), None, "admin", 1, 7.0, 7.0, 7.0),
    ])  # fmt: skip


def test_unmapped_addresses_count_redirects_without_a_mapped_target(spark: SparkSession) -> None:
    inside = "http://Broker-7.Pulsar.svc:8080/lookup/v2/topic/a?b=http://x/"
    events = [
        event(1, 0, redirectFrom=inside, redirectTo="https://broker-7.pulsar.example.com/"),
        event(2, 1, redirectFrom=inside), event(3, 4000, redirectFrom=inside),
        event(4, 2, redirectFrom=inside, kind="admin"),
        event(5, 3, redirectFrom="https://other.example.org/x", listener=None), event(6, 3, redirectFrom="gopher:"),
        event(7, 3, redirectFrom="pulsar://Broker-9:6650", protocol="binary"),
        event(8, 4, redirectFrom="pulsar+ssl://broker-9", protocol="binary"),
    ]  # fmt: skip
    expect(spark, "unmapped_addresses", events, [
        ("external", "broker-7.pulsar.svc:8080", 3, at(1), at(4000)),
        (None, "other.example.org:443", 1, at(3), at(3)),
        ("external", None, 1, at(3), at(3)),
        ("external", "broker-9:6650", 1, at(3), at(3)),
        ("external", "broker-9:6651", 1, at(4), at(4)),
    ])  # fmt: skip


LOCATIONS = [
    "http://broker-0:8080/a", "https://broker-0", "HTTP://Broker-0.:080?x=/", "http://[::1]:8080/", "http://[::1]",
    "https://broker-0:/", "http://broker-0:8080#f", "/relative", "", "http://", "http://user@host/", "http://a:b/", "ftp://x/",
    "http://10.0.0.1/", "http://evil\nkey/x", "http://a b/", "http://a\x00b/",
]  # fmt: skip


def test_addresses_in_tables_are_parsed_as_the_sidecar_parses_locations(spark: SparkSession) -> None:
    found = spark.createDataFrame([(location,) for location in LOCATIONS], "url string").select(
        address_of(F.col("url"))
    )
    expected = [parsed.address if (parsed := parse_location(location)) else None for location in LOCATIONS]
    assert [address for (address,) in found.collect()] == expected


def test_owner_changes_are_counted_in_time_order_across_hours_and_days(spark: SparkSession) -> None:
    def owned(number: int, seconds: float, broker: str | None, topic: str | None = "t") -> dict[str, Any]:
        return event(number, seconds, broker=broker, topic=topic)

    events = [
        owned(1, 0, "a"), owned(2, 10, "b"), owned(3, 5, "a"), owned(4, 20, None), owned(5, 30, "b"),
        owned(6, 3700, "b"), owned(7, 3710, "a"), owned(8, 90_000, "b"), owned(9, 90_010, "b"),
        owned(10, 0, None, "never"), owned(11, 9000, None, "never"),
        owned(12, 0, "a", "calm"), owned(13, 9000, "a", "calm"),
        owned(14, 0, "a", "moved"), owned(15, 4000, None, "moved"), owned(16, 9000, "b", "moved"),
        owned(17, 0, "a", None),
        event(18, 6, topic="t", broker="z", kind="admin"),
    ]  # fmt: skip
    expect(spark, "owner_changes", events, [
        ("t", 9, 3, 2), ("never", 2, 0, 0), ("calm", 2, 0, 1), ("moved", 3, 1, 2),
    ])  # fmt: skip


def test_client_named_counts_lookups_by_the_listener_that_clients_named(spark: SparkSession) -> None:
    named: dict[str, Any] = {"clientNamed": "partner", "clientNamedBy": "query"}
    events = [
        event(1), event(2, **named), event(3, 4000, **named), event(4, **named, userAgent=None, tenant=None),
        event(5, kind="admin", **named), event(6, **MISS | named),
    ]  # fmt: skip
    expect(spark, "client_named", events, [
        ("Pulsar-Java-v4.0.1", "acme", "partner", 3), (None, None, "partner", 1),
    ])  # fmt: skip


def test_no_events_make_no_rows(spark: SparkSession) -> None:
    """Of any table; all of them in one query, whose rows would be of one column."""
    none = frame(spark, [])
    shown = [made(table, none).select(F.lit(table.name).alias("table")) for table in DERIVED]
    assert functools.reduce(lambda one, other: one.union(other), shown).collect() == []
