"""Draws curves of runs as an SVG for papers."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any
from xml.sax.saxutils import escape

from nmt_cli.errors import printable

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""The colours of Okabe and Ito, which colour-blind readers can distinguish."""

WIDTH, HEIGHT, LEFT, TOP = 420, 260, 56, 34
"""Size of a chart, and its left and top margins. The right margin is 14, the bottom margin 48.

An entry of the legend is 16 high.
"""
WIDE, TALL = WIDTH - LEFT - 14, HEIGHT - TOP - 48


def drawing(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with a legend, and charts of training loss, validation loss and BLEU. Omit charts without
    values. `runs` have the format of `nmt report`. Validation curves are those of the first set."""
    sets = [(run["validations"] or [{"step": [], "nll": [], "scores": {}}])[0] for run in runs]
    series = {
        "Training loss": [(run["curves"]["step"], run["curves"]["nll"]["mean"]) for run in runs],
        "Validation loss": [(valid["step"], valid["nll"]) for valid in sets],
        "Validation BLEU": [(valid["step"], valid["scores"].get("bleu", [])) for valid in sets],
    }
    shown = [chart for title, curves in series.items() if (chart := [*_chart(title, curves)])]
    size = f'width="{WIDTH * len(shown)}" height="{HEIGHT + 16 * len(runs)}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, chart in enumerate(shown):
        parts += [f'<svg x="{WIDTH * number}" width="{WIDTH}">', *chart, "</svg>"]
    for number, (run, judged) in enumerate(zip(runs, sets, strict=True)):
        subset = f" (BLEU of {judged['scored_on']})" if judged.get("scored_on") else ""
        parts.append(f'<path d="M{LEFT} {HEIGHT + 16 * number - 4}h24" {_stroke(number)}/>')
        parts.append(_text(LEFT + 32, HEIGHT + 16 * number, run["name"] + subset, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _chart(title: str, curves: Sequence[tuple[Sequence[int], Sequence[float | None]]]) -> Iterator[str]:
    """Yield the SVG elements of a chart, or nothing without values. Each curve has steps and values. Skip
    values of None. With over 60 values, the chart may cut off the top 3 %."""
    points = [[(x, y) for x, y in zip(*curve, strict=False) if y is not None] for curve in curves]
    if not any(points):
        return
    ys = sorted(y for curve in points for _, y in curve)
    # The first steps of a long run would flatten all others.
    low, high = ys[0], ys[int(0.97 * (len(ys) - 1))] if len(ys) > 60 else ys[-1]
    margin, last = 0.05 * (high - low) or 1.0, max(x for curve in points for x, _ in curve)
    low, high = low - margin, high + margin
    yield _text(LEFT, TOP - 14, title, "start") + _text(LEFT + WIDE / 2, TOP + TALL + 34, "Step", "middle")
    for y in _ticks(low, high):
        top = TOP + TALL * (high - y) / (high - low)
        yield f'<path d="M{LEFT} {top:.1f}h{WIDE}" stroke="#ddd"/>{_text(LEFT - 6, top + 4, f"{y:g}", "end")}'
    for x in _ticks(0, last):
        yield _text(LEFT + WIDE * x / last, TOP + TALL + 16, f"{x:,g}", "middle")
    yield f'<path d="M{LEFT} {TOP}v{TALL}h{WIDE}" fill="none" stroke="#333"/>'
    yield f'<svg x="{LEFT}" y="{TOP}" width="{WIDE}" height="{TALL}">'  # clips higher values
    for number, curve in enumerate(points):
        pairs = (f"{WIDE * x / last:.1f},{TALL * (high - y) / (high - low):.1f}" for x, y in curve)
        yield f'<polyline points="{" ".join(pairs)}" {_stroke(number)}/>'
    yield "</svg>"


def _ticks(low: float, high: float) -> list[float]:
    """Return up to six round numbers from `low` to `high`, evenly spaced."""
    power = 10.0 ** floor(log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 5.001 >= high - low)
    return [round(step * number, 10) for number in range(ceil(low / step), floor(high / step) + 1)]


def _stroke(number: int) -> str:
    """Return the SVG attributes of curve `number`, from 0: colour, width, and dashes once colours repeat."""
    dashes = f' stroke-dasharray="{4 * (number // len(COLOURS))} 3"' if number >= len(COLOURS) else ""
    return f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.6"{dashes}'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(printable(text))}</text>'
