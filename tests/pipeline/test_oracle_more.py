"""The tables beside the contract's, of any events in batches, are those that DuckDB works out."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from made_events import MISS, Event, Tables, event, write
from pyspark.sql import SparkSession
from test_oracle import oracle, plain

from pulsar_ingress_pipeline.tables import anomalies
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # it would hide what failed

BUCKET = "pow(1.01 / 0.99, ceil(ln(greatest(durationMs, 0.01)) / ln(1.01 / 0.99)))"
HOST = "rtrim(split_part(lower(coalesce(host, serverName)), ':', 1), '.')"
SEEN = "min(time) as first_seen, max(time) as last_seen"

QUERIES = {
    "sidecar_windows": """
        select time_bucket(interval 5 minutes, time) as window_start, sidecar, ingress, listener, rule, protocol,
            count(*) filter (hit) as hits, count(*) filter (not hit) as misses
        from e where kind = 'lookup' group by all""",
    "latency_buckets": f"""
        select time_bucket(interval 5 minutes, time) as window_start, ingress, broker, kind, {BUCKET} as bucket,
            count(*) as requests
        from e group by all""",
    "leaks": f"""
        select ingress, listener, leak as found_in,
            case when leak = 'location' then regexp_extract(redirectFrom, '://([^/]*)', 1) end as address,
            userAgent as user_agent, count(*) as leaks, {SEEN}
        from e where leak is not null group by all""",
    "redirect_hops": """
        select time_bucket(interval 5 minutes, time) as window_start, listener, kind, redirectAction as action,
            hops::bigint as hops, count(*) as requests
        from e where redirectAction is not null or hops::int > 0 group by all""",
    "redirect_loops": """
        with recursive sent as (
            select id, time, listener, topic, date_trunc('hour', time) as span,
                case when redirectAction = 'refused' then 'sidecar' else 'client' end as followed_by,
                regexp_extract(redirectTo, '://([^/]*)', 1) || ':443' as target,
                case when redirectAction = 'refused' then target else host || ':443' end as source
            from e where redirectTo is not null and topic is not null and listener is not null
                and redirectAction <> 'followed' and (redirectAction <> 'refused' or hops::int > 0)
        ), chain as (
            select span, listener, topic, followed_by, time as began, time, id, [source, target] as path
            from sent where source <> target
            union all
            select c.span, c.listener, c.topic, c.followed_by, c.began, s.time, s.id, list_append(c.path, s.target)
            from chain c join sent s using (span, listener, topic, followed_by)
            where s.source = c.path[-1] and (s.time, s.id) > (c.time, c.id) and len(c.path) < 4
                and s.time - c.began <= interval 10 seconds and not list_contains(c.path, s.target)
        ), closed as (
            select s.id, s.time, s.listener, s.topic, s.followed_by, c.path,
                list_position(c.path, list_min(c.path)) as least,
                list_concat(c.path[least:], c.path[:least - 1]) as brokers
            from chain c join sent s using (span, listener, topic, followed_by)
            where s.source = c.path[-1] and s.target = c.path[1] and (s.time, s.id) > (c.time, c.id)
                and s.time - c.began <= interval 10 seconds
            union all
            select id, time, listener, topic, followed_by, [source], 1, [source] from sent where source = target
        ), shortest as (
            select listener, topic, followed_by, id, time, brokers from closed
            qualify row_number() over (partition by id order by len(brokers), brokers) = 1
        )
        select listener, topic, followed_by, brokers, count(*) as loops, min(time) as first_seen, max(time) as last_seen
        from shortest group by all""",
    "flows": """
        select date_trunc('hour', time) as window_start, cluster, kind, ingress, listener, broker, count(*) as requests,
            count(*) filter (hit) as hits
        from e group by all""",
    "named_misses": f"""
        select ingress, host, missReason as reason, clientNamed as listener, count(*) as misses, {SEEN}
        from e where kind = 'lookup' and not hit and clientNamed is not null
            and missReason in ('not-allowed', 'unknown-listener', 'client-named')
        group by all""",
    "hosts": f"""
        select {HOST} as host, ingress, protocol, count(*) as requests, count(*) filter (kind = 'lookup') as lookups,
            count(*) filter (kind = 'lookup' and not hit) as misses, {SEEN}
        from e group by all""",
    "drift": f"""
        select host, case when held is null then 'seen-not-configured' else 'no-longer-configured' end as state,
            ingress, held as configured_until, requests, lookups, first_seen, last_seen
        from (select {HOST} as host, count(*) filter (ingress is null) as requests,
                count(*) filter (ingress is null and kind = 'lookup') as lookups,
                min(time) filter (ingress is null) as first_seen, max(time) filter (ingress is null) as last_seen,
                max(time) filter (ingress is not null) as held,
                arg_max(ingress, time) filter (ingress is not null) as ingress
            from e where ingress is not null or rule <> 'bind' group by 1)
        where host is not null and requests > 0 and (held is null or last_seen > held)""",
    "slo_days": f"""
        with days as (
            select time::date as date, ingress, count(*) as lookups,
                count(*) filter (durationMs <= {SECONDS * 1000}) as good
            from e where kind = 'lookup' group by all
        )
        select d.date, d.ingress, d.lookups, d.good, sum(o.lookups)::bigint as period_lookups,
            sum(o.good)::bigint as period_good,
            1 - (period_lookups - period_good) / (period_lookups * {1 - OBJECTIVE}) as budget_left
        from days d join days o on o.ingress is not distinct from d.ingress
            and o.date between d.date - {DAYS - 1} and d.date
        group by all""",
    "generations": f"""
        select *, hit_ratio - lag(hit_ratio ignore nulls) over (partition by sidecar order by first_seen, generation)
            as hit_ratio_change
        from (select sidecar, generation::bigint as generation, {SEEN},
                count(*) filter (kind = 'lookup') as lookups, count(*) filter (kind = 'lookup' and hit) as hits,
                lookups - hits as misses, count(redirectFrom) as redirects, count(leak) as leaks,
                hits / nullif(lookups, 0) as hit_ratio
            from e group by all)""",
    "anomalies": f"""
        with hours as (
            select date_trunc('hour', time) as hour, ingress, count(*) as lookups, count(*) filter (not hit) as misses,
                quantile_cont({BUCKET}, 0.95) * 0.99 as p95
            from e where kind = 'lookup' group by all
        ), ingresses as (select ingress, min(hour) as since from hours group by all
        ), whole as (
            select a.hour, d.ingress, coalesce(h.lookups, 0) as lookups, h.misses, h.p95
            from (select distinct hour from hours) a join ingresses d on a.hour >= d.since
            left join hours h on h.hour = a.hour and h.ingress is not distinct from d.ingress
        ), facts as (
            select *, unnest([
                {{'what': 'lookups', 'value': lookups::double, 'share': 0.1, 'amount': 10}},
                {{'what': 'miss_ratio', 'value': misses / nullif(lookups, 0), 'share': 0, 'amount': 0.01}},
                {{'what': 'p95_ms', 'value': p95, 'share': 0.1, 'amount': 1}}], recursive := true)
            from whole
        ), judged as (
            select f.hour as window_start, f.ingress, f.what, f.value, median(b.value) as usual, count(*) as days,
                greatest(1.4826 * mad(b.value), f.share * usual, f.amount) as varies,
                (f.value - usual) / varies as score
            from facts f join facts b on b.what = f.what and b.ingress is not distinct from f.ingress
                and hour(b.hour) = hour(f.hour) and b.hour < f.hour and b.value is not null
            where f.value is not null and f.hour < (select max(hour) from hours)
            group by f.hour, f.ingress, f.what, f.value, f.share, f.amount, f.lookups
            having days >= 3 and greatest(f.lookups, median(b.lookups)) >= 1
        )
        select window_start, ingress, what, value, usual, days, score from judged where abs(score) >= 0.5""",
}
"""In each the columns stand as they do in the table."""

QUANTILES = """
    select date_trunc('hour', time) as window_start, ingress, broker, kind, count(*),
        quantile_cont(durationMs, 0.5), quantile_cont(durationMs, 0.95), quantile_cont(durationMs, 0.99)
    from e group by all"""


def sent(source: str, target: str, action: str, hops: int) -> Event:
    return {
        "host": source,
        "redirectFrom": f"http://{target}.inside:8080/x",
        "redirectTo": f"https://{target}/x",
        "redirectAction": action,
        "hops": hops,
    }


NAMES = st.sampled_from(["a.example", "b.example", "c.example"])
changes: st.SearchStrategy[Event] = st.one_of(
    st.just({}),
    st.builds(sent, NAMES, NAMES, st.just("rewritten"), st.just(0)),
    st.builds(sent, NAMES, NAMES, st.just("rewritten"), st.just(0)),
    st.builds(sent, NAMES, NAMES, st.sampled_from(["followed", "refused", "kept"]), st.integers(0, 2)),
    st.sampled_from([MISS, MISS | {"host": "A.example.:8443"}, {"ingress": None, "rule": "bind"}, {"host": None}]),
    st.sampled_from([{"leak": "body"}, {"leak": "location", "redirectFrom": "http://b-7:8080/x", "userAgent": None}]),
    st.just({"host": None, "serverName": "b.example", "protocol": "binary"}),
)
# Seconds of the same hour on some days: what is compared must have something to compare with.
seconds = st.tuples(st.integers(0, 4), st.one_of(st.integers(0, 20), st.integers(0, 3650))).map(
    lambda drawn: drawn[0] * 86_400 + drawn[1] + 0.5
)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    return [
        event(
            number, draw(seconds) + number / 1_000_000,
            **draw(changes),
            kind=draw(st.sampled_from(["lookup", "lookup", "lookup", "admin"])),
            sidecar=draw(st.sampled_from(["gateway-0", "gateway-1"])),
            generation=draw(st.integers(1, 3)),
            topic=draw(st.sampled_from(["t0", "t0", "t1", None])),
            broker=draw(st.sampled_from(["b0", "b1", None])),
            durationMs=draw(st.sampled_from([0.001, 0.5, 3.0, 40.0, SECONDS * 1000, 251.0, 4000.0])),
        )
        for number in range(draw(st.integers(90, 120)))
    ]  # fmt: skip


def batches(given: list[Event]) -> list[list[Event]]:
    """Some days, then two parts of the last one, to which late events of all days are added."""
    ordered = sorted(given, key=lambda one: one["time"])
    days, last = ordered[: len(given) * 3 // 4], ordered[len(given) * 3 // 4 :]
    return [days[::2], last[::2], last[1::2], days[1::2]]


def rounded(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Engines differ in the last bits of a quotient."""
    return [tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row) for row in rows]


