"""The picture of a dashboard: numbers as people read them, and every panel where the dashboard has it."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from dashboards.__main__ import HERE
from dashboards.answers import Series, Window, called, substituted
from dashboards.drawing import HEAD, WIDTH, picture, place
from dashboards.formats import shown, ticks

SVG = "{http://www.w3.org/2000/svg}"
WINDOW = Window(1_000_000.0, 1_000_360.0, 60.0, 15.0)
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(HERE.glob("*.json"))}


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0.98765, "percentunit", 2, "98.77%"),
        (0.5, "percentunit", None, "50%"),
        (0.0123, "s", None, "12.3 ms"),
        (0.00045, "s", None, "450 µs"),
        (2.5, "s", None, "2.5 s"),
        (5400, "s", 0, "2 h"),
        (0, "s", None, "0 s"),
        (12.34, "reqps", None, "12.3 req/s"),
        (1234567, "short", None, "1.23 Mil"),
        (3 << 20, "bytes", None, "3 MiB"),
        (0, "short", None, "0"),
        (200, "short", None, "200"),
    ],
)
def test_numbers_are_shown_rounded_and_with_a_readable_unit(
    value: float, unit: str, decimals: int | None, text: str
) -> None:
    assert shown(value, unit, decimals) == text


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (43, [0, 20, 40, 60]),
        (0.98, [0, 0.25, 0.5, 0.75, 1]),
        (3, [0, 1, 2, 3]),
        (0, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_axes_have_round_numbers(most: float, marks: list[float]) -> None:
    assert ticks(most) == pytest.approx(marks)


def test_query_variables_and_legends_are_filled_in_as_grafana_does() -> None:
    asked = substituted('rate(x{job=~"$job", instance=~"$instance"}[$__rate_interval]) + y[$__range]', WINDOW)
    assert asked == 'rate(x{job=~".+", instance=~".+"}[15s]) + y[360s]'
    assert called("{{ingress}} → {{ listener }}{{none}}", {"ingress": "a", "listener": "b"}) == "a → b"


def answered(panel: dict[str, Any]) -> list[Series]:
    """Two series for each query, with a gap in the first."""
    series = []
    for target in panel.get("targets", ()):
        for name in ("one", "<two>"):
            labels = {"instance": name, "job": "sidecars", "version": "1", "cluster": "c", "command": "run"}
            times = range(7) if name == "one" else (0, 1, 4, 5)
            samples = tuple((WINDOW.start + 60 * n, float(n % 2)) for n in times)
            series.append(Series(target.get("legendFormat", "") and name, labels, samples, target["refId"]))
    return series


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_is_drawn_in_its_place_and_within_its_box(name: str) -> None:
    board = BOARDS[name]
    drawn = ElementTree.fromstring(picture(board, {panel["id"]: answered(panel) for panel in board["panels"]}, WINDOW))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    groups = drawn.findall(f"{SVG}g")
    assert len(groups) == len(panels)
    for panel, group in zip(panels, groups, strict=True):
        box = place(panel)
        paper = group.find(f"{SVG}rect")
        assert paper is not None
        assert (float(paper.get("x", "")), float(paper.get("y", ""))) == (box.x, box.y)
        texts = [element.text for element in group.findall(f"{SVG}text")]
        assert texts[0] == panel["title"]
        assert "No data" not in texts
        for x, y in points(group):
            assert box.x - 0.5 <= x <= box.x + box.w + 0.5, panel["title"]
            assert box.y - 0.5 <= y <= box.y + box.h + 0.5, panel["title"]


def points(group: ElementTree.Element) -> list[tuple[float, float]]:
    """Where things begin and end."""
    found = []
    for element in group.iter():
        for pair in element.get("points", "").split():
            at = pair.split(",")
            found.append((float(at[0]), float(at[1])))
        if element.get("x") is not None:
            x, y = float(element.get("x", "")), float(element.get("y", ""))
            found += [(x, y), (x + float(element.get("width", 0)), y + float(element.get("height", 0)))]
    return found


def test_panels_do_not_overlap_and_fill_the_width() -> None:
    boxes = [place(panel) for panel in BOARDS["overview"]["panels"]]
    assert min(box.x for box in boxes) > 0
    assert max(box.x + box.w for box in boxes) < WIDTH
    assert min(box.y for box in boxes) == HEAD
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart = one.x + one.w <= other.x or other.x + other.w <= one.x
            assert apart or one.y + one.h <= other.y or other.y + other.h <= one.y


def test_panels_without_answers_show_no_data_or_a_dash() -> None:
    board = BOARDS["overview"]
    drawn = picture(board, {}, WINDOW)
    plots = [panel for panel in board["panels"] if panel["type"] in ("timeseries", "table")]
    assert drawn.count(">No data<") == len(plots)
    assert drawn.count(">–<") == sum(panel["type"] == "stat" for panel in board["panels"])


def test_a_number_has_the_colour_that_its_thresholds_give_it() -> None:
    board = BOARDS["overview"]
    (ratio,) = (panel for panel in board["panels"] if panel["title"] == "Hit ratio")

    def colour(value: float) -> str:
        drawn = picture(board, {ratio["id"]: [Series("", {}, ((0.0, value),))]}, WINDOW)
        found = re.search(rf'fill="(#\w+)" text-anchor="middle">{value * 100:.2f}%<', drawn)
        assert found is not None
        return found[1]

    assert len({colour(0.5), colour(0.96), colour(0.999)}) == 3
    assert colour(0.995) == colour(1.0)
