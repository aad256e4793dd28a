"""Takes the pictures of the console in docs/, of a demo that has run a while: run it as a program.

Under --all every view is taken besides, for a desk and a phone, light and dark, into a folder: to be looked at.
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, expect

sys.path.insert(0, str(Path(__file__).parents[1]))
from browsers import DESK, PHONE, Theme, launched, opened

DOCS = Path(__file__).parents[3] / "docs"
WIDE = (1200, 640)
VIEWS = ("overview", "ingresses", "book", "decisions", "what-if", "config", "changes")
TOPIC = "/lookup/v2/topic/persistent/shop/orders/topic-7"


@asynccontextmanager
async def demo() -> AsyncIterator[str]:
    """The demo, and where its console is."""
    named = {**os.environ, "POD_NAME": "gateway-0"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pulsar_ingress_proxy", "demo", stdout=asyncio.subprocess.PIPE, env=named
    )
    assert child.stdout is not None
    try:
        async for line in child.stdout:
            if found := re.search(rb"the console\s+(http://\S+/)", line):
                yield found[1].decode()
                break
    finally:
        child.terminate()
        await child.wait()


async def asked(page: Page) -> None:
    """A question, and its answer."""
    await page.get_by_label("URL, as the client sees it").fill(f"https://pulsar.example.com{TOPIC}")
    await page.get_by_label("Headers").fill("X-Pulsar-ListenerName: external\nAuthorization: Bearer eyJhbGciOi…")
    location = f"http://pulsar-broker-1.pulsar-broker.pulsar.svc.cluster.local:8080{TOPIC}"
    await page.get_by_label("And if a broker redirects to").fill(location)
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#verdict")).to_contain_text("Listener external")


async def settled(page: Page, view: str) -> None:
    """Wait until the view has all it shows."""
    await expect(page.locator("#pills")).to_contain_text("live")
    match view.partition("?")[0]:
        case "overview":
            await expect(page.locator("#charts svg")).to_have_count(3)
        case "book":
            await expect(page.locator("#checked")).to_contain_text("addresses reachable", timeout=60_000)
        case "decisions":
            await page.locator("#decisions tbody button").first.click()
            await expect(page.locator("#decisions .details").first).to_be_visible()
        case "config":
            await expect(page.locator("#config tbody tr").first).to_be_visible()
        case "what-if":
            await asked(page)


async def take(
    browser: Browser, url: str, view: str, file: Path, size: tuple[int, int], theme: Theme, sharp: bool
) -> None:
    async with opened(browser, f"{url}#/{view}", size, theme, sharp) as (page, _):
        await settled(page, view)
        await page.evaluate("document.activeElement.blur()")
        await page.screenshot(path=file, full_page=True)


async def run(seconds: float, folder: Path | None) -> None:
    async with demo() as url, launched() as browser:
        await asyncio.sleep(seconds)  # the charts are to have something to show
        await take(browser, url, "overview", DOCS / "console-overview.png", WIDE, "light", True)
        search = "decisions?only=miss&find=orders/topic-3"
        await take(browser, url, search, DOCS / "console-decisions.png", WIDE, "light", True)
        await take(browser, url, "what-if", DOCS / "console-what-if.png", WIDE, "light", True)
        if folder is not None:
            await take_all(browser, url, folder)


async def take_all(browser: Browser, url: str, folder: Path) -> None:
    themes: tuple[Theme, ...] = ("light", "dark")
    for view in VIEWS:
        for name, size in (("desk", DESK), ("phone", PHONE)):
            for theme in themes:
                await take(browser, url, view, folder / f"{view}-{name}-{theme}.png", size, theme, False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=200, help="that the demo runs beforehand")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every view besides")
    options = parser.parse_args()
    if options.all is not None:
        options.all.mkdir(parents=True, exist_ok=True)
    asyncio.run(run(options.seconds, options.all))


if __name__ == "__main__":
    main()
