"""What tests of the console share."""

from collections.abc import AsyncIterator

import pytest
from consoles import Place, serving
from simulated.cluster import SimulatedCluster


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    """A sidecar that nobody has asked anything yet."""
    async with SimulatedCluster(brokers=3) as cluster, serving(cluster) as one:
        yield one
