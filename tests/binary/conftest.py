"""What tests of the binary protocol share: two scripted brokers, sidecars before them, and nothing left behind."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop
from playbooks import ScriptedBroker, Stage, Start, staged


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `run` takes, and for what differs between them asyncio's own."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.name in ("test_binary_tls.py", "test_binary_streams.py", "test_binary_drain.py"):
        loops["asyncio"] = asyncio.new_event_loop
    return loops


@pytest.fixture
async def tidy(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No task is left, no exception went unseen, and no error was logged."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    yield
    while left := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
        _, pending = await asyncio.wait(left, timeout=5)
        assert not pending, f"left behind: {pending}"
    assert not unseen
    errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not errors, [record.getMessage() for record in errors]


@pytest.fixture
async def broker(tidy: None) -> AsyncIterator[ScriptedBroker]:
    one = ScriptedBroker("broker-0")
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def other(tidy: None) -> AsyncIterator[ScriptedBroker]:
    """A second broker, which the address book knows too."""
    one = ScriptedBroker("broker-1")
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def start(broker: ScriptedBroker, other: ScriptedBroker) -> AsyncIterator[Start]:
    """Starts sidecars before both, with other keys of the config."""
    async with AsyncExitStack() as stack:

        async def begin(**keys: Any) -> Stage:
            return await stack.enter_async_context(staged(broker, other, **keys))

        yield begin
