"""A hook of MkDocs: the site has the paths of the repository, and pages that are outside docs/.

Links between pages then lead to the same page in both. A link to another file, such as a test, becomes its text.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
CODE_OR_LINK = re.compile(
    r"^[ ]*```.*?^[ ]*```$ | `[^`\n]+` | \[( (?:`[^`]*`|[^\]`])+ )\] \( ([^)#:\s]+) (?:\#[^)]*)? \)",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Puts the files of docs/ where the repository has them, and adds what the config names elsewhere."""

    def of_repository(path: str) -> File:
        return File(path, str(ROOT), config.site_dir, config.use_directory_urls)

    moved = [file for file in files if file.src_dir == config.docs_dir]
    for file in moved:
        files.remove(file)
        files.append(of_repository(f"docs/{file.src_uri}"))
    for path in (*pages(config.nav), config.theme["logo"], *config.extra_css, *config.extra["polyfills"]):
        if not path.startswith("docs/"):
            files.append(of_repository(path))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    def kept_or_text(found: re.Match[str]) -> str:
        text, link = found.groups()
        if link is None:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link))
        is_file_alone = files.get_file_from_path(target) is None and (ROOT / target).exists()
        if text.strip("`") == posixpath.basename(target):
            text = f"`{target}`"  # a name alone would not say where the file is
        return text if is_file_alone else found[0]

    return CODE_OR_LINK.sub(kept_or_text, markdown)


def pages(nav: Any) -> Iterator[str]:
    """The paths in a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(part)
