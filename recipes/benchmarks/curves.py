"""Curves over logarithmic axes as a picture, SVG, that follows the reader's light or dark."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 420, 300
"""Of a panel, its axes' labels included."""
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 34, 40
COLUMNS = 2
LEGEND_ROW, LEGEND_COLUMNS = 22, 3
STROKES = ("", "6 4", "2 3")
STYLE = """
svg { font: 12px system-ui, sans-serif; fill: #1d1f23; background: #fff; --grid: #e4e4e0; --soft: #63676f }
.grid { stroke: var(--grid) } .mark { stroke: var(--soft); stroke-dasharray: 3 3 }
.soft { fill: var(--soft); font-size: 11px } .title { font-weight: 600 }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round }
.c0 { stroke: #2a5bd7 } .c1 { stroke: #d1402f } .c2 { stroke: #158a54 } .c3 { stroke: #b0720a }
@media (prefers-color-scheme: dark) {
  svg { fill: #e8e8e6; background: #1f2125; --grid: #363940; --soft: #a0a4ac }
  .c0 { stroke: #86a8ff } .c1 { stroke: #ff8374 } .c2 { stroke: #4fcf95 } .c3 { stroke: #eab04c }
}
"""


class Look(NamedTuple):
    """How a curve is told from others."""

    colour: int
    stroke: int = 0


class Panel(NamedTuple):
    """One diagram: its curves, some of which may share a name, and a vertical mark if that is not 0; what its
    horizontal axis is of, if not the same as in all of the picture."""

    title: str
    curves: Sequence[tuple[str, Points]]
    mark: float = 0.0
    mark_label: str = ""
    x_label: str = ""


class Axis(NamedTuple):
    """What an axis is of, and the base of the powers at which it has lines."""

    label: str
    base: int


class Range(NamedTuple):
    """What an axis shows, of the logarithms."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (math.log10(value) - self.low) / (self.high - self.low)


def picture(panels: Sequence[Panel], looks: Mapping[str, Look], x_axis: Axis, y_axis: Axis) -> str:
    """All panels on the same axes, and below them what each curve is."""
    points = [point for panel in panels for _, curve in panel.curves for point in curve]
    x = Range(*(math.log10(end(p[0] for p in points)) for end in (min, max)))
    y = Range(*(math.log10(end(p[1] for p in points)) for end in (min, max)))
    unit = math.log10(y_axis.base)
    y = Range(math.floor(y.low / unit) * unit, math.ceil(y.high / unit) * unit)
    rows = math.ceil(len(panels) / COLUMNS)
    below = rows * HEIGHT
    height = below + LEGEND_ROW * math.ceil(len(looks) / LEGEND_COLUMNS) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {height}"'
        f' width="{COLUMNS * WIDTH}" height="{height}" role="img">',
        f"<style>{STYLE}</style>",
    ]
    for i, panel in enumerate(panels):
        parts.append(f'<g transform="translate({i % COLUMNS * WIDTH} {i // COLUMNS * HEIGHT})">')
        parts += [*_axes(panel, x, y, x_axis, y_axis), *_curves(panel, looks, x, y), "</g>"]
    for i, (name, look) in enumerate(looks.items()):
        left = LEFT + i % LEGEND_COLUMNS * (COLUMNS * WIDTH - LEFT) // LEGEND_COLUMNS
        line = below + LEGEND_ROW * (i // LEGEND_COLUMNS) + 12
        parts.append(f'<path {_drawn(look)} d="M{left} {line}h28"/>{_text(left + 36, line + 4, name)}')
    return "\n".join([*parts, "</svg>\n"])


def _axes(panel: Panel, x: Range, y: Range, x_axis: Axis, y_axis: Axis) -> list[str]:
    """Lines for each power that is in range, and their labels."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [_text(LEFT, 20, panel.title, "title")]
    for value in _powers(y, y_axis.base):
        at = _down(value, y)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
        parts.append(_text(LEFT - 6, at + 4, f"{value:g}", "soft", "end"))
    for value in _powers(x, x_axis.base):
        at = _along(value, x)
        parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>')
        parts.append(_text(at, bottom + 15, f"{round(value):,}", "soft", "middle"))
    if panel.mark > 0 and x.low <= math.log10(panel.mark) <= x.high:
        at = _along(panel.mark, x)
        parts.append(f'<path class="mark" d="M{at:.1f} {TOP}V{bottom}"/>')
        parts.append(_text(at + 4, bottom - 6, panel.mark_label, "soft"))
    middle = (TOP + bottom) / 2
    parts.append(_text((LEFT + right) / 2, HEIGHT - 8, panel.x_label or x_axis.label, "soft", "middle"))
    parts.append(
        f'<text class="soft" text-anchor="middle" transform="translate(14 {middle}) rotate(-90)">'
        f"{escape(y_axis.label)}</text>"
    )
    return parts


def _curves(panel: Panel, looks: Mapping[str, Look], x: Range, y: Range) -> list[str]:
    parts = []
    for name, points in panel.curves:
        places = " ".join(f"{_along(a, x):.1f},{_down(b, y):.1f}" for a, b in points)
        parts.append(
            f'<polyline {_drawn(looks[name])} points="{places}"><title>{escape(name)}</title></polyline>'
        )
    return parts


def _powers(values: Range, base: int) -> list[float]:
    """The powers in a range, at its very ends too."""
    unit = math.log10(base)
    first, last = math.ceil(values.low / unit - 1e-9), math.floor(values.high / unit + 1e-9)
    return [float(base) ** power for power in range(first, last + 1)]


def _along(value: float, x: Range) -> float:
    return LEFT + x.share(value) * (WIDTH - LEFT - RIGHT)


def _down(value: float, y: Range) -> float:
    return HEIGHT - BOTTOM - y.share(value) * (HEIGHT - TOP - BOTTOM)


def _drawn(look: Look) -> str:
    dashes = STROKES[look.stroke]
    return f'class="curve c{look.colour}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
