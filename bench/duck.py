"""Builds the same tables from the same Parquet files with DuckDB, to compare both speed and results.

The queries are those that the tests hold the tables against.
"""

import importlib
import sys
import time
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from bench.absorb import Cost
from bench.processes import CannotMeasure
from pulsar_ingress_pipeline.schema import snake
from pulsar_ingress_pipeline.tables.latency import ACCURACY
from pulsar_ingress_proxy.observability.event_schema import FIELDS

_TESTS = Path(__file__).parents[1] / "tests" / "pipeline"
_RANK_ERROR = 1 / ACCURACY
"""As a share of a group's requests."""
_APPROXIMATE = ("latency_windows", "broker_latency")
"""Tables with quantiles, which are compared within their error."""

_QUANTILES = {
    "latency_windows": """
        select time_bucket(interval 5 minutes, time) as window_start, ingress, kind, count(*) as requests,
            quantile_disc(durationMs, [0.5, 0.95, 0.99]) as quantiles
        from e group by all""",
    "broker_latency": """
        select date_trunc('hour', time) as window_start, ingress, broker, kind, count(*) as requests,
            quantile_cont(durationMs, [0.5, 0.95, 0.99]) as quantiles
        from e group by all""",
}


def _queries() -> dict[str, str]:
    sys.path.insert(0, str(_TESTS))
    try:
        found = [importlib.import_module(name).QUERIES for name in ("test_oracle", "test_oracle_more")]
    finally:
        sys.path.remove(str(_TESTS))
    return {**found[0], **found[1], **_QUANTILES}


def _files(table: Path) -> str:
    """The files of a table's last version, as SQL."""
    return ", ".join(f"'{file}'" for file in DeltaTable(str(table)).file_uris())


class Duck:
    """The events of a tables' folder, as DuckDB sees them."""

    def __init__(self, tables: Path, out: Path, threads: int) -> None:
        """`out` is a new folder for the files that DuckDB writes."""
        self._tables, self._out = tables, out
        out.mkdir()
        self._duck = duckdb.connect(config={"threads": threads})
        self._duck.execute("set timezone = 'UTC'")
        self._duck.execute("set enable_progress_bar = false")
        names = ", ".join(f'{snake(field.name)} as "{field.name}"' for field in FIELDS)
        files = _files(tables / "events")
        self._duck.execute(f"create view e as select {names} from read_parquet([{files}], hive_partitioning = false)")

    def close(self) -> None:
        self._duck.close()

    @property
    def tables(self) -> int:
        return len(_queries())

    def make(self) -> Cost:
        """Write all tables as Parquet files; returns the cost. Nothing else may run in this process meanwhile."""
        cpu, wall = time.process_time(), time.monotonic()
        for name, query in _queries().items():
            self._duck.execute(f"copy ({query}) to '{self._out}/{name}.parquet' (format parquet, compression zstd)")
        cost = Cost(time.process_time() - cpu, time.monotonic() - wall)
        for name in _queries():
            self._duck.execute(f"create view {name} as select * from read_parquet('{self._out}/{name}.parquet')")
        return cost

    def compare(self) -> int:
        """Compare Spark's tables with these; returns the number of equal rows."""
        rows = 0
        for name in _queries():
            files = _files(self._tables / name)
            ours = f"read_parquet([{files}])" if files else f"(from {name} limit 0)"  # a table without rows
            if name in _APPROXIMATE:
                self._expect_quantiles(name, ours)
            else:
                self._expect_equal(name, ours)
            [(count,)] = self._duck.sql(f"select count(*) from {name}").fetchall()
            rows += count
        return rows

    def _expect_equal(self, name: str, ours: str) -> None:
        described = self._duck.sql(f"describe {name}").fetchall()
        # Engines differ in the last bits of a quotient.
        columns = ", ".join(
            f"printf('%.9g', {column})" if kind == "DOUBLE" else f"{column}::{kind}" for column, kind, *_ in described
        )
        one, other = f"select {columns} from {name}", f"select {columns} from {ours}"
        differ = f"select count(*) from (({one} except all {other}) union all ({other} except all {one}))"
        if (found := self._duck.sql(differ).fetchall()) != [(0,)]:
            raise CannotMeasure(f"{name}: {found[0][0]} rows differ from DuckDB's")

    def _expect_quantiles(self, name: str, ours: str) -> None:
        keys = [column for column in ("window_start", "ingress", "broker", "kind") if column in self._columns(name)]
        same = " and ".join(f"o.{key} is not distinct from d.{key}" for key in keys)
        [(groups, matched)] = self._duck.sql(
            f"select (select count(*) from {name}), count(*) from {ours} o join {name} d on {same} "
            "where o.requests = d.requests"
        ).fetchall()
        if groups != matched:
            raise CannotMeasure(f"{name}: {groups} groups, of which {matched} have DuckDB's count")
        if name == "broker_latency":  # by buckets: within 1 % of the value
            off = f"""select count(*) from {ours} o join {name} d on {same} where
                greatest(abs(o.p50_ms / d.quantiles[1] - 1), abs(o.p95_ms / d.quantiles[2] - 1),
                    abs(o.p99_ms / d.quantiles[3] - 1)) > 0.0101 and o.requests > 1000"""
        else:  # by rank
            window = "time_bucket(interval 5 minutes, e.time)"
            bounds = " or ".join(
                f"count(*) filter (e.durationMs < o.{column}) > {share + _RANK_ERROR} * o.requests + 1 "
                f"or count(*) filter (e.durationMs <= o.{column}) < {share - _RANK_ERROR} * o.requests - 1"
                for column, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))
            )
            off = f"""select count(*) from (select 1 from {ours} o join e on o.window_start = {window}
                and o.ingress is not distinct from e.ingress and o.kind is not distinct from e.kind
                group by o.window_start, o.ingress, o.kind, o.requests, o.p50_ms, o.p95_ms, o.p99_ms having {bounds})"""
        if (found := self._duck.sql(off).fetchall()) != [(0,)]:
            raise CannotMeasure(f"{name}: {found[0][0]} groups have quantiles beyond their error")

    def _columns(self, name: str) -> list[str]:
        return [column for column, *_ in self._duck.sql(f"describe {name}").fetchall()]
