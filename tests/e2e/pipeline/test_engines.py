"""Other engines read the tables: each sees the rows that `deltalake` does. docs/lakehouse.md has the recipes."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from delta_spark_jars import VERSION, jars
from deltalake import DeltaTable
from spark_commands import done, environment
from spark_processes import connect_server

ROOT = Path(__file__).parents[3]
UV = str(Path(sys.executable).parent / "uv")
pytestmark = pytest.mark.timeout(1800)

QUERIES = {
    "events": "select id, cast(date as string), hour, status, duration_ms from {} order by id",
    "listener_windows": "select cast(window_start as string), ingress, listener, rule, protocol, hits, misses from {} "
    "order by all",
    "owner_changes": "select topic, lookups, changes, brokers from {} order by all",
}
"""A table with partitions, one that is replaced by day, and one that is replaced as a whole."""
DUCKDB = """
import duckdb, duckdb_extension_delta, glob, json, sys
tables, queries = sys.argv[1], json.loads(sys.argv[2])
duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
[extension] = glob.glob(duckdb_extension_delta.__path__[0] + "/extensions/*/delta.duckdb_extension")
duck.execute(f"load '{extension}'")
duck.execute("set timezone = 'UTC'")
found = {name: duck.sql(query.format(f"delta_scan('{tables}/{name}')")).fetchall() for name, query in queries.items()}
print(json.dumps(found))
"""
SPARK = """
import json, sys
from pyspark.sql import SparkSession
settings, lists, queries = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.config(map=settings)
spark = builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
for name, (base, files) in lists.items():
    spark.read.option("basePath", base).parquet(*files).createOrReplaceTempView(name)
found = {name: [list(row) for row in spark.sql(query).collect()] for name, query in queries.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With files that no version has, as killed commands leave them: to read those would show."""
    folder = tmp_path_factory.mktemp("engines") / "tables"
    done("run", "--events", str(ROOT / "tests/pipeline/golden/events"), "--tables", str(folder))
    for name in QUERIES:
        file = next((folder / name).rglob("*.parquet"))
        (file.parent / f"left-{file.name}").write_bytes(file.read_bytes())
    return folder


def expected(tables: Path) -> dict[str, list[tuple[str, ...]]]:
    found = {}
    for name, query in QUERIES.items():
        rows = DeltaTable(str(tables / name)).to_pyarrow_table().to_pylist()
        columns = query.partition("select ")[2].partition(" from")[0].replace("cast(", "").replace(" as string)", "")
        found[name] = [tuple(_text(row[column]) for column in columns.split(", ")) for row in rows]
    return {name: sorted(rows) for name, rows in found.items()}


def _text(value: Any) -> str:
    """A value as each engine writes it, or nearly: a time of UTC may say so."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return str(value).removesuffix("+00:00").removesuffix("+00")


def read(python: str | Path, program: str, *arguments: Any, **variables: str) -> dict[str, list[tuple[str, ...]]]:
    """The rows that a program of another environment has read."""
    words = [argument if isinstance(argument, str) else json.dumps(argument) for argument in arguments]
    ended = subprocess.run(
        [str(python), "-c", program, *words],
        capture_output=True, text=True, timeout=600, check=False, env=environment(**variables),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    return {name: sorted(tuple(map(_text, row)) for row in rows) for name, rows in found.items()}


def environment_of(folder: Path, *packages: str) -> Path:
    python = folder / "bin/python"
    for command in (["venv", "--python", sys.executable, folder], ["pip", "install", "--python", python, *packages]):
        subprocess.run([UV, *map(str, command)], check=True, capture_output=True, timeout=600)
    return python


def file_lists(tables: Path) -> Mapping[str, tuple[str, list[str]]]:
    return {name: (str(tables / name), DeltaTable(str(tables / name)).file_uris()) for name in QUERIES}


def test_duckdb_delta_scan_reads_the_same_rows(tables: Path, tmp_path: Path) -> None:
    """In an environment of its own: the extension is for an older DuckDB than ours."""
    python = environment_of(tmp_path / "environment", "duckdb-extension-delta==1.5.5")
    found = read(python, DUCKDB, str(tables), QUERIES)
    assert found == expected(tables)
    assert len(found["events"]) == 593


@pytest.mark.full
@pytest.mark.parametrize("is_remote", [False, True], ids=["own session", "Spark Connect"])
def test_spark_without_delta_reads_the_same_rows_from_the_list_of_files(
    tables: Path, tmp_path: Path, is_remote: bool
) -> None:
    queries = {name: query.format(name) for name, query in QUERIES.items()}
    if not is_remote:
        settings = {"spark.master": "local[1]", "spark.ui.enabled": "false"}
        assert read(sys.executable, SPARK, settings, file_lists(tables), queries) == expected(tables)
        return
    with connect_server(tmp_path / "server") as url:
        settings = {"spark.remote": url}
        assert read(sys.executable, SPARK, settings, file_lists(tables), queries) == expected(tables)


@pytest.mark.full
def test_delta_spark_on_spark_4_2_reads_the_same_rows(tables: Path, tmp_path: Path) -> None:
    """It has no release for the Spark that the pipeline uses."""
    python = environment_of(tmp_path / "environment", "pyspark==4.2.0")
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    queries = {name: query.format(f"delta.`{tables / name}`") for name, query in QUERIES.items()}
    assert read(python, SPARK, settings, {}, queries) == expected(tables), VERSION
