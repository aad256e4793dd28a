"""The page: whole by itself, nothing in it that its own policy forbids, and in the colours of the house."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from consoles import Place

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "proxy/pulsar_ingress_proxy/console/page"
FILES = sorted(path.name for path in PAGE.iterdir())
every_file = pytest.mark.parametrize("name", FILES)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.links: list[dict[str, str | None]] = []
        """In the navigation."""
        self.script = ""
        self._is_navigation = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._is_navigation |= tag == "nav"
        if self._is_navigation and tag == "a":
            self.links.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._is_navigation &= tag != "nav"

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            self.script += data.strip()


def elements() -> Elements:
    parser = Elements()
    parser.feed((PAGE / "index.html").read_text())
    return parser


def test_markup_has_no_inline_script_style_or_event_handler() -> None:
    parsed = elements()
    assert parsed.script == ""
    assert all(tag != "style" for tag, _ in parsed.found)
    assert [name for _, given in parsed.found for name in given if name == "style" or name.startswith("on")] == []


@every_file
def test_page_files_contain_only_allowed_urls(name: str) -> None:
    text = (PAGE / name).read_text()
    urls = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`]*", text))
    assert urls <= {
        "http://www.w3.org/2000/svg",
        "https://pulsar.example.com/lookup/v2/topic/persistent/public/default/orders",
        "http://pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local:8080/…",
    }


@every_file
def test_page_files_never_build_markup_or_code_from_strings(name: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|javascript:"
    assert not re.search(forbidden, (PAGE / name).read_text())


async def test_referenced_files_are_exactly_the_page_files_and_are_served(place: Place) -> None:
    named = {given[key] for _, given in elements().found for key in ("src", "href") if given.get(key)}
    for name in FILES:
        named |= {f"/{found}" for found in re.findall(r'from "\./([\w-]+\.js)"', (PAGE / name).read_text())}
    files = {path for path in named if path and path.startswith("/") and not path.startswith("/api/")}
    assert files == {f"/{name}" for name in FILES} - {"/index.html"}
    for path in ("/", *sorted(files)):
        answer = await place.get(path)
        assert answer.status == 200
        source = PAGE / ("index.html" if path == "/" else path.removeprefix("/"))
        assert await answer.text() == source.read_text()
    assert (await place.get("/main.js")).content_type == "text/javascript"


@pytest.mark.parametrize("path", ["/../model.py", "/page/main.js", "/%2e%2e/answers.py", "/__init__.py", "/index.html"])
async def test_paths_other_than_the_page_files_answer_404(place: Place, path: str) -> None:
    answer = await place.get(path)
    assert answer.status == 404


def palettes(css: str) -> list[dict[str, str]]:
    """The colours by name, for light and for dark."""
    return [dict(re.findall(r"--([\w]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)]


def test_console_colours_match_those_of_the_report() -> None:
    ours = palettes((PAGE / "console.css").read_text())
    reports = palettes((ROOT / "pipeline/pulsar_ingress_pipeline/report/style.css").read_text())
    assert len(ours) == len(reports) == 2
    for mine, theirs in zip(ours, reports, strict=True):
        assert mine
        assert mine.items() <= theirs.items()


def test_every_view_has_a_link_a_title_and_an_element() -> None:
    parsed = elements()
    ids = {given.get("id") for _, given in parsed.found}
    links = [str(given["href"]).removeprefix("#/") for given in parsed.links]
    assert links == ["overview", "ingresses", "book", "decisions", "what-if", "config", "changes"]
    assert {*links, *(f"{name}-title" for name in links)} <= ids
