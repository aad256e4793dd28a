"""The tables beside the contract's, each from a few rows that can be counted by hand."""

import itertools
import math
from datetime import date, timedelta
from typing import Any

import pytest
from made_events import MISS, START, Event, at, event, frame
from made_tables import TABLES, exactly, expect, made
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables.anomalies import _median
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

DAY = 86_400
GAMMA = 1.01 / 0.99

COLUMNS = {
    "sidecar_windows": "window_start sidecar ingress listener rule protocol hits misses",
    "latency_buckets": "window_start ingress broker kind bucket requests",
    "broker_latency": "window_start ingress broker kind requests p50_ms p95_ms p99_ms",
    "leaks": "ingress listener found_in address user_agent leaks first_seen last_seen",
    "redirect_hops": "window_start listener kind action hops requests",
    "redirect_loops": "listener topic followed_by brokers loops first_seen last_seen",
    "hosts": "host ingress protocol requests lookups misses first_seen last_seen",
    "drift": "host state ingress configured_until requests lookups first_seen last_seen",
    "slo_days": "date ingress lookups good period_lookups period_good budget_left",
    "generations": (
        "sidecar generation first_seen last_seen lookups hits misses redirects leaks hit_ratio hit_ratio_change"
    ),
    "anomalies": "window_start ingress what value usual days score",
}


def rows_of(spark: SparkSession, name: str, events: list[Event]) -> list[Row]:
    return made(TABLES[name], frame(spark, events)).collect()


def test_columns_of_tables_beyond_the_contract_do_not_change() -> None:
    assert {name: " ".join(TABLES[name].schema.names) for name in COLUMNS} == COLUMNS


def test_sidecar_windows_count_each_sidecar_separately(spark: SparkSession) -> None:
    events = [
        event(1),
        event(2, 1, sidecar="gateway-1"),
        event(3, 2, sidecar="gateway-1", **MISS),
        event(4, kind="admin"),
    ]
    expect(spark, "sidecar_windows", events, [
        (at(0), "gateway-0", "public", "external", "ingress", "http", 1, 0),
        (at(0), "gateway-1", "public", "external", "ingress", "http", 1, 0),
        (at(0), "gateway-1", None, None, "none", "http", 0, 1),
    ])  # fmt: skip


def test_latency_bucket_is_within_one_percent_of_its_durations(spark: SparkSession) -> None:
    durations = [0.0, 0.001, 0.01, 0.5, 1.0, 1.5, 1.51, 250.0, 251.0, 3_600_000.0]
    events = [event(number, number, broker=f"b{number}", durationMs=value) for number, value in enumerate(durations)]
    rows = {int(row.broker[1:]): row for row in rows_of(spark, "latency_buckets", events)}
    assert {row.requests for row in rows.values()} == {1}
    for number, value in enumerate(durations):
        middle = 0.99 * rows[number].bucket
        assert rows[number].bucket >= value
        if value >= 0.01:
            assert abs(middle - value) <= 0.01 * value + 1e-12
        steps = math.log(rows[number].bucket) / math.log(GAMMA)
        assert steps == pytest.approx(round(steps), abs=1e-6)
    assert rows[0].bucket == rows[1].bucket < 0.0103


def test_broker_latency_has_hourly_quantiles_within_about_one_percent(spark: SparkSession) -> None:
    events = [event(number, number * 30, durationMs=float(number)) for number in range(1, 101)]
    events += [event(1000, kind="admin", broker=None, durationMs=7.0), event(1001, 3600, durationMs=9.0)]
    events += [event(1002, 5, ingress=None, durationMs=None)]
    rows = {(row.ingress, row.kind, row.window_start): row for row in rows_of(spark, "broker_latency", events)}
    assert {key: row.requests for key, row in rows.items()} == {
        (ingress, kind, at(seconds).replace(tzinfo=None)): requests
        for ingress, kind, seconds, requests in [
            ("public", "lookup", 0, 100), ("public", "admin", 0, 1), ("public", "lookup", 3600, 1),
            (None, "lookup", 0, 1),
        ]
    }  # fmt: skip
    [hour] = [row for row in rows.values() if row.requests == 100]
    assert (hour.p50_ms, hour.p95_ms, hour.p99_ms) == tuple(
        pytest.approx(value, rel=0.0101) for value in (50.5, 95.05, 99.01)
    )
    [unknown] = [row for row in rows.values() if row.ingress is None]
    assert (unknown.p50_ms, unknown.p99_ms) == (None, None)