@settings(
    max_examples=1,  # each takes many seconds; every run makes others
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(events())
def test_tables_beyond_the_contract_equal_those_that_duckdb_computes(spark: SparkSession, given: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(anomalies, "LEAST_LOOKUPS", 1)
        patched.setattr(anomalies, "SCORE", 0.5)
        tables = Tables(spark, Path(folder) / "events", Path(folder) / "tables", {*QUERIES, "broker_latency"})
        for number, batch in enumerate(batches(given)):
            write(tables.events, f"{number}.jsonl", batch)
            tables.take()
        with oracle(Path(folder), given) as duck:
            for name, query in QUERIES.items():
                found = duck.sql(query)
                ours = [tuple(row.values()) for row in tables.read(name).select(found.columns).to_pylist()]
                assert plain(rounded(ours)) == plain(rounded(found.fetchall())), name
            quantiles = {plain([row[:4]])[0]: row[4:] for row in duck.sql(QUANTILES).fetchall()}
            rows = [tuple(row.values()) for row in tables.rows("broker_latency")]
            assert len(rows) == len(quantiles)
            for row in rows:
                requests, *exact = quantiles[plain([row[:4]])[0]]
                assert row[4] == requests
                for ours, value in zip(row[5:], exact, strict=True):
                    assert ours == pytest.approx(value, rel=0.0101, abs=0.0101)
