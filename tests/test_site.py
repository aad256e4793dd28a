"""The documentation as a site: every page is in it, all links lead somewhere, and it loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parent.parent
NAVIGATION: list[dict[str, Any]] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
NOT_PROSE = ("code", "script", "h1", "h2", "h3", "h4")


class BuiltPage(HTMLParser):
    """What a page loads and links to, its anchors, and its prose."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.in_article = False
        self.in_code = 0  # or in a heading, which may begin with a number
        self.prose = ""
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.in_article |= tag == "article"
        self.in_code += tag in NOT_PROSE
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.loads.update(values[name] for name in ("src", "srcset", "poster", "data") if name in values)
        if "href" in values:
            (self.links if tag == "a" else self.loads).add(values["href"])

    def handle_endtag(self, tag: str) -> None:
        self.in_article &= tag != "article"
        self.in_code -= tag in NOT_PROSE

    def handle_data(self, data: str) -> None:
        if self.in_article and not self.in_code:
            self.prose += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def built_pages(site: Path) -> dict[Path, BuiltPage]:
    return {file: BuiltPage(file) for file in site.rglob("*.html") if file.name != "404.html"}


def test_every_page_of_the_documentation_can_be_reached_from_the_first(
    site: Path, built_pages: dict[Path, BuiltPage]
) -> None:
    linked = built_pages[site / "index.html"].links
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        assert str(page.with_suffix(".html")).replace("README", "index") in linked


def test_pages_load_only_files_of_the_site(site: Path, built_pages: dict[Path, BuiltPage]) -> None:
    for file, page in built_pages.items():
        assert len(page.loads) > 3
        for load in page.loads:
            assert (file.parent / load).exists(), f"{file}: {load}"
        assert 'class="mermaid"' not in file.read_text(), "the theme would fetch what draws it"
    for sheet in site.rglob("*.css"):
        for source in re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", sheet.read_text()):
            assert source.startswith("data:"), f"{sheet}: {source}"


def test_links_of_the_site_lead_to_pages_and_anchors_of_it(built_pages: dict[Path, BuiltPage]) -> None:
    for file, page in built_pages.items():
        for link in page.links:
            scheme, host, path, _, anchor = urlsplit(link)
            if scheme or host:
                continue
            target = (file.parent / path).resolve() if path else file
            assert target in built_pages, f"{file}: {link}"
            assert not anchor or unquote(anchor) in built_pages[target].anchors, f"{file}: {link}"


def test_no_markdown_is_left_in_the_text_of_the_site(built_pages: dict[Path, BuiltPage]) -> None:
    """The site's Markdown needs a blank line before a list, and four spaces before what belongs to an item."""
    for file, page in built_pages.items():
        assert not re.search(r"^\s*(?:- |\d+\. |\|.*\||```)|\]\(", page.prose, re.MULTILINE), file


def test_the_list_of_pages_has_the_sections_and_pages_of_the_site() -> None:
    listed: dict[str, list[str]] = {}
    for section, row in re.findall(r"^\| \*\*(.+)\*\* \||^(\| .*\]\(.*)$", (ROOT / "docs/README.md").read_text(), re.M):
        if section:
            listed[section] = []
        else:
            links = re.findall(r"\]\(([^)#]+)\)", row)
            list(listed.values())[-1].extend(str((ROOT / "docs" / link).resolve().relative_to(ROOT)) for link in links)
    assert listed == {
        section: [path for path in pages_of(parts) if path != "docs/README.md" and "runbooks" not in path]
        for part in NAVIGATION
        for section, parts in part.items()
    }


def pages_of(parts: list[Any]) -> list[str]:
    """The paths of a section, without those of a section in it."""
    paths = (next(iter(part.values())) if isinstance(part, dict) else part for part in parts)
    return [path for path in paths if isinstance(path, str)]