def test_leaks_are_counted_by_place_address_and_client(spark: SparkSession) -> None:
    inside = {"leak": "location", "redirectFrom": "http://Broker-7.svc:8080/x"}
    events = [
        event(1, 0, **inside), event(2, 90_000, **inside, kind="admin"), event(3, 5, leak="body", userAgent=None),
        event(4, 6, leak="body", userAgent=None, redirectFrom="http://elsewhere/"), event(5),
        event(6, 7, leak="binary", redirectAction="passed", redirectFrom="pulsar://b:6650", userAgent=None),
        event(7, 8, leak="binary", redirectAction="followed", redirectFrom="pulsar://b:6650", userAgent=None),
    ]  # fmt: skip
    expect(spark, "leaks", events, [
        ("public", "external", "location", "broker-7.svc:8080", "Pulsar-Java-v4.0.1", 2, at(0), at(90_000)),
        ("public", "external", "body", None, None, 2, at(5), at(6)),
        ("public", "external", "binary", "b:6650", None, 1, at(7), at(7)),
        ("public", "external", "binary", None, None, 1, at(8), at(8)),
    ])  # fmt: skip


def test_redirect_hops_count_only_redirected_requests(spark: SparkSession) -> None:
    followed: Event = {"redirectAction": "followed", "hops": 2}
    events = [
        event(1), event(2, **followed), event(3, **followed), event(4, **followed | {"hops": 3}),
        event(5, redirectAction="rewritten"), event(6, 300, redirectAction="rewritten", kind="admin", listener=None),
    ]  # fmt: skip
    expect(spark, "redirect_hops", events, [
        (at(0), "external", "lookup", "followed", 2, 2),
        (at(0), "external", "lookup", "followed", 3, 1),
        (at(0), "external", "lookup", "rewritten", 0, 1),
        (at(300), None, "admin", "rewritten", 0, 1),
    ])  # fmt: skip


def sent(number: int, seconds: float, path: str, topic: str = "t", **changes: Any) -> Event:
    """A redirect from one host to another: `a>b`."""
    source, _, target = path.partition(">")
    given = {
        "host": source if "." in source or ":" in source else f"{source}.example.com",
        "redirectFrom": "http://inside:8080/x",
        "redirectTo": f"https://{target}.example.com/lookup/v2/topic/x?listenerName=external",
        "redirectAction": "rewritten",
    }
    return event(number, seconds, topic=topic, **given | changes)


def walk(number: int, seconds: float, path: str, topic: str, step: float = 0.1) -> list[Event]:
    """A client that is sent from host to host: `start>a>b>a`."""
    hosts = path.split(">")
    return [
        sent(number + place, seconds + place * step, f"{source}>{target}", topic)
        for place, (source, target) in enumerate(itertools.pairwise(hosts))
    ]


def test_redirect_loops_are_redirects_that_return_within_ten_seconds(spark: SparkSession) -> None:
    a, b, c, d = (f"{name}.example.com:443" for name in "abcd")
    events = [
        *walk(100, 0, "start>a>b>a>b>a", "two"),
        *walk(200, 0, "start>a>b>c>a", "three"), *walk(210, 1000, "a>b>c>a", "three"),
        *walk(300, 0, "a>b>c>d>a", "four"), *walk(310, 100, "a>b>c>d>e>a", "five: longer than is looked for"),
        # What many clients do every day: to the leader, and from there to the owner.
        *walk(400, 0, "start>a>b", "calm"), *walk(410, 0.05, "start>a>b", "calm"), *walk(420, 0.5, "start>a>b", "calm"),
        # An owner that moved there and back, but not at once; and the other way round, in the order of time.
        sent(500, 0, "a>b", "slow"), sent(501, 10.001, "b>a", "slow"), sent(502, 3595, "a>b", "slow"),
        sent(503, 3601, "b>a", "slow: another hour"),
        sent(510, 0, "a>b", "just in time"), sent(511, 10, "b>a", "just in time"),
        sent(520, 0, "b>c", "wrong order"), sent(521, 1, "a>b", "wrong order"), sent(522, 2, "c>a", "wrong order"),
        # The same address, however it is written; a port that is another is another.
        sent(600, 0, "A.example.com.:443>b", "written"), sent(601, 1, "b.example.com:0443>a", "written"),
        sent(610, 0, "a.example.com:8443>b", "ports"), sent(611, 1, "b>a", "ports"),
        sent(620, 0, "a>a", "itself"), sent(621, 0, "a>a", "plain", scheme="http"),
        # Those the sidecar follows end with the sidecar, and no client comes back.
        sent(700, 0, "a>b", "followed", redirectAction="followed"),
        sent(701, 1, "b>a", "followed", redirectAction="followed"),
        sent(702, 0, "a>b", "gave up", redirectAction="refused", hops=2),
        sent(703, 90_000, "a>b", "gave up", redirectAction="refused", hops=5),
        sent(704, 0, "a>b", "refused at once", redirectAction="refused"),
        sent(705, 0, "a>b", "nobody's", listener=None), sent(706, 1, "b>a", "nobody's", listener=None),
        sent(707, 0, "a>b", "two listeners"), sent(708, 1, "b>a", "two listeners", listener="partner"),
    ]  # fmt: skip
    expect(spark, "redirect_loops", events, [
        ("external", "two", "client", [a, b], 3, at(0.2), at(0.4)),
        ("external", "three", "client", [a, b, c], 2, at(0.3), at(1000.2)),
        ("external", "four", "client", [a, b, c, d], 1, at(0.3), at(0.3)),
        ("external", "just in time", "client", [a, b], 1, at(10), at(10)),
        ("external", "written", "client", [a, b], 1, at(1), at(1)),
        ("external", "itself", "client", [a], 1, at(0), at(0)),
        ("external", "gave up", "sidecar", [b], 2, at(0), at(90_000)),
    ])  # fmt: skip


