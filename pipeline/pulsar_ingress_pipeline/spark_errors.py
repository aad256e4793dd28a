"""What Spark raises, in one line."""

import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

SPARK_FAULTS = (PySparkException, Py4JError)

_WHERE = re.compile(r"^(== (SQL|DataFrame)|JVM stacktrace|Driver stacktrace)", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:: |Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error|Fault): \S.*)")


def cause(error: Exception | str) -> str:
    """The last of the causes that Java or Python gives: what went wrong, not where."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    if named := [found[1] for line in lines if (found := _EXCEPTION.match(line))]:
        return named[-1]
    before = [line for line in _WHERE.split(text)[0].splitlines() if line.strip()]
    return next(iter(before if before and before[0].startswith("[") else lines[-1:]), text)
