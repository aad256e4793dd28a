"""The Spark session: which master, which settings, and a Java that can run it."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import java
from pulsar_ingress_pipeline.connecting import connected
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.storage import spark_settings
from pulsar_ingress_pipeline.spark_errors import cause

SETTINGS = {
    # Times are UTC in events, in folders' names and in windows.
    "spark.sql.session.timeZone": "UTC",
    # Of ten thousand files each would be a task of its own.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}
"""What the tables' meaning depends on, and what keeps Spark quiet."""

# To compile Spark's planner to the last costs more than a small commit: what runs for each row gets there anyway.
_JAVA = (
    "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000"
    " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

_NOISE = re.compile(r"\s*$|WARNING: |Picked up |\s+at |:: ")
"""What Java says at every start, and where in its code something happened."""

_LOG = Path(__file__).parent / "log4j2.properties"


class LazySession(AbstractContextManager["LazySession"]):
    """Starts a session when it is first needed, and ends it with the command."""

    def __init__(
        self, master: str | None, remote: str | None = None, started: Callable[[SparkSession], None] | None = None
    ) -> None:
        self._master, self._remote, self._started = master, remote, started
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def get(self, is_brief: bool = False) -> SparkSession:
        """`is_brief`: there is so little to do that Java's better compiler would not pay."""
        if self._spark is None:
            self._spark = self._stack.enter_context(session(self._master, remote=self._remote, is_brief=is_brief))
            if self._started is not None:
                self._started(self._spark)
        return self._spark

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextmanager
def session(
    master: str | None, extra: dict[str, str] | None = None, remote: str | None = None, is_brief: bool = False
) -> Iterator[SparkSession]:
    """A session for one command: of a Connect server where that is given, else our own.

    Without a master it is the one of spark-submit, else this machine with all cores.
    """
    extra = extra or {}
    spark = connected(remote, SETTINGS | extra) if remote is not None else _own(master, _quiet(is_brief) | extra)
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
    for key, value in (SETTINGS | spark_settings() | extra).items():
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


def _quiet(is_brief: bool) -> dict[str, str]:
    """Spark's own words are for its developers; ours are said once, where they belong."""
    compiler = " -XX:TieredStopAtLevel=1" if is_brief else ""
    return {
        "spark.driver.extraJavaOptions": f"{_JAVA}{compiler} -Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.executor.extraJavaOptions": _JAVA,
    }
