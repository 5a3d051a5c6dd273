"""Texts to translate: captions of Multi30k, English to German, single and joined to longer sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import numpy as np

from nmt_cli.text.tokenizers import Tokenizers
from recipes.benchmarks.machine import data_folder

CAPTIONS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
WMT_MEAN, WMT_SPREAD, WMT_LONGEST = 27, 0.6, 100
"""Subwords. The spread is that of the logarithm."""

Ids = list[list[int]]
Caption = tuple[str, list[int], str]
"""A line, its ids, and its reference."""


@dataclass(frozen=True)
class Text:
    """Lines to translate, their ids with the end token, and their references."""

    name: str
    lines: Sequence[str]
    sources: Ids
    references: Sequence[str]

    def part(self, count: int) -> Ids:
        """Return `count` sources of medium length."""
        ordered = sorted(self.sources, key=len)
        first = max(0, (len(ordered) - count) // 2)
        return ordered[first : first + count]


def multi30k(tokenizers: Tokenizers, count: int) -> Text:
    """Return the first `count` captions of a test set."""
    captions = list(_captions(tokenizers, CAPTIONS[0]))
    return _text("Multi30k", [[caption] for caption in captions[:count]], tokenizers)


def wmt_like(tokenizers: Tokenizers, count: int) -> Text:
    """Return `count` texts of joined captions, each of about a length drawn from a log-normal."""
    draw = np.random.default_rng(1)
    groups: list[list[Caption]] = []
    pieces, wanted = 0, 0.0
    for caption in (one for name in CAPTIONS for one in _captions(tokenizers, name)):
        more = len(caption[1])
        if not groups or pieces + more / 2 > wanted:
            groups.append([])
            logarithm = np.log(WMT_MEAN) - WMT_SPREAD**2 / 2 + WMT_SPREAD * draw.standard_normal()
            pieces, wanted = 0, min(float(np.exp(logarithm)), WMT_LONGEST)
        groups[-1].append(caption)
        pieces += more
    return _text("WMT-like mix", groups[:count], tokenizers)


def _text(name: str, groups: Sequence[Sequence[Caption]], tokenizers: Tokenizers) -> Text:
    ended = tokenizers.source.vocabulary.ended
    lines, sources, references = [], [], []
    for group in groups:
        lines.append(" ".join(line for line, _, _ in group))
        sources.append(ended([piece for _, ids, _ in group for piece in ids]))
        references.append(" ".join(reference for _, _, reference in group))
    return Text(name, lines, sources, references)


def _captions(tokenizers: Tokenizers, name: str) -> Iterator[Caption]:
    folder = data_folder() / "multi30k"
    english, german = (
        (folder / f"{name}.{lang}").read_text("utf-8").removesuffix("\n").split("\n") for lang in ("en", "de")
    )
    for line, reference in zip(english, german, strict=True):
        ids = tokenizers.source.encode(tokenizers.source.prepare(line))
        if tokenizers.source.vocabulary.unknown in ids:
            raise click.ClickException(
                "a source has unknown tokens, which are padding to others. Use another MODEL."
            )
        yield line, ids, reference
