"""The Spark session: which master, which settings, a Java that can run it; and what Spark raises, in one line.

The session of a Spark Connect server has the server's cluster, and needs no Java.
"""

import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import PySparkImportError
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import java
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.storage import spark_settings

SPARK_FAULTS = (PySparkException, Py4JError)
PORT = 15002
"""Of Spark Connect."""
SECONDS = 20.0
"""So long a Connect server may take to open its port; Spark's own client would try for many minutes."""

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

_WHERE = re.compile(r"^(== (SQL|DataFrame)|JVM stacktrace|Driver stacktrace)", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:: |Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error|Fault): \S.*)")
_OURS = f"{PipelineFault.__module__}.{PipelineFault.__qualname__}: "
"""What a fault of ours in an executor begins with."""

_HADOOP = "spark.hadoop."
_LOG = Path(__file__).parent / "log4j2.properties"
"""Spark's own words are for its developers; ours are said once, where they belong."""


@contextmanager
def lazy_session(
    master: str | None, remote: str | None, started: Callable[[SparkSession], None]
) -> Iterator[Callable[[bool], SparkSession]]:
    """Gives what starts a session when it is first needed; it ends with the command."""
    running: list[SparkSession] = []
    with ExitStack() as stack:

        def get(is_brief: bool) -> SparkSession:
            """`is_brief`: there is so little to do that Java's better compiler would not pay."""
            if not running:
                running.append(stack.enter_context(session(master, remote=remote, is_brief=is_brief)))
                started(running[0])
            return running[0]

        yield get


@contextmanager
def session(
    master: str | None, extra: dict[str, str] | None = None, remote: str | None = None, is_brief: bool = False
) -> Iterator[SparkSession]:
    """A session for one command: of a Connect server where that is given, else our own.

    Without a master it is the one of spark-submit, else this machine with all cores.
    """
    extra = extra or {}
    spark = _connected(remote, SETTINGS | extra) if remote is not None else _own(master, extra, is_brief)
    try:
        yield spark
    finally:
        spark.stop()


def _own(master: str | None, extra: dict[str, str], is_brief: bool) -> SparkSession:
    home = java.find()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    os.environ.setdefault("SPARK_DRIVER_MEMORY", java.memory(java.memory_of_machine()))  # what counts least of all
    compiler = " -XX:TieredStopAtLevel=1" if is_brief else ""
    options = {
        "spark.driver.extraJavaOptions": f"{_JAVA}{compiler} -Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.executor.extraJavaOptions": _JAVA,
    }
    builder = SparkSession.builder.appName("pulsar-ingress-pipeline")
    for key, value in (SETTINGS | spark_settings() | options | extra).items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ:  # spark-submit brings its own
        builder = builder.master("local[*]")
    return _started(builder)


def _connected(remote: str, settings: dict[str, str]) -> SparkSession:
    """A session of ours on that server, with what a session may set; the rest the server was started with."""
    parts = urlsplit(remote)
    if parts.scheme != "sc" or not parts.hostname:
        raise PipelineFault(f"--remote {remote}: is not the URL of a Spark Connect server: write sc://HOST:{PORT}")
    try:
        socket.create_connection((parts.hostname, parts.port or PORT), SECONDS).close()
    except OSError as error:
        raise PipelineFault(f"--remote {remote}: nobody answers there: {error.strerror or error}") from None
    builder = SparkSession.builder.remote(remote)
    for key, value in settings.items():
        if key.startswith(("spark.sql.", _HADOOP)):  # a session's settings are Hadoop's too
            builder = builder.config(key.removeprefix(_HADOOP), value)
    try:
        return builder.getOrCreate()
    except PySparkImportError as error:
        raise PipelineFault(
            f"Spark Connect needs more packages: pip install 'pulsar-ingress-proxy[connect]' ({error})"
        ) from None
    except PySparkException as error:
        raise PipelineFault(f"--remote {remote}: {str(error).partition(chr(10))[0]}") from None


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


def cause(error: Exception | str) -> str:
    """The last of the causes that Java or Python gives: what went wrong, not where."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    if named := [found[1] for line in lines if (found := _EXCEPTION.match(line))]:
        return named[-1].removeprefix(_OURS)
    before = [line for line in _WHERE.split(text)[0].splitlines() if line.strip()]
    return next(iter(before if before and before[0].startswith("[") else lines[-1:]), text)
