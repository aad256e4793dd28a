"""What the console's tests share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browsers import launched
from console_world import ObjectStore, made
from playwright.async_api import Browser


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with made(tmp_path) as world:
        yield world


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with launched() as one:
        yield one
