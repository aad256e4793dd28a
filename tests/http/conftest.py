"""What tests over HTTP share."""

from collections.abc import AsyncIterator

import pytest
from clusters import Simulate, simulated
from http_fixtures import begin, broker, ca, exchange, other, pytest_asyncio_loop_factories, secure, start, tidy
from running_sidecar import starter

__all__ = ["begin", "broker", "ca", "exchange", "other", "pytest_asyncio_loop_factories", "secure", "start", "tidy"]


@pytest.fixture
async def simulate(tidy: None) -> AsyncIterator[Simulate]:
    """Starts sidecars before simulated brokers, and stops them at the end."""
    async with starter(simulated) as begin:
        yield begin
