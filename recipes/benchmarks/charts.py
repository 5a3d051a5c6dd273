"""Draw charts with several lines and a legend as one SVG. The values are on a logarithmic scale."""

import math
from collections.abc import Iterator, Mapping, Sequence

COLOURS = (
    *("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#999999", "#aa3377", "#8c564b", "#bcbd22", "#17becf"),
)
WIDTH, HEIGHT, LEFT, TOP, WIDE, TALL = 450, 290, 50, 40, 380, 210
"""Size of a chart with its margins, and position and size of its axes."""

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""The points of each line, by name."""


def charts(by_title: Mapping[str, Lines]) -> str:
    """Return an SVG with a chart for each title, side by side, and one legend below. There are at most as
    many lines as `COLOURS`."""
    names = list(next(iter(by_title.values())))
    size = f'width="{WIDTH * len(by_title)}" height="{HEIGHT + 18 * len(names)}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, (title, lines) in enumerate(by_title.items()):
        parts += [f'<svg x="{WIDTH * number}">', *_chart(title, lines), "</svg>"]
    for number, (colour, name) in enumerate(zip(COLOURS[: len(names)], names, strict=True)):
        parts.append(f'<text x="{LEFT}" y="{HEIGHT + 10 + 18 * number}" fill="{colour}">— {name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _chart(title: str, lines: Lines) -> Iterator[str]:
    """Yield the SVG elements of one chart."""
    values = [y for line in lines.values() for _, y in line]
    last, low, high = max(line[-1][0] for line in lines.values()), min(values), max(values)
    high = max(high, 1.001 * low)

    def top(y: float) -> float:
        return TOP + TALL * math.log(high / y) / math.log(high / low)

    yield f'<text x="{LEFT}" y="{TOP - 14}">{title}</text>'
    yield f'<path d="M{LEFT} {TOP}v{TALL}h{WIDE}" fill="none" stroke="#333"/>'
    for tick in range(5):
        y, x = low * (high / low) ** (tick / 4), last * tick / 4
        yield f'<text x="{LEFT - 4}" y="{top(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>'
        left = LEFT + WIDE * tick / 4
        yield f'<text x="{left:.1f}" y="{TOP + TALL + 16}" text-anchor="middle">{x:,.0f}</text>'
    for colour, line in zip(COLOURS[: len(lines)], lines.values(), strict=True):
        points = " ".join(f"{LEFT + WIDE * x / last:.1f},{top(y):.1f}" for x, y in line)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def bars(by_title: Mapping[str, Mapping[str, float]]) -> str:
    """Return an SVG with a chart of horizontal bars for each title, from the value of each name. The bar of a
    name that begins with "nmt" has another colour."""
    parts, top = [], 0
    for title, values in by_title.items():
        parts.append(f'<text x="16" y="{top + 28}" font-weight="bold">{title}</text>')
        for row, (name, value) in enumerate(values.items()):
            y, wide = top + 40 + 24 * row, 400 * value / max(values.values())
            colour = COLOURS[1] if name.startswith("nmt") else COLOURS[7]
            parts.append(f'<text x="166" y="{y + 14}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="174" y="{y}" width="{wide:.1f}" height="18" fill="{colour}" rx="2"/>')
            parts.append(f'<text x="{180 + wide:.1f}" y="{y + 14}">{value:,g}</text>')
        top += 56 + 24 * len(values)
    size = f'width="660" height="{top}" viewBox="0 0 660 {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])
