"""Bars that lie: a name, a bar of one or several parts, a number."""

from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_ingress_pipeline.report.figures import Drawing
from pulsar_ingress_pipeline.report.marks import clip, tag
from pulsar_ingress_pipeline.report.scales import compact


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[tuple[float, str], ...]
    """Amounts and the class of their colour, from the left."""
    note: str = ""
    """What stands behind the number."""

    @property
    def amount(self) -> float:
        return sum(amount for amount, _ in self.parts)


def bar_chart(bars: Sequence[Bar], width: float, names: float = 0.34) -> Drawing:
    """`names` is the share of a wide page that names take; on a narrow one they stand above their bars."""
    is_wide = width > 450
    left = width * names if is_wide else 0.0
    pitch, thick = (26.0, 16.0) if is_wide else (38.0, 14.0)
    room = 16 + 7.0 * max((len(_number(bar)) for bar in bars), default=0)
    most = max((bar.amount for bar in bars), default=1.0) or 1.0
    marks = []
    for place, bar in enumerate(bars):
        top = place * pitch + (4.0 if is_wide else 18.0)
        label = clip(bar.name, int(left / 7.2) if is_wide else 46)
        x, y, anchor = (left - 8, top + 12.5, "end") if is_wide else (0.0, top - 4, None)
        marks.append(tag("text", tag("title", clip(bar.name)), label, x=x, y=y, class_=anchor))
        at = left
        for amount, style in bar.parts:
            wide = (width - left - room) * amount / most
            if amount > 0:
                marks.append(tag("rect", x=at, y=top, width=max(wide, 1), height=thick, class_=style))
            at += wide
        marks.append(tag("text", _number(bar), x=at + 6, y=top + thick / 2 + 4.5, class_="soft"))
    return Drawing(tag("g", *marks), width, len(bars) * pitch + 4)


def _number(bar: Bar) -> str:
    return f"{compact(bar.amount)} · {bar.note}" if bar.note else compact(bar.amount)
