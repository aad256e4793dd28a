"""The cluster that all tests of this folder share, and what is shown of it when one of them fails."""

import secrets
from collections.abc import Generator, Iterator

import pytest
from brokers import Options
from cluster import Cluster, running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running(Options()) as started:
        yield started


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A new one with one bundle, which no broker has taken yet."""
    name = f"public/test-{secrets.token_hex(4)}"
    made = cluster.request(
        "PUT", f"{cluster.brokers[0].web}/admin/v2/namespaces/{name}", {"bundles": {"numBundles": 1}}
    )
    assert made.status == 204, made
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A cluster may take longer to start than a test to run; it has its own limits."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        report.sections.append(("last lines of the cluster's logs", cluster.tails(since=call.start)))
    return report
