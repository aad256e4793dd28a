"""The fixtures of the tests with real brokers."""

from guarded_cluster import guarded
from pulsar_fixtures import cluster, namespace, pytest_collection_modifyitems, pytest_runtest_makereport

__all__ = ["cluster", "guarded", "namespace", "pytest_collection_modifyitems", "pytest_runtest_makereport"]
