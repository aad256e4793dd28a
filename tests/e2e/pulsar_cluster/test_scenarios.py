"""The scenarios that docs/comparison.md tells of, through the sidecar; what tokens do with it, other tests say."""

from collections.abc import Iterator

import pytest
from cluster import Cluster, running
from comparison import OPEN, PAGE, verdicts
from rivals import PRODUCTS, SIDECAR, Product, standing
from scenarios import SCENARIOS, Scenario


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(OPEN) as started:
        yield started


@pytest.fixture(scope="module")
def sidecar(cluster: Cluster) -> Iterator[Product]:
    with standing(SIDECAR, cluster) as started:
        yield started


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.authorization], ids=str)
def test_sidecar_passes_comparison_scenario(cluster: Cluster, sidecar: Product, scenario: Scenario) -> None:
    scenario.run(cluster, sidecar)


def test_comparison_page_covers_every_scenario_and_product() -> None:
    told = verdicts(PAGE.read_text())
    assert told.keys() == {(scenario.name, product.name) for scenario in SCENARIOS for product in PRODUCTS}
    assert all(told[scenario.name, SIDECAR.name] for scenario in SCENARIOS)
