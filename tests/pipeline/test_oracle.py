"""The tables of any events, however they are cut into files and batches, are those that DuckDB works out."""

import json
import tempfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from made_events import MISS, Event, Tables, event, write
from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # it would hide what failed

QUERIES = {
    "listener_windows": """
        select time_bucket(interval 5 minutes, time) as window_start, ingress, listener, rule, protocol,
            count(*) filter (hit) as hits, count(*) filter (not hit) as misses
        from e where kind = 'lookup' group by all""",
    "misses": """
        select ingress, host, missReason as reason, protocol, count(*) as misses, min(time) as first_seen,
            max(time) as last_seen
        from e where kind = 'lookup' and not hit group by all""",
    "namespaces": """
        select time::date as date, tenant, namespace, count(*) as lookups, count(*) filter (hit) as hits,
            count(*) filter (not hit) as misses, count(redirectFrom) as redirects
        from e where kind = 'lookup' group by all""",
    "unmapped_addresses": """
        select listener, regexp_extract(redirectFrom, '://([^/]*)', 1) as address, count(*) as redirects,
            min(time) as first_seen, max(time) as last_seen
        from e where redirectFrom is not null and redirectTo is null group by all""",
    "owner_changes": """
        select topic, count(*) as lookups, count(*) filter (broker <> before) as changes,
            count(distinct broker) as brokers
        from (select *, lag(broker) over (partition by topic, broker is null order by time, id) as before
            from e where kind = 'lookup' and topic is not null)
        group by all""",
    "client_named": """
        select userAgent as user_agent, tenant, clientNamed as listener, count(*) as lookups
        from e where kind = 'lookup' and clientNamed is not null group by all""",
}

RANKS = """
    select count(*) as requests, count(*) filter (durationMs < $value), count(*) filter (durationMs <= $value)
    from e where time_bucket(interval 5 minutes, time) = $start
    and ingress is not distinct from $ingress and kind is not distinct from $kind"""


def redirect(broker: int, mapped: bool) -> Event:
    return {
        "redirectFrom": f"http://broker-{broker}:8080/x",
        "redirectTo": "https://x.example.com/" if mapped else None,
    }


changes: st.SearchStrategy[Event] = st.one_of(
    st.just({}),
    st.sampled_from(
        [MISS, MISS | {"host": "a.example.org"}, MISS | {"missReason": "not-allowed", "ingress": "public"}]
    ),
    st.builds(redirect, st.integers(0, 2), st.booleans()),
    st.sampled_from([{"clientNamed": "external"}, {"clientNamed": "partner", "rule": "query"}, {"userAgent": None}]),
)
# Some minutes, and clocks that are hours and days off.
seconds = st.one_of(st.integers(0, 900), st.integers(-90_000, 180_000)).map(lambda whole: whole + 0.5)


@st.composite
def made(draw: st.DrawFn) -> Event:
    number = draw(st.integers(0, 60))
    # An id twice at the same moment is the same event: which of two others would stay is our own choice.
    time = draw(seconds) + number / 1_000_000
    return event(
        number, time,
        **draw(changes),
        kind=draw(st.sampled_from(["lookup", "lookup", "lookup", "admin"])),
        topic=draw(st.sampled_from(["t0", "t1", None])),
        tenant=draw(st.sampled_from(["acme", None])),
        broker=draw(st.sampled_from(["b0", "b1", None])),
        durationMs=draw(st.integers(1, 50)) / 4,
    )  # fmt: skip


BAD = [b"\xff\xfe\n", b"{}\n", b'{"id": "x"\n', b"rubbish\n", b"\n"]


@st.composite
def inputs(draw: st.DrawFn) -> tuple[list[Event], list[list[list[bytes | Event]]]]:
    """Events, and the same, some twice, among bad lines and in any order, in two batches of files."""
    events = draw(st.lists(made(), min_size=40, max_size=80, unique_by=lambda made: (made["id"], made["time"])))
    lines: list[bytes | Event] = [*events, *draw(st.lists(st.sampled_from(events), max_size=20))]
    lines = list(draw(st.permutations([*lines, *draw(st.lists(st.sampled_from(BAD), max_size=6))])))
    cuts = sorted(draw(st.lists(st.integers(0, len(lines)), min_size=3, max_size=3)))
    files = [lines[start:end] for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    return events, [files[:2], files[2:]]


def oracle(folder: Path, events: list[Event]) -> duckdb.DuckDBPyConnection:
    (folder / "all.jsonl").write_text("".join(json.dumps(made) + "\n" for made in events))
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    columns = {"time": "TIMESTAMPTZ", "hit": "BOOLEAN", "durationMs": "DOUBLE"}
    names = {name: columns.get(name, "VARCHAR") for name in events[0]}
    connection.execute(
        f"create table e as select * from read_json('{folder}/all.jsonl', format='newline_delimited', columns={names}) "
        "qualify row_number() over (partition by id, time) = 1"
    )
    return connection


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Rows that can be compared, whoever made them."""

    def text(value: object) -> str:
        if isinstance(value, datetime):
            return f"{value.timestamp():.6f}"
        return value.isoformat() if isinstance(value, date) else repr(value)

    return sorted(tuple(text(value) for value in row) for row in rows)


@settings(
    max_examples=1,  # each takes many seconds; every run makes others
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(inputs())
def test_contract_tables_equal_those_that_duckdb_computes(
    spark: SparkSession, given: tuple[list[Event], list[list[list[bytes | Event]]]]
) -> None:
    events, batches = given
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(spark, Path(folder) / "events", Path(folder) / "tables", {*QUERIES, "latency_windows"})
        for number, files in enumerate(batches):
            for place, lines in enumerate(files):
                write(tables.events, f"{number}{place}.jsonl{'.gz' if place else ''}", lines)
            tables.take()
        bad = [line for files in batches for lines in files for line in lines if line in BAD and line != b"\n"]
        assert len(tables.rows("quarantine")) == len(bad)
        with oracle(Path(folder), events) as duck:
            for name, query in QUERIES.items():
                found = duck.sql(query)
                columns = found.columns
                ours = [tuple(row.values()) for row in tables.read(name).select(columns).to_pylist()]
                assert plain(ours) == plain(found.fetchall()), name
            for row in tables.rows("latency_windows"):
                for quantile, value in ((0.5, row["p50_ms"]), (0.95, row["p95_ms"]), (0.99, row["p99_ms"])):
                    [(requests, below, upto)] = duck.execute(
                        RANKS,
                        {"value": value, "start": row["window_start"], "ingress": row["ingress"], "kind": row["kind"]},
                    ).fetchall()
                    assert requests == row["requests"]
                    # The value stands at the rank, within one of ten thousand.
                    assert below <= quantile * requests * 1.0001 + 1e-9
                    assert upto >= quantile * requests * 0.9999 - 1e-9
            assert duck.sql("select count(*) from e").fetchall() == [(len(tables.read("events")),)]
