"""Every product does in every scenario what docs/comparison.md says of it."""

from collections.abc import Iterator

import pytest
from cluster import Cluster, running
from comparison import GUARDED, OPEN, PAGE, outcome, verdicts
from rivals import PRODUCTS, Product, standing
from scenarios import SCENARIOS

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=[OPEN, GUARDED], ids=["open", "guarded"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as started:
        yield started


@pytest.fixture(params=PRODUCTS, ids=lambda product: product.name)
def product(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Product]:
    with standing(request.param, cluster) as started:
        yield started


@pytest.mark.timeout(600, func_only=True)
def test_comparison_page_matches_the_outcome_of_every_scenario(cluster: Cluster, product: Product) -> None:
    told = verdicts(PAGE.read_text())
    scenarios = [scenario for scenario in SCENARIOS if scenario.authorization == cluster.options.authorization]
    outcomes = {scenario.name: outcome(cluster, product, scenario) for scenario in scenarios}
    untrue = {name: why or "works" for name, why in outcomes.items() if (why is None) != told[name, product.name]}
    assert not untrue
