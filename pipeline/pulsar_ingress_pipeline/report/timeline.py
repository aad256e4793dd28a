"""Charts over time: columns that they share, their axis, cells of a heat map, lines, and what to read at a column."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_ingress_pipeline.report.marks import Markup, clip, number, tag
from pulsar_ingress_pipeline.report.names import shown
from pulsar_ingress_pipeline.report.records import Bins, Name
from pulsar_ingress_pipeline.report.scales import Linear, clock, time_ticks

ROW = 20.0
GAP = 3.0
LABEL = 16.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of time between `left` and `right`."""

    columns: Bins
    left: float
    right: float

    @classmethod
    def within(cls, columns: Bins, width: float) -> "Timeline":
        """Room for names on the left, if there is any to spare."""
        return cls(columns, 150.0 if width > 600 else 44.0, width - (14.0 if width > 600 else 2.0))

    @property
    def is_wide(self) -> bool:
        return self.right > 600

    def x(self, place: float) -> float:
        return Linear(0, self.columns.count, self.left, self.right)(place)

    def axis(self, top: float, bottom: float) -> Markup:
        """Times below `bottom`, and a line up to `top` at each."""
        marks = []
        for place, label in time_ticks(self.columns, 9 if self.is_wide else 4):
            x = self.x(place)
            marks.append(tag("path", d=f"M{number(x)} {number(top)}V{number(bottom)}", class_="grid"))
            anchor = "end" if x > self.right - 20 else "mid"
            marks.append(tag("text", label, x=x, y=bottom + 16, class_=f"soft {anchor}"))
        return tag("g", *marks)

    def since(self, place: float, top: float, bottom: float) -> Markup:
        """Where the report before this one ended."""
        x = number(self.x(place))
        return tag(
            "path", tag("title", "the report before this one"), d=f"M{x} {number(top)}V{number(bottom)}", class_="since"
        )

    def columns_to_read(self, top: float, bottom: float, words: Callable[[int], str | None]) -> Markup:
        """What a pointer shows; those who read a narrow page have none."""
        if not self.is_wide:
            return Markup()
        width = self.x(1) - self.x(0)
        marks = []
        for place in self.columns:
            said = words(place)
            if said is not None:
                title = tag("title", f"{clock(self.columns.time(place))}\n{said}")
                marks.append(tag("rect", title, x=self.x(place), y=top, width=width, height=bottom - top))
        return tag("g", *marks, class_="columns")

    def line(self, values: Mapping[int, float], y: Callable[[float], float], style: str) -> Markup:
        """A line through the middles of columns, with a gap where there is nothing."""
        path, before = "", -2
        for place in sorted(values):
            at = f"{number(self.x(place + 0.5))} {number(y(values[place]))}"
            alone = place + 1 not in values and place != before + 1
            path += f"M{at}h.1" if alone else f"L{at}" if place == before + 1 else f"M{at}"
            before = place
        return tag("path", d=path, class_=f"line {style}")

    def stack(
        self, values: Sequence[Mapping[int, float]], y: Callable[[float], float], styles: Sequence[str]
    ) -> Markup:
        """Bars on one another, the first at the bottom."""
        width = self.x(1) - self.x(0)
        slim = max(width - 1, width * 0.8)
        feet: dict[int, float] = defaultdict(float)
        paths = []
        for layer, style in zip(values, styles, strict=True):
            path = ""
            for place, value in sorted(layer.items()):
                if value > 0:
                    foot, head = y(feet[place]), y(feet[place] + value)
                    tall = max(foot - head, 0.8)
                    path += (
                        f"M{number(self.x(place))} {number(foot - tall)}h{number(slim)}v{number(tall)}h-{number(slim)}z"
                    )
                    feet[place] += value
            paths.append(tag("path", d=path, class_=style))
        return tag("g", *paths)

    def cells(self, rows: Sequence[Name], classes: Iterable[tuple[int, Name, str]], top: float, nobody: str) -> Markup:
        """A row a name, a cell a column, in the colour of its class: one path for all of a colour."""
        width = self.x(1) - self.x(0)
        slim = max(width - 0.6, width * 0.85)
        above = 0.0 if self.is_wide else LABEL  # a narrow page has no room for names but between the rows
        at = {name: top + above + place * (ROW + GAP + above) for place, name in enumerate(rows)}
        paths: dict[str, list[str]] = defaultdict(list)
        for place, name, style in classes:
            paths[style].append(
                f"M{number(self.x(place))} {number(at[name])}h{number(slim)}v{number(ROW)}h-{number(slim)}z"
            )
        return tag(
            "g",
            *(
                tag("rect", x=self.left, y=y, width=self.right - self.left, height=ROW, class_="track")
                for y in at.values()
            ),
            *(tag("path", d="".join(parts), class_=style) for style, parts in sorted(paths.items())),
            *(self._row_label(shown(name, nobody), y) for name, y in at.items()),
        )

    def _row_label(self, name: str, y: float) -> Markup:
        if self.is_wide:
            return tag("text", tag("title", name), clip(name, 20), x=self.left - 8, y=y + 14.5, class_="end")
        return tag("text", clip(name, 44), x=self.left, y=y - 4)

    def rows_height(self, rows: Sequence[Name]) -> float:
        return len(rows) * (ROW + GAP + (0.0 if self.is_wide else LABEL))
