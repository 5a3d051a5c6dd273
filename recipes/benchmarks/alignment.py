"""Measure alignments of words against the lexicon of the demo. Print a table.

python -m recipes.benchmarks.alignment --corpus FOLDER --model RUN

FOLDER is the corpus of the quickstart recipe, and RUN a run or a model of it. Gold links are between a word
of the demo's lexicon and its only translation. The alignment error rate (Och and Ney 2003) counts all links
of these words on either side. Models align the lines of the test set that they translate like the reference.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from nmt_cli.api import load
from nmt_cli.data.preprocessing.aligner import Aligner
from nmt_cli.text.tag_placement import units
from nmt_cli.translation.text.unit_shares import links
from recipes.benchmarks.machine import LANGUAGES, method, print_head, print_row
from recipes.benchmarks.markup import bleu, known_words

Link = tuple[int, int]
SETS = "train", "test"
KNOWN = known_words()


class Aligned(NamedTuple):
    """The words of a pair, and links between a source word and a target word."""

    source: Sequence[str]
    target: Sequence[str]
    links: Iterable[Sequence[int]]


def words(line: str) -> list[str]:
    """Return the words and the punctuation marks of `line`."""
    return [line[start:end] for start, end in units(line)]


def gold(pair: Aligned) -> set[Link]:
    """Return the links between words of the lexicon that are unique in a pair and their only translations."""
    found = set()
    for position, word in enumerate(pair.source):
        partners = [index for index, other in enumerate(pair.target) if other in KNOWN.get(word, ())]
        if pair.source.count(word) == 1 and len(partners) == 1:
            found.add((position, partners[0]))
    return found


def row(name: str, pairs: Sequence[Aligned], more: str = "") -> None:
    """Print alignment error rate, precision and recall of the links of `pairs`."""
    right = count = wanted = 0
    for pair in pairs:
        expected = gold(pair)
        sources, targets = ({link[side] for link in expected} for side in (0, 1))
        actual = {(s, t) for s, t in pair.links if s in sources or t in targets}
        right, count, wanted = right + len(actual & expected), count + len(actual), wanted + len(expected)
    rates = 1 - 2 * right / (count + wanted), right / count, right / wanted
    print_row(name, len(pairs), *(f"{100 * rate:.1f} %" for rate in rates), more)


@click.command(help=method(__doc__))
@click.option("--corpus", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--model", "models", type=Path, multiple=True)
@click.option("--threads", default=2)
def main(corpus: Path, models: Sequence[Path], threads: int) -> None:
    """Print a row for the aligner of `corpus.align`, and one for each model."""
    sides = [[(corpus / f"{name}.{lang}").read_text("utf-8") for lang in LANGUAGES] for name in SETS]
    train, test = (list(zip(*map(str.splitlines, texts), strict=True)) for texts in sides)
    print_head("aligned by", "pairs", "error rate", "precision", "recall", "BLEU of the test set")
    aligner = Aligner([[words(line) for line in pair] for pair in train])
    tested = [[words(line) for line in pair] for pair in test]
    row(
        "corpus.align",
        [
            Aligned(one, other, links)
            for (one, other), links in zip(tested, aligner.links(tested), strict=True)
        ],
    )
    for folder in models:
        with load(folder, device="cpu", threads=threads) as model:
            found = list(model.translations([source for source, _ in test], aligned=True))
        pairs = [
            Aligned(source, target, links(one.shares))
            for one, (source, target), (_, reference) in zip(found, tested, test, strict=True)
            if one.text == reference
        ]
        kind = "guided" if model.transformers[0].guided else "not guided"
        score = bleu([one.text for one in found], [reference for _, reference in test])
        row(f"{folder.name}, {kind}", pairs, f"{score:.2f}")


if __name__ == "__main__":
    main()
