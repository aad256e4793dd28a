"""What tests of the binary protocol share: two scripted brokers, sidecars before them, and nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import uvloop
from leftovers import tidy
from playbooks import ScriptedBroker, Start, staged
from running_sidecar import starter
from wires import opened

__all__ = ["tidy"]


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `run` takes, and for what differs between them asyncio's own."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.name in ("test_binary_tls.py", "test_binary_streams.py", "test_binary_drain.py"):
        loops["asyncio"] = asyncio.new_event_loop
    return loops


@pytest.fixture
async def broker(tidy: None) -> AsyncIterator[ScriptedBroker]:
    async with opened(ScriptedBroker("broker-0")) as one:
        yield one


@pytest.fixture
async def other(tidy: None) -> AsyncIterator[ScriptedBroker]:
    """A second broker, which the address book knows too."""
    async with opened(ScriptedBroker("broker-1")) as one:
        yield one


@pytest.fixture
async def start(broker: ScriptedBroker, other: ScriptedBroker) -> AsyncIterator[Start]:
    """Starts sidecars before both, with other keys of the config."""
    async with starter(partial(staged, broker, other)) as begin:
        yield begin
