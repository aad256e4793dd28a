"""The fixture that proves that a test leaves nothing behind."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from running_sidecar import skip_system_cas


@pytest.fixture
async def tidy(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No task is left, no exception went unseen, and no error was logged."""
    skip_system_cas(monkeypatch)
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
