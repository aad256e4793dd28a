"""The session of a Spark Connect server: it has the cluster, the client needs no Java."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import PySparkImportError
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.faults import PipelineFault

PORT = 15002
SECONDS = 20.0
"""So long a server may take to open its port; Spark's own client would try for many minutes."""

_HADOOP = "spark.hadoop."


def connected(remote: str, settings: Mapping[str, str]) -> SparkSession:
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
