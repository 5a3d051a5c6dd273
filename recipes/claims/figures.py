"""Draw Figures 3 to 5 of the paper for a model and a sentence.

    python -m recipes.claims.figures MODEL OUT SENTENCE [--token WORD] [--layer N] [--heads A,B]

The figures show self-attention of the encoder. OUT gets these SVG files:

- `figure-3.svg`: what one token attends to, all heads of a layer in their colours.
- `figure-4.svg`: two heads of the layer, first all tokens, then the one token only.
- `figure-5.svg`: the same two heads, each alone.

The default layer is the second last, and the default token is the one in the middle. The default heads are
the two that attend least to the token itself and to the end, because they often show more than others.
"""

import argparse
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from torch import Tensor

from nmt_cli.api import load
from recipes.benchmarks.charts import COLOURS

STEP, LABEL, BETWEEN, TOP = 20, 130, 190, 34
"""Pixels between two tokens, for the tokens of a side, between the sides, and above."""

FAINT = 0.02
"""Weights below this are not drawn."""


def drawing(
    tokens: Sequence[str], weights_HTS: Tensor, heads: Sequence[int], only: int | None, title: str
) -> Iterator[str]:
    """Yield the SVG elements of one drawing: the tokens twice, and a line for each weight of `heads`.

    only: draw the lines of this token, or those of all tokens if it is None.
    """
    yield f'<text x="{LABEL - 6}" y="{TOP - 16}" font-weight="bold">{escape(title)}</text>'
    for i, token in enumerate(tokens):
        y = TOP + STEP * i + 14
        weight = ' font-weight="bold"' if i == only else ""
        yield f'<text x="{LABEL - 6}" y="{y}" text-anchor="end"{weight}>{escape(token)}</text>'
        yield f'<text x="{LABEL + BETWEEN + 6}" y="{y}">{escape(token)}</text>'
    for number, head in enumerate(heads):
        shift = STEP / 3 * ((number + 0.5) / len(heads) - 0.5) + STEP / 2
        for query in range(len(tokens)) if only is None else [only]:
            for key, share in enumerate(weights_HTS[head, query].tolist()):
                if share >= FAINT:
                    ends = (TOP + STEP * i + shift for i in (query, key))
                    y1, y2 = (f"{end:.1f}" for end in ends)
                    yield (
                        f'<line x1="{LABEL}" y1="{y1}" x2="{LABEL + BETWEEN}" y2="{y2}" stroke-width="2" '
                        f'stroke="{COLOURS[1 + head % (len(COLOURS) - 1)]}" stroke-opacity="{share:.2f}"/>'
                    )


def side_by_side(drawings: Sequence[Iterator[str]], tokens: int) -> str:
    """Return an SVG of several drawings of sentences of this number of tokens."""
    wide, tall = 2 * LABEL + BETWEEN, TOP + STEP * tokens + 10
    size = f'width="{wide * len(drawings)}" height="{tall}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for number, one in enumerate(drawings):
        parts += [f'<svg x="{wide * number}" width="{wide}" height="{tall}">', *one, "</svg>"]
    return "\n".join([*parts, "</svg>", ""])


def chosen_heads(weights_HTS: Tensor, token: int) -> list[int]:
    """Return the two heads that attend least to the token itself and to the end of the sentence."""
    own_H = weights_HTS[:, token, token] + weights_HTS[:, token, -1]
    heads: list[int] = own_H.argsort().tolist()
    return sorted(heads[:2])


def figures(tokens: Sequence[str], weights_HTS: Tensor, token: int, heads: Sequence[int]) -> dict[str, str]:
    """Return the SVG of each figure by its name. `weights_HTS` are those of one layer."""
    every, count = range(len(weights_HTS)), len(tokens)
    names = [f"head {head + 1}" for head in heads]

    def one(shown: Sequence[int], only: int | None, title: str) -> Iterator[str]:
        return drawing(tokens, weights_HTS, shown, only, title)

    alone = [one([head], None, name) for head, name in zip(heads, names, strict=True)]
    return {
        "figure-3": side_by_side([one(every, token, f"{tokens[token]}, all heads")], count),
        "figure-4": side_by_side(
            [one(heads, None, " and ".join(names)), one(heads, token, tokens[token])], count
        ),
        "figure-5": side_by_side(alone, count),
    }


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description="Figures 3 to 5 of Attention Is All You Need.")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("sentence")
    parser.add_argument("--token", help="the token of Figures 3 and 4")
    parser.add_argument("--layer", type=int, metavar="N", help="from 1")
    parser.add_argument("--heads", metavar="A,B", help="from 1")
    options = parser.parse_args()
    with load(options.model, device="cpu", threads=1) as model:
        (translation,) = model.translate([options.sentence])
        (maps,) = model.attention_maps([(options.sentence, translation)])
        entries = model.tokenizers.source.vocabulary.entries
    tokens = [entries[i].removeprefix("▁") for i in maps.source]
    layers = len(maps.encoder)
    layer = options.layer or max(1, layers - 1)
    if not 1 <= layer <= layers:
        parser.error(f"--layer is {layer}, but the encoder has layers 1 to {layers}.")
    if options.token and options.token not in tokens:
        parser.error(f"--token is {options.token}, but the tokens are {' '.join(tokens)}.")
    token = tokens.index(options.token) if options.token else (len(tokens) - 1) // 2
    weights = maps.encoder[layer - 1].float()
    heads = (
        [int(head) - 1 for head in options.heads.split(",")]
        if options.heads
        else chosen_heads(weights, token)
    )
    if not all(0 <= head < len(weights) for head in heads):
        parser.error(f"--heads is {options.heads}, but the layer has heads 1 to {len(weights)}.")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, svg in figures(tokens, weights, token, heads).items():
        (options.out / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(options.out / f"{name}.svg")


if __name__ == "__main__":
    main()
