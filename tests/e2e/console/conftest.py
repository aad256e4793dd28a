"""What the console's tests share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browsers import launched
from console_stack import ConsoleStack, made
from playwright.async_api import Browser


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[ConsoleStack]:
    async with made(tmp_path) as stack:
        yield stack


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with launched() as one:
        yield one
