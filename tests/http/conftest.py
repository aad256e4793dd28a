"""What tests over HTTP share: raw brokers, sidecars before them, and the proof that nothing was left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from leftovers import tidy
from raw import RawBroker, Start, serving
from running_sidecar import starter
from wires import opened

__all__ = ["tidy"]


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Over TLS, the loop that `run` takes tells a protocol other things than asyncio's own."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(("test_tls", "test_limits", "test_drain")):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture
async def broker(tidy: None) -> AsyncIterator[RawBroker]:
    async with opened(RawBroker()) as one:
        yield one


@pytest.fixture
async def other(tidy: None) -> AsyncIterator[RawBroker]:
    """A second broker."""
    async with opened(RawBroker()) as one:
        yield one


@pytest.fixture
async def start(tidy: None) -> AsyncIterator[Start]:
    """Starts sidecars before brokers' URLs, with other settings of the config, and stops them at the end."""
    async with starter(serving) as begin:
        yield begin
