"""Translate lines alone, a few at a time and all at once. The translations must be equal.

python -m recipes.torture.alone MODEL --lines 2000 < corpus.en

In int8, the results of a sentence are bit-identical in any batch if
Numba is installed and each worker has one thread, as in `nmt translate`. Otherwise the last bit could round a
number to another byte. In fp32, products of few rows add in another order, which changes scores by some 1e-6.
Scores differ by that much in int8 too: the softmax over the vocabulary adds in another order.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

import click

from nmt_cli import api

MODEL = Path(__file__).resolve().parent.parent.parent / "tests" / "golden" / "model"
CLOSE = 1e-4
SHOWN = 5

Scored = tuple[str, float]
"""A translation and its score."""


@click.command()
@click.argument("model", default=MODEL, type=click.Path(path_type=Path))
@click.option("--lines", default=2000, show_default=True, help="Number of lines to read from stdin.")
@click.option("--precision", multiple=True, default=["fp32", "int8"], show_default=True)
def main(model: Path, lines: int, precision: Sequence[str]) -> None:
    """Print how many translations differ between sizes of a batch. Exit with 1 if any does."""
    texts = [line.rstrip("\n") for line in islice(sys.stdin, lines)]
    different = 0
    for kind in precision:
        with api.load(model, device="cpu", precision=kind, threads=1) as loaded:  # type: ignore[arg-type]
            together = translated(loaded, [texts])
            for size in (1, 3):
                others = translated(loaded, [texts[i : i + size] for i in range(0, len(texts), size)])
                different += report(f"{kind}, {size} at a time", texts, together, others)
    raise SystemExit(different > 0)


def translated(model: api.Model, batches: Iterable[Sequence[str]]) -> list[Scored]:
    """Return the translation and score of every line, each batch in one request."""
    translations = chain.from_iterable(model.translations(batch) for batch in batches)
    return [(one.text, one.candidates[0].score if one.candidates else 0.0) for one in translations]


def report(name: str, texts: Sequence[str], ones: Sequence[Scored], others: Sequence[Scored]) -> int:
    """Print and return the number of lines whose translation differs, or whose score does by over `CLOSE`."""
    pairs = list(zip(texts, ones, others, strict=True))
    different = [pair for pair in pairs if pair[1][0] != pair[2][0] or abs(pair[1][1] - pair[2][1]) > CLOSE]
    farthest = max((abs(one[1] - other[1]) for _, one, other in pairs), default=0.0)
    print(f"{name}: {len(different)} of {len(pairs)} lines differ, scores by up to {farthest:.1e}")
    for text, one, other in different[:SHOWN]:
        print(f"  {text}\n    all at once: {one}\n    {name}: {other}")
    return len(different)


if __name__ == "__main__":
    main()