def test_hosts_are_normalized_as_ingresses_match_them(spark: SparkSession) -> None:
    events = [
        event(1, 0), event(2, 5, host="PULSAR.example.com.:8443", kind="admin"),
        event(3, 90_000, **MISS | {"ingress": "public"}),
        event(4, 1, host="[2001:DB8::1]:8080", **MISS), event(5, 2, host="bad host!", **MISS),
        event(6, 3, host=None, kind="other"),
        event(7, 4, host=None, serverName="Pulsar.example.com", protocol="binary"),
    ]  # fmt: skip
    expect(spark, "hosts", events, [
        ("pulsar.example.com", "public", "http", 3, 2, 1, at(0), at(90_000)),
        ("[2001:db8::1]", None, "http", 1, 1, 1, at(1), at(1)),
        ("bad host!", None, "http", 1, 1, 1, at(2), at(2)),
        (None, "public", "http", 1, 0, 0, at(3), at(3)),
        ("pulsar.example.com", "public", "binary", 1, 1, 0, at(4), at(4)),
    ])  # fmt: skip


def test_drift_lists_hosts_whose_newest_request_had_no_ingress(spark: SparkSession) -> None:
    default: Event = {"ingress": None, "rule": "default"}
    events = [
        event(1, 0, **MISS | {"host": "never"}), event(2, 90_000, **MISS | {"host": "Never:8443"}),
        event(3, 5, host="never", **default, kind="admin"),
        event(4, 0, host="gone"), event(5, 7200, host="gone", ingress="older"),
        event(6, 90_000, **MISS | {"host": "gone"}), event(7, 1, **MISS | {"host": "gone"}),
        event(8, 0, **MISS | {"host": "mended"}), event(9, 10, host="mended"),
        event(10, 0, host="calm"),
        event(11, 0, host="any", ingress=None, rule="bind"), event(12, 0, host=None, **default),
    ]  # fmt: skip
    expect(spark, "drift", events, [
        ("never", "seen-not-configured", None, None, 3, 2, at(0), at(90_000)),
        ("gone", "no-longer-configured", "older", at(7200), 2, 2, at(1), at(90_000)),
    ])  # fmt: skip


def test_error_budget_covers_the_last_thirty_days(spark: SparkSession) -> None:
    limit = SECONDS * 1000
    events = [event(number, number * 60, durationMs=limit) for number in range(99)]
    events += [event(100, 9000, durationMs=limit + 0.001), event(101, 9000, durationMs=limit * 9, kind="admin")]
    events += [event(200 + number, (DAYS - 1) * DAY, durationMs=1.0) for number in range(100)]
    events += [event(300 + number, DAYS * DAY, durationMs=1.0 if number else 999.0) for number in range(10)]
    events += [event(400, 0, ingress=None, durationMs=limit * 2)]
    rows = {(row.ingress, row.date): row for row in rows_of(spark, "slo_days", events)}
    first = date(2026, 11, 16)
    assert len(rows) == 4
    budget = 1 - OBJECTIVE
    for key, lookups, good, all_lookups, all_good in [
        (("public", first), 100, 99, 100, 99),
        (("public", first + timedelta(days=DAYS - 1)), 100, 100, 200, 199),
        (("public", first + timedelta(days=DAYS)), 10, 9, 110, 109),
        ((None, first), 1, 0, 1, 0),
    ]:
        row = rows[key]
        assert (row.lookups, row.good, row.period_lookups, row.period_good) == (lookups, good, all_lookups, all_good)
        assert row.budget_left == pytest.approx(1 - (all_lookups - all_good) / (all_lookups * budget))


