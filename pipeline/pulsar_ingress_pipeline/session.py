"""Starts a Spark session with its settings and a suitable Java, and turns Spark's errors into one line.

A session on a Spark Connect server needs no Java.
"""

import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
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
"""The default port of Spark Connect."""
SECONDS = 20.0
"""Timeout for a connection to a Connect server; Spark's client would retry for many minutes."""

SETTINGS = {
    # Times are UTC in events, partitions and windows.
    "spark.sql.session.timeZone": "UTC",
    # Otherwise each of ten thousand files would be a task.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}
"""Settings that the meaning of tables depends on, and that keep Spark quiet."""

# Compiling Spark's planner with C2 costs more than a small commit. Code that runs for each row is still compiled.
_JAVA = (
    "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000"
    " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

_NOISE = re.compile(r"\s*$|WARNING: |Picked up |\s+at |:: ")
"""Lines that Java prints at every start, and stack traces."""

_WHERE = re.compile(r"^(== (SQL|DataFrame)|JVM stacktrace|Driver stacktrace)", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:: |Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error|Fault): \S.*)")
_OURS = f"{PipelineFault.__module__}.{PipelineFault.__qualname__}: "
"""The beginning of a PipelineFault that was raised in an executor."""

_LOG = Path(__file__).parent / "log4j2.properties"
"""Silences Spark's log: errors are reported by the command."""


@contextmanager
def lazy_session(
    master: str | None, remote: str | None, started: Callable[[SparkSession], None]
) -> Iterator[Callable[[bool], SparkSession]]:
    """Gives a function that starts the session when it is first called."""
    running: list[SparkSession] = []
    with ExitStack() as stack:

        def get(is_brief: bool) -> SparkSession:
            """`is_brief`: there is so little to do that Java's second compiler would not pay."""
            if not running:
                running.append(stack.enter_context(session(master, remote=remote, is_brief=is_brief)))
                started(running[0])
            return running[0]

        yield get


@contextmanager
def session(
    master: str | None, extra: dict[str, str] | None = None, remote: str | None = None, is_brief: bool = False
) -> Iterator[SparkSession]:
    """A session for one command, on a Connect server if one is given. Its errors become a PipelineFault.

    Without a master it is the one of spark-submit, or else this machine with all cores.
    """
    extra = extra or {}
    spark = _connected(remote, SETTINGS | extra) if remote is not None else _own(master, extra, is_brief)
    try:
        yield spark
    except SPARK_FAULTS as error:
        raise PipelineFault(f"Spark: {cause(error)}") from None
    finally:
        spark.stop()


def _own(master: str | None, extra: dict[str, str], is_brief: bool) -> SparkSession:
    home = java.find()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    os.environ.setdefault("SPARK_DRIVER_MEMORY", java.memory(java.memory_of_machine()))  # the user may set it elsewhere
    compiler = " -XX:TieredStopAtLevel=1" if is_brief else ""
    options = {
        "spark.driver.extraJavaOptions": f"{_JAVA}{compiler} -Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.executor.extraJavaOptions": _JAVA,
    }
    settings: dict[str, Any] = SETTINGS | spark_settings() | options | extra
    builder = SparkSession.builder.appName("pulsar-ingress-pipeline").config(map=settings)
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ:  # spark-submit brings its own
        builder = builder.master("local[*]")
    return _started(builder)


def _connected(remote: str, settings: dict[str, str]) -> SparkSession:
    """A session on a Connect server, with the settings that a session may change."""
    parts = urlsplit(remote)
    if parts.scheme != "sc" or not parts.hostname:
        raise PipelineFault(f"--remote {remote}: is not the URL of a Spark Connect server: write sc://HOST:{PORT}")
    try:
        socket.create_connection((parts.hostname, parts.port or PORT), SECONDS).close()
    except OSError as error:
        raise PipelineFault(f"--remote {remote}: cannot connect: {error.strerror or error}") from None
    allowed: dict[str, Any] = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    try:
        return SparkSession.builder.remote(remote).config(map=allowed).getOrCreate()
    except PySparkImportError as error:
        raise PipelineFault(
            f"Spark Connect needs more packages: pip install 'pulsar-ingress-proxy[connect]' ({error})"
        ) from None
    except PySparkException as error:
        raise PipelineFault(f"--remote {remote}: {str(error).partition(chr(10))[0]}") from None


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Start the session. Java's output at the start is shown only if it fails."""
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
    """The last cause in an error of Java or Python, without the place in the code."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    if named := [found[1] for line in lines if (found := _EXCEPTION.match(line))]:
        return named[-1].removeprefix(_OURS)
    before = [line for line in _WHERE.split(text)[0].splitlines() if line.strip()]
    return next(iter(before if before and before[0].startswith("[") else lines[-1:]), text)
