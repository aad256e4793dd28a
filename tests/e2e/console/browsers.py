"""A real browser, and pages of it that complain of nothing."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from caching import Missing
from playwright.async_api import Browser, Page, async_playwright

Theme = Literal["light", "dark"]
DESK = (1280, 860)
PHONE = (360, 740)


def chromium() -> str:
    """Where it is; `tests/e2e/console/chromium.sh` puts it there."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise Missing("no chromium on the PATH: run sh tests/e2e/console/chromium.sh")


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # As root there is no sandbox; what is opened is our own page.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=chromium(), args=options)
        try:
            yield browser
        finally:
            await browser.close()


class Complaints(list[str]):
    """What went wrong in a page: errors of its scripts, and what its policy forbade."""

    def listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", lambda said: self.append(f"{said.type}: {said.text}") if said.type == "error" else None)


@asynccontextmanager
async def opened(
    browser: Browser, url: str, size: tuple[int, int] = DESK, theme: Theme = "light", sharp: bool = False
) -> AsyncIterator[tuple[Page, Complaints]]:
    """A page in a browser that remembers nothing."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,
        device_scale_factor=2 if sharp else 1,
        reduced_motion="reduce",
    )
    context.set_default_timeout(15_000)
    try:
        page = await context.new_page()
        complaints = Complaints()
        complaints.listen(page)
        await page.goto(url)
        yield page, complaints
    finally:
        await context.close()
