"""Draw the three diagrams of "How a translation model learns": python .github/pictures/diagrams.py

The numbers are those of the model of `nmt demo` for "The house is small.": the weights of one head of its
last decoder layer, and its probabilities of the next token.
"""

from pathlib import Path

PICTURES = Path(__file__).parents[2] / "nmt_cli" / "docs" / "pictures"

STYLE = """<style>
text { font: 15px system-ui, sans-serif; fill: #1f2937; } .small { font-size: 12.5px; fill: #52606d; }
.box { fill: #eef2ff; stroke: #6366a8; } .file { fill: #f8fafc; stroke: #94a3b8; }
.kept { fill: #d9f2e3; stroke: #3f8f63; }
.dropped { fill: #f8fafc; stroke: #cbd5e1; } .line { stroke: #64748b; stroke-width: 1.5; fill: none; }
.page { fill: #ffffff; } .middle { text-anchor: middle; } .end { text-anchor: end; }
</style>"""

ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>'
)


def picture(name: str, width: int, height: int, title: str, parts: list[str]) -> None:
    """Write the picture NAME.svg on a white page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img"><title>{title}</title>'
    )
    page = f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
    text = "\n".join([head, STYLE, ARROW, page, *parts, "</svg>"])
    (PICTURES / f"{name}.svg").write_text(f"{text}\n", encoding="utf-8")


def box(x: int, y: int, width: int, kind: str, text: str, below: str = "") -> str:
    """Return a rectangle with a line of text, and perhaps a smaller one."""
    middle, height = x + width // 2, 56 if below else 36
    small = f'<text class="small middle" x="{middle}" y="{y + 43}">{below}</text>' if below else ""
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        f'<text class="middle" x="{middle}" y="{y + 23}">{text}</text>{small}'
    )


def arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return an arrow."""
    return f'<path class="line" marker-end="url(#a)" d="M{x} {y}L{to_x} {to_y}"/>'


def pipeline() -> None:
    """Draw the way from text files to translations."""
    steps = [
        ("train.en, train.de", "text, line by line", "preprocess", "cut into tokens"),
        ("dataset", "numbers", "train", "predict, compare, correct"),
        ("run", "checkpoints", "average-checkpoints", "smooth the noise"),
        ("model", "weights, vocabulary", "translate, serve", "beam search"),
    ]
    parts = []
    for row, (files, content, command, work) in enumerate(steps):
        y = 16 + 84 * row
        parts += [box(16, y, 200, "file", files, content), arrow(216, y + 28, 298, y + 28)]
        parts += [box(300, y, 220, "box", f"nmt {command}", work)]
        if row < len(steps) - 1:
            parts.append(arrow(300, y + 50, 218, y + 92))
    parts += [arrow(520, 296, 568, 296), box(570, 278, 160, "kept", "Das Haus ist klein.")]
    picture("pipeline", 746, 348, "From text to translations", parts)


def attention() -> None:
    """Draw the weights of one head as a table of squares."""
    source = ["The", "house", "is", "small", ".", "end"]
    target = ["Das", "Haus", "ist", "kle", "in", "."]
    weights = [
        [100, 0, 0, 0, 0, 0],
        [17, 78, 3, 1, 0, 1],
        [0, 0, 100, 0, 0, 0],
        [0, 0, 0, 100, 0, 0],
        [9, 1, 2, 1, 51, 35],
        [1, 0, 0, 0, 90, 9],
    ]
    parts = []
    for column, word in enumerate(source):
        parts.append(f'<text class="middle" x="{126 + 72 * column}" y="30">{word}</text>')
    for row, word in enumerate(target):
        y = 44 + 40 * row
        parts.append(f'<text class="end" x="80" y="{y + 24}">{word}</text>')
        for column, weight in enumerate(weights[row]):
            colour = "#ffffff" if weight > 55 else "#1f2937"
            x = 92 + 72 * column
            parts.append(
                f'<rect x="{x}" y="{y}" width="68" height="36" rx="4" fill="#4f46a5" '
                f'fill-opacity="{0.04 + 0.0096 * weight:.2f}"/>'
                f'<text class="middle" x="{x + 34}" y="{y + 23}" style="fill:{colour}">{weight} %</text>'
            )
    picture("attention", 540, 296, "Attention of one head", parts)


def beam() -> None:
    """Draw the first steps of a beam of two."""
    parts = [
        box(16, 76, 92, "file", "(start)"),
        arrow(108, 90, 158, 46),
        arrow(108, 98, 158, 146),
        box(160, 24, 140, "kept", "Das", "0.956"),
        box(160, 124, 140, "kept", "Haus", "0.0036"),
        arrow(300, 46, 350, 32),
        arrow(300, 58, 350, 96),
        arrow(300, 152, 350, 160),
        box(352, 8, 176, "kept", "Das Haus", "0.956 × 0.954 = 0.912"),
        box(352, 72, 176, "kept", "Das Das", "0.956 × 0.0028 = 0.0027"),
        box(352, 136, 176, "dropped", "Haus ist", "0.0036 × 0.725 = 0.0026"),
        arrow(528, 36, 568, 36),
        arrow(528, 100, 568, 100),
        box(570, 8, 176, "kept", "Das Haus ist", "0.912 × 0.965 = 0.881"),
        box(570, 72, 176, "kept", "Das Das Haus", "0.0027 × 0.952 = 0.0026"),
        '<text class="small" x="16" y="222">Green: the two best beginnings of each step. '
        "They are extended, all others are dropped.</text>",
    ]
    picture("beam", 760, 238, "Beam search with two hypotheses", parts)


if __name__ == "__main__":
    pipeline()
    attention()
    beam()
