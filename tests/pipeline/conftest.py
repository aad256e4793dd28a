"""One Spark session for all tests of the pipeline: starting one takes longer than most tests."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.session import session
from pulsar_ingress_pipeline.tables.derivation import FOR_SMALL

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for Spark to start, which a busy machine may take a minute for."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))


# The end-to-end tests have the settings that users have.
SMALL = {
    **FOR_SMALL,
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("local[2]", SMALL) as spark:
        yield spark
    with warnings.catch_warnings():
        # py4j leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
