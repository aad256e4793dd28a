"""The documentation's site as a reader opens it from a disk, without a server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browsers import PHONE, opened
from playwright.async_api import Browser, Request, expect

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    return folder


async def test_search_of_the_site_finds_a_page_without_a_server_or_a_network(site: Path, browser: Browser) -> None:
    async with opened(browser, (site / "docs" / "install.html").as_uri()) as (page, complaints):
        elsewhere: list[str] = []

        def note(request: Request) -> None:
            if not request.url.startswith((site.as_uri(), "data:")):
                elsewhere.append(request.url)

        page.on("request", note)
        await page.get_by_placeholder("Search").press_sequentially("quarantine")
        await page.locator("a.md-search-result__link", has_text="Lines are in quarantine").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Lines are in quarantine")
        assert complaints == []
        assert elsewhere == []


@pytest.mark.timeout(180)
async def test_no_page_of_the_site_is_wider_than_the_screen_of_a_phone(site: Path, browser: Browser) -> None:
    async with opened(browser, (site / "index.html").as_uri(), PHONE) as (page, complaints):
        for file in pages_of(site):
            await page.goto(file.as_uri())
            wider = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, file
        assert complaints == []


def pages_of(site: Path) -> list[Path]:
    """Without the page for errors, whose addresses are those of a server."""
    return sorted(file for file in site.rglob("*.html") if file.name != "404.html")
