"""Draws the curves of a run as an SVG for papers."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

from nmt_cli.errors import UserError, printable
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.training.tracking.log import LOG, read_history

WIDTH, HEIGHT, LEFT, TOP = 420, 260, 56, 34
"""Size of a chart, and its left and top margins. The right margin is 14, the bottom margin 48."""
WIDE, TALL = WIDTH - LEFT - 14, HEIGHT - TOP - 48


def write_curves(run: Path, out: Path) -> None:
    """Write the curves of `run` to `out`, an SVG with one chart beside the other.

    The charts are training loss, and loss, BLEU and COMET on the first validation set. A chart without values
    is left out. Raise `UserError` if `run` has no steps, or if the name of `out` does not end in .svg.
    """
    if out.suffix.lower() != ".svg":
        raise UserError(f"{out} must end in .svg. For a page about the run, see {run / 'report.html'}.")
    history = read_history(run / LOG)
    if not history.points:
        raise UserError(f"{run} has no steps in {LOG}. Name a run folder that nmt train --out made.")
    sets = [
        validation for validation in history.validations if validation.name == history.validations[0].name
    ]
    subset = f" of {sets[-1].line['scored_on']}" if sets and sets[-1].line.get("scored_on") else ""
    training = [(point.end.step, point.values["nll"]) for point in history.points]
    curves = {
        "Training loss": [(step, nll.total / nll.count) for step, nll in training if nll.count],
        "Validation loss": [(one.at.step, one.line["nll"]) for one in sets if one.line["nll"] is not None],
        **{
            f"Validation {name}{subset}": [
                (one.at.step, one.scores[metric]) for one in sets if metric in one.scores
            ]
            for metric, name in {"bleu": "BLEU", "comet": "COMET"}.items()
        },
    }
    charts = [_chart(title, curve) for title, curve in curves.items() if curve]
    size = f'width="{WIDTH * len(charts)}" height="{HEIGHT}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, chart in enumerate(charts):
        parts += [f'<svg x="{WIDTH * number}" width="{WIDTH}">', *chart, "</svg>"]
    with file_written_whole(out) as file:
        file.write("\n".join([*parts, "</svg>", ""]).encode())


def _chart(title: str, curve: Sequence[tuple[int, float]]) -> Iterator[str]:
    """Yield the SVG elements of a chart of `curve`, points of step and value. In a chart of over 60 points,
    the largest 3 % of values may be cut off."""
    ys = sorted(y for _, y in curve)
    # The first steps of a long run would flatten all others.
    low, high = ys[0], ys[int(0.97 * (len(ys) - 1))] if len(ys) > 60 else ys[-1]
    margin, last = 0.05 * (high - low) or 1.0, curve[-1][0]
    low, high = low - margin, high + margin
    yield _text(LEFT, TOP - 14, title, "start") + _text(LEFT + WIDE / 2, TOP + TALL + 34, "Step", "middle")
    for y in _ticks(low, high):
        top = TOP + TALL * (high - y) / (high - low)
        yield f'<path d="M{LEFT} {top:.1f}h{WIDE}" stroke="#ddd"/>{_text(LEFT - 6, top + 4, f"{y:g}", "end")}'
    for x in _ticks(0, last):
        yield _text(LEFT + WIDE * x / last, TOP + TALL + 16, f"{x:,g}", "middle")
    yield f'<path d="M{LEFT} {TOP}v{TALL}h{WIDE}" fill="none" stroke="#333"/>'
    yield f'<svg x="{LEFT}" y="{TOP}" width="{WIDE}" height="{TALL}">'  # clips higher values
    points = [(WIDE * x / last, TALL * (high - y) / (high - low)) for x, y in curve]
    pairs = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{pairs}" fill="none" stroke="#0072b2" stroke-width="1.6"/>'
    # A few validations would look like a continuous curve.
    shown = points if len(points) <= 60 else []
    yield "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="#0072b2"/>' for x, y in shown) + "</svg>"


def _ticks(low: float, high: float) -> list[float]:
    """Return up to six round numbers from `low` to `high`, evenly spaced."""
    power = 10.0 ** floor(log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 5.001 >= high - low)
    return [round(step * number, 10) for number in range(ceil(low / step), floor(high / step) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(printable(text))}</text>'