def test_hit_ratio_change_compares_generations_in_time_order(spark: SparkSession) -> None:
    def at_generation(number: int, seconds: float, generation: int, **changes: Any) -> Event:
        return event(number, seconds, generation=generation, **changes)

    leak: Event = {"leak": "location", "redirectFrom": "http://x/"}
    events = [
        at_generation(1, 0, 1), at_generation(2, 10, 1, **MISS), at_generation(3, 90_000, 1, kind="admin", **leak),
        at_generation(4, 20, 2, kind="admin"),
        at_generation(5, 30, 3), at_generation(6, 3700, 3, redirectFrom="http://x/"),
        at_generation(7, 25, 9, sidecar="gateway-1"),
    ]  # fmt: skip
    expect(spark, "generations", events, [
        ("gateway-0", 1, at(0), at(90_000), 2, 1, 1, 1, 1, 0.5, None),
        ("gateway-0", 2, at(20), at(20), 0, 0, 0, 0, 0, None, None),
        ("gateway-0", 3, at(30), at(3700), 2, 2, 0, 1, 0, 1.0, 0.5),
        ("gateway-1", 9, at(25), at(25), 1, 1, 0, 0, 0, 1.0, None),
    ])  # fmt: skip


def test_anomalies_are_hours_unlike_the_same_hour_of_earlier_days(spark: SparkSession) -> None:
    """A share is a row an hour, so many lookups are made by hand."""
    table = TABLES["anomalies"]
    usual = [(day, 9, "public", 1000 + 10 * (day % 3), 10, 20.0) for day in range(6)]
    hours = [
        *usual,
        (6, 9, "public", 400, 10, 20.5),  # fewer lookups; 2.5 percent of misses are not far enough
        (7, 9, "public", 1005, 300, 90.0),  # as many as ever, but misses and slow
        (7, 10, "public", 10, 0, 1.0),  # an hour that never was before
        *((day, 3, "quiet", 50, 0, 1.0) for day in range(3)), (3, 3, "quiet", 9, 9, 900.0),
        *((day, 5, "silent", 200, 0, 5.0) for day in range(4)), (4, 5, "public", 7, 0, 1.0),
        (-60, 9, "public", 5, 0, 1.0),
        (8, 9, "public", 1, 1, 999.0),  # the newest, which may not be whole
        (26_000, 9, "public", 2, 0, 1.0), (26_001, 9, "public", 2, 0, 1.0),  # a clock that is ahead
    ]  # fmt: skip
    shares = [
        (
            f"{START + timedelta(days=day, hours=hour - 9):%Y-%m-%dT%H}",
            START + timedelta(days=day, hours=hour - 9),
            *rest,
        )
        for day, hour, *rest in hours
    ]
    frame_ = spark.createDataFrame(
        shares, "span string, window_start timestamp, ingress string, lookups long, misses long, p95_ms double"
    )
    merged = table.merge(frame_.selectExpr("'all' as span", *frame_.columns[1:]))
    rows = exactly(table, table.finish(merged)).collect()
    found = {
        ((row.window_start.timestamp() - START.timestamp()) / DAY, row.ingress, row.what): (
            row.value,
            row.usual,
            row.days,
        )
        for row in rows
    }
    assert found == {
        (6.0, "public", "lookups"): (400.0, 1010.0, 6),
        (7.0, "public", "miss_ratio"): (pytest.approx(300 / 1005), pytest.approx(10 / 1010), 7),
        (7.0, "public", "p95_ms"): (90.0, 20.0, 7),
        (4 - 4 / 24, "silent", "lookups"): (0.0, 200.0, 4),
    }
    scores = {row.what: row.score for row in rows if row.ingress == "public"}
    assert scores["lookups"] == pytest.approx(-610 / 101)
    assert scores["p95_ms"] == pytest.approx(70 / 2)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_median_of_an_empty_array_is_null_in_either_ansi_mode(spark: SparkSession, ansi: str) -> None:
    """In ANSI mode an index outside of an array is an error, and nothing says that rows are filtered before it."""
    medians: dict[tuple[float, ...], float | None] = {
        (): None,
        (3.0,): 3.0,
        (4.0, 1.0): 2.5,
        (9.0, 1.0, 2.0): 2.0,
        (4.0, 3.0, 1.0, 2.0): 2.5,
    }
    before = spark.conf.get("spark.sql.ansi.enabled") or "true"
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        values = spark.createDataFrame([(list(row),) for row in medians], "values array<double>")
        assert [row.median for row in values.select(_median(F.col("values")).alias("median")).collect()] == [
            *medians.values()
        ]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
