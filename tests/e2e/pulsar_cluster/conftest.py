"""The fixtures of the tests with real brokers."""

from pulsar_fixtures import cluster, namespace, pytest_collection_modifyitems, pytest_runtest_makereport

__all__ = ["cluster", "namespace", "pytest_collection_modifyitems", "pytest_runtest_makereport"]
