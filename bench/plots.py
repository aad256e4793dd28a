"""Line plots as SVG, readable on light and on dark pages: panels side by side, or series over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
  text { font: 12px sans-serif; fill: #333 } .axis { stroke: #999 }
  .ours { stroke: #0b62a4; fill: none; stroke-width: 2 } .dot.ours { fill: #0b62a4 }
  .theirs { stroke: #b45309; fill: none; stroke-width: 2 } .dot.theirs { fill: #b45309 }
  .third { stroke: #15803d; fill: none; stroke-width: 2 } .dot.third { fill: #15803d }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .axis { stroke: #777 }
    .ours { stroke: #6bb1ee } .dot.ours { fill: #6bb1ee }
    .theirs { stroke: #f2a65a } .dot.theirs { fill: #f2a65a } .third { stroke: #6ee7a0 } .dot.third { fill: #6ee7a0 } }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 180, 46, 34
_PITCH, _BESIDE = 130, 150
"""Space between two panels, and for the names of the lines beside the last one."""


@dataclass(frozen=True, slots=True)
class Line:
    kind: str
    """Color: ours, theirs or third."""
    name: str
    values: Sequence[float]
    """One value per tick, or only for the first ticks."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    ticks: Sequence[str]
    lines: Sequence[Line]


def as_svg(panels: Sequence[Panel]) -> str:
    width = len(panels) * (_WIDTH + _PITCH) - _PITCH + _BESIDE
    drawn = [_draw(place * (_WIDTH + _PITCH), panel) for place, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + _TOP + 40}" role="img">\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def _draw(left: int, panel: Panel) -> str:
    """Ticks are equidistant: each is a multiple of the previous one."""
    top = max(value for line in panel.lines for value in line.values) * 1.1
    step = _WIDTH / max(len(panel.ticks) - 1, 1)

    def at(place: int, value: float) -> tuple[float, float]:
        return round(left + _LEFT + place * step, 1), round(_TOP + _HEIGHT * (1 - value / top), 1)

    base = _TOP + _HEIGHT
    parts = [
        f'<text x="{left + _LEFT}" y="18">{escape(panel.title)}</text>',
        f'<path class="axis" fill="none" d="M{left + _LEFT} {_TOP}V{base}H{left + _LEFT + _WIDTH}"/>',
        f'<text x="{left + _LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{left + _LEFT - 6}" y="{_TOP + 12}" text-anchor="end">{top:.{0 if top >= 10 else 1}f}</text>',
    ]
    parts += [
        f'<text x="{at(place, 0)[0]}" y="{base + 18}" text-anchor="middle">{escape(tick)}</text>'
        for place, tick in enumerate(panel.ticks)
    ]
    for line in panel.lines:
        points = [at(place, value) for place, value in enumerate(line.values)]
        parts.append(f'<polyline class="{line.kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>')
        parts += [f'<circle class="dot {line.kind}" cx="{x}" cy="{y}" r="3"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 6}" y="{y + 4}">{escape(line.name)} {line.values[-1]:.1f}</text>')
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Series:
    title: str
    times: Sequence[float]
    values: Sequence[float]


_ROW, _WIDE = 120, 700


def over_time(series: Sequence[Series], marks: Mapping[str, Sequence[float]], end: float) -> str:
    """Plots one below the other from 0 to a common end in minutes, and below them the moments of each kind of mark."""

    def x(time: float) -> float:
        return round(_LEFT + _WIDE * time / end, 1)

    parts = []
    for place, one in enumerate(series):
        top, base = max(one.values) * 1.1 or 1, _TOP + place * _ROW + _ROW - 40
        points = [
            (x(time), round(base - (_ROW - 40) * value / top, 1))
            for time, value in zip(one.times, one.values, strict=True)
        ]
        parts += [
            f'<text x="{_LEFT}" y="{base - _ROW + 30}">{escape(one.title)}</text>',
            f'<path class="axis" fill="none" d="M{_LEFT} {base - _ROW + 40}V{base}H{_LEFT + _WIDE}"/>',
            f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>',
            f'<text x="{_LEFT - 6}" y="{base - _ROW + 52}" text-anchor="end">{top:.{0 if top >= 10 else 1}f}</text>',
            f'<polyline class="ours" points="{" ".join(f"{across},{up}" for across, up in points)}"/>',
            f'<text x="{points[-1][0] + 6}" y="{points[-1][1] + 4}">{one.values[-1]:.1f}</text>',
        ]
    base = _TOP + len(series) * _ROW - 20
    for place, (kind, times) in enumerate(marks.items()):
        row = base + place * 18
        parts += (
            [f'<path class="theirs" d="{"".join(f"M{x(time)} {row - 10}v10" for time in times)}"/>'] if times else []
        )
        parts.append(f'<text x="{_LEFT + _WIDE + 6}" y="{row}">{escape(kind)}</text>')
    below = base + len(marks) * 18
    for fifth in range(6):
        minute = end * fifth / 5
        parts.append(
            f'<text x="{x(minute)}" y="{below}" text-anchor="middle">{minute:.{0 if end >= 10 else 1}f}</text>'
        )
    parts.append(f'<text x="{_LEFT + _WIDE + 6}" y="{below}">minutes</text>')
    width = _LEFT + _WIDE + _BESIDE - 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below + 12}" role="img">\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
