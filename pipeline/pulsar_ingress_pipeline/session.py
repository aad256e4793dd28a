"""The Spark session: which master, which settings, and a Java that can run it."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import java
from pulsar_ingress_pipeline.connecting import connected
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.storage import cause

SETTINGS = {
    # Times are UTC in events, in folders' names and in windows.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # A result of a few rows is one file, however many partitions the shuffle had.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    # Of ten thousand files each would be a task of its own.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}
"""What the tables' meaning or form depends on. Algorithm 2 of the committer spares a rename: all is staged anyway."""

# To compile Spark's planner to the last costs more than a small commit: what runs for each row gets there anyway.
_JAVA = (
    "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000"
    " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

_NOISE = re.compile(r"\s*$|WARNING: |Picked up |\s+at |:: ")
"""What Java says at every start, and where in its code something happened."""

_LOG = Path(__file__).parent / "log4j2.properties"


@contextmanager
def session(
    master: str | None, extra: dict[str, str] | None = None, remote: str | None = None
) -> Iterator[SparkSession]:
    """A session for one command: of a Connect server where that is given, else our own.

    Without a master it is the one of spark-submit, else this machine with all cores.
    """
    spark = connected(remote, SETTINGS | (extra or {})) if remote is not None else _own(master, extra or {})
    try:
        yield spark
    finally:
        spark.stop()


def _own(master: str | None, extra: dict[str, str]) -> SparkSession:
    home = java.find()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    os.environ.setdefault("SPARK_DRIVER_MEMORY", java.memory(java.memory_of_machine()))  # what counts least of all
    builder = SparkSession.builder.appName("pulsar-ingress-pipeline")
    for key, value in (SETTINGS | _quiet() | extra).items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ:  # spark-submit brings its own
        builder = builder.master("local[*]")
    return _started(builder)


def _started(builder: SparkSession.Builder) -> SparkSession:
    """A session. What Java has to say at its start is only of interest where it does not start."""
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        ours = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            return builder.getOrCreate()
        except Exception as error:
            said.seek(0)
            words = [line for line in said.read().decode(errors="replace").splitlines() if not _NOISE.match(line)]
            raise PipelineFault(f"Spark does not start: {cause(chr(10).join(words)) or cause(error)}") from None
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def _quiet() -> dict[str, str]:
    """Spark's own words are for its developers; ours are said once, where they belong."""
    return {
        "spark.driver.extraJavaOptions": f"{_JAVA} -Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.executor.extraJavaOptions": _JAVA,
    }
