"""What tests of the rim share: raw brokers, sidecars before them, and the proof that nothing was left behind."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop
from raw import RawBroker, Served, Start, serving


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Over TLS, the loop that `run` takes tells a protocol other things than asyncio's own."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ("test_tls.py", "test_limits.py", "test_drain.py"):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture
async def tidy(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No task is left, no exception went unseen, and no error was logged."""
    # No TLS here: to read the system's CAs would take longer than most of these tests.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    gc.freeze()  # so that the collection at the end looks at what the test has made
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    yield
    while left := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
        _, pending = await asyncio.wait(left, timeout=5)
        assert not pending, f"left behind: {pending}"
    gc.collect()
    gc.unfreeze()
    assert not unseen
    errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not errors, [record.getMessage() for record in errors]


@pytest.fixture
async def broker(tidy: None) -> AsyncIterator[RawBroker]:
    one = RawBroker()
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def other(tidy: None) -> AsyncIterator[RawBroker]:
    """A second broker."""
    one = RawBroker()
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def start(tidy: None) -> AsyncIterator[Start]:
    """Starts sidecars before brokers' URLs, with other settings of the config, and stops them at the end."""
    async with AsyncExitStack() as stack:

        async def begin(*brokers: str, **settings: Any) -> Served:
            return await stack.enter_async_context(serving(*brokers, **settings))

        yield begin
