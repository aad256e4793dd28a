"""A chart with its words: drawn wide and narrow, described, and its numbers beside it in a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pulsar_ingress_pipeline.report.marks import Child, Markup, join, tag
from pulsar_ingress_pipeline.report.records import Report

WIDE, NARROW = 1040.0, 350.0


@dataclass(frozen=True, slots=True)
class Drawing:
    """What stands in an SVG of this size."""

    body: Markup
    width: float
    height: float


def figure(
    title: str, said: str, draw: Callable[[float], Drawing], *below: Child, widths: Sequence[float] = ()
) -> Markup:
    """`said` is for those who do not see the picture, and for those who do, its first sentence."""
    wide, narrow = widths or (WIDE, NARROW)
    return tag("figure", _svg(title, said, draw(wide), "wide"), _svg(title, said, draw(narrow), "narrow"), *below)


def _svg(title: str, said: str, drawing: Drawing, size: str) -> Markup:
    view = f"0 0 {drawing.width:g} {drawing.height:g}"
    return tag("svg", drawing.body, class_=size, view_box=view, role="img", aria_label=f"{title}: {said}")


def caption(*words: Child) -> Markup:
    return tag("figcaption", *words)


def keys(entries: Sequence[tuple[str, str]]) -> Markup:
    """A legend: class of the colour, and its meaning."""
    dot = [
        tag("svg", tag("rect", width=12, height=12, rx=2, class_=colour), view_box="0 0 12 12", aria_hidden="true")
        for colour, _ in entries
    ]
    return tag("ul", *(tag("li", mark, word) for mark, (_, word) in zip(dot, entries, strict=True)), class_="keys")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `style` is `n` for numbers, `time`, `name`, `cure` or nothing."""

    head: str
    style: str = ""


def names(*heads: str) -> list[Column]:
    return [Column(head, "name") for head in heads]


def counts(*heads: str) -> list[Column]:
    return [Column(head, "n") for head in heads]


def times(*heads: str) -> list[Column]:
    return [Column(head, "time") for head in heads]


def table(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[Child]], left: int = 0, style: str = ""
) -> Markup:
    """`left` is how many more rows there are."""
    heads = tag("tr", *(tag("th", column.head, scope="col", class_=column.style or None) for column in columns))
    body = [
        tag("tr", *(_cell(column, place, cell) for place, (column, cell) in enumerate(zip(columns, row, strict=True))))
        for row in rows
    ]
    if left:
        body.append(tag("tr", tag("td", f"and {left:,} more", colspan=len(columns), class_="soft")))
    inner = tag("table", tag("caption", title), tag("thead", heads), tag("tbody", *body), class_=style or None)
    return tag("div", inner, class_="scroll whole" if style else "scroll", tabindex=0, role="region", aria_label=title)


def numbers(title: str, columns: Sequence[Column], rows: Sequence[Sequence[Child]], left: int = 0) -> Markup:
    """The table behind a chart, folded."""
    return tag(
        "details", tag("summary", f"The numbers: {title[0].lower()}{title[1:]}"), table(title, columns, rows, left)
    )


def section(anchor: str, title: str, *children: Child) -> Markup:
    return tag(
        "section", tag("h2", title, id=f"{anchor}-title"), *children, id=anchor, aria_labelledby=f"{anchor}-title"
    )


def bar(share: float, style: str = "miss") -> Markup:
    """A small bar for a table's cell, which has the number too."""
    whole = tag("rect", width=110, height=10, rx=2, class_="track")
    part = tag("rect", width=max(110 * share, 1.5), height=10, rx=2, class_=style)
    return tag("svg", whole, part, view_box="0 0 110 10", aria_hidden="true")


def _cell(column: Column, place: int, cell: Child) -> Markup:
    if place == 0:
        return tag("th", cell, scope="row", class_=column.style or None)
    return tag("td", cell, class_=column.style or None, data_label=column.head)


def nothing(report: Report, name: str, what: str) -> Markup:
    """Instead of a chart."""
    if name in report.absent:
        return sentence("The table ", tag("code", name), " is not there.")
    return sentence(f"No {what}.")


def listing(*items: Child) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def sentence(*parts: Child) -> Markup:
    return tag("p", join(*parts))
