"""Translate lines alone, a few at a time and all at once. The translations must be equal.

python -m recipes.torture.alone MODEL --lines 2000 < corpus.en

In int8, the logits of a sentence are bit-identical in any batch if Numba is installed and each worker has one
thread, as in `nmt translate`. Otherwise the last bit could round a number to another byte. In fp32, products
of few rows add in another order, which changes scores by about 1e-6. Scores differ by that much in int8 too,
since the softmax over the vocabulary adds in another order.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

import click

from nmt_cli import api

MODEL = Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"
TOLERANCE = 1e-4
"""Maximum difference of two scores."""

SHOWN = 5
"""Maximum number of lines to print."""

Scored = tuple[str, float]
"""A translation and its score."""


@click.command()
@click.argument("model", default=MODEL, type=click.Path(path_type=Path))
@click.option("--lines", default=2000, show_default=True, help="Number of lines to read from stdin.")
@click.option("--precision", multiple=True, default=["fp32", "int8"], show_default=True)
def main(model: Path, lines: int, precision: Sequence[str]) -> None:
    """Print the number of translations that differ between sizes of a batch. Exit with 1 if any differs, or
    if stdin is empty."""
    texts = [line.rstrip("\n") for line in islice(sys.stdin, lines)]
    if not texts:
        raise SystemExit("Nothing was translated: stdin is empty.")
    different = 0
    for kind in precision:
        with api.load(model, device="cpu", precision=kind, threads=1) as loaded:  # type: ignore[arg-type]
            together = translated(loaded, [texts])
            for size in (1, 3):
                apart = translated(loaded, [texts[i : i + size] for i in range(0, len(texts), size)])
                different += report(f"{kind}, {size} at a time", texts, together, apart)
    raise SystemExit(different > 0)


def translated(model: api.Model, batches: Iterable[Sequence[str]]) -> list[Scored]:
    """Return the translation and score of every line of `batches`. Each batch is one request."""
    translations = chain.from_iterable(model.translations(batch) for batch in batches)
    return [(item.text, item.candidates[0].score if item.candidates else 0.0) for item in translations]


def report(name: str, texts: Sequence[str], together: Sequence[Scored], apart: Sequence[Scored]) -> int:
    """Return the number of differing translations, or scores that differ by over `TOLERANCE`. Print some."""
    rows = list(zip(texts, together, apart, strict=True))
    different = [row for row in rows if row[1][0] != row[2][0] or abs(row[1][1] - row[2][1]) > TOLERANCE]
    farthest = max((abs(first[1] - second[1]) for _, first, second in rows), default=0.0)
    print(f"{name}: {len(different)} of {len(rows)} lines differ, scores by up to {farthest:.1e}")
    for text, first, second in different[:SHOWN]:
        print(f"  {text}\n    all at once: {first}\n    {name}: {second}")
    return len(different)


if __name__ == "__main__":
    main()
