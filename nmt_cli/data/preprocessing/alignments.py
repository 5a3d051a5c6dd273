"""The links between the words of the training pairs, from files of the user or by the aligner.

The aligner links words, because their frequencies say more than those of subwords. A file of the user has a
line per pair in Pharaoh's format, such as "0-0 1-2". The dataset has the links between tokens too, so that a
training that segments nothing again can use them as they are.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from nmt_cli.corpus import raw_files
from nmt_cli.data.array_files import mapped_array
from nmt_cli.data.dataset import LINKS, TRAIN, WORD_LINKS, Sentences, open_sentences, side_path
from nmt_cli.data.encode import EncodedSide
from nmt_cli.data.preprocessing.aligner import Aligner, WordPair
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.data.preprocessing.parts import KEPT
from nmt_cli.data.preprocessing.training_set import BLOCK_PAIRS, Run
from nmt_cli.data.token_links import LinksWriter, TokenLinks, pair_links
from nmt_cli.errors import UserError
from nmt_cli.text.linked_words import Link, Pair, words_of
from nmt_cli.text.tag_placement import units
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import Tokenizers

LEARNED_CELLS = 200_000_000
"""The aligner learns from a sample of pairs. The products of their source and target tokens add up to about
this number: about a million captions, or 300,000 ordinary lines. It decides the memory that is needed, 4
bytes for each product of words."""

LINK = re.compile(rb"(\d{1,6})-(\d{1,6})(?:\s+|$)")
PHARAOH = re.compile(rb"\s*(%b)*" % LINK.pattern)


def write_alignments(run: Run, tokenizers: Tokenizers, folder: Path, counts: Sequence[int]) -> None:
    """Write the links of the training set to the dataset `folder`, between words and between tokens.

    `counts` has the number of pairs of each corpus. A corpus without a file or column of links is aligned if
    corpus.align is set, and otherwise has no links. Raise `UserError` for a damaged file, or a link to a word
    that does not exist.
    """
    sides = [open_sentences(folder, TRAIN, side) for side in SIDES]
    ends = [tokenizers.side(side).vocabulary.end for side in SIDES]
    between_tokens = TokenLinks(tokenizers)
    first = 0
    with LinksWriter(folder, TRAIN, WORD_LINKS) as of_words, LinksWriter(folder, TRAIN, LINKS) as of_tokens:
        for words, found in _linked(run, folder, sides, counts):
            links = pair_links(found)
            of_words.append(links)
            tokens = [
                EncodedSide.read(side, first, first + len(words)).without_ends(end)
                for side, end in zip(sides, ends, strict=True)
            ]
            of_tokens.append(between_tokens.of([*zip(*words, strict=True)], tokens, links))
            first += len(words)


def _linked(
    run: Run, folder: Path, sides: Sequence[Sentences], counts: Sequence[int]
) -> Iterator[tuple[Sequence[WordPair], Sequence[Sequence[Link]]]]:
    """Yield the words of each block of training pairs, and for each pair the links between its words."""
    numbers, pairs = mapped_array(run.work / KEPT), enumerate(_lines(folder))
    aligner = _learned(folder, sides, run) if run.config.corpus.align else None
    for item, count in zip(run.training, counts, strict=True):
        given = enumerate(lines, start=1) if (lines := _given(item)) else None
        own = islice(pairs, count)
        while block := [*islice(own, BLOCK_PAIRS)]:
            run.progress("aligning", block[0][0], len(numbers))
            words = [[*map(words_of, pair)] for _, pair in block]
            if given:
                # The lines of pairs that were left out are skipped.
                of_kept = (next(one for one in given if one[0] == numbers[number]) for number, _ in block)
                links = [_parsed(line, pair, item) for line, (_, pair) in zip(of_kept, block, strict=True)]
            else:
                links = [*aligner.links(words)] if aligner else [[] for _ in block]
            yield words, links


def _given(item: Input) -> Iterator[bytes] | None:
    """Return the links of each pair of a corpus in Pharaoh's format. Return None if the user gives none."""
    if item.corpus.has_alignments:
        return item.corpus.alignments(BLOCK_PAIRS)
    return raw_files.lines(item.alignments) if item.alignments else None


def _learned(folder: Path, sides: Sequence[Sentences], run: Run) -> Aligner:
    """Return an aligner that has learnt from all pairs, or from evenly spread ones if there are too many."""
    run.progress("learning alignments", 0, 0)
    cells = np.prod([np.diff(side.offsets) for side in sides], axis=0).sum()
    sample = islice(_lines(folder), 0, None, -(-int(cells) // LEARNED_CELLS))
    return Aligner([*map(words_of, pair)] for pair in sample)


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the prepared text of each training pair."""
    source, target = (side_path(folder, TRAIN, side, "txt").open("rb") for side in SIDES)
    with source, target:
        yield from ((one.decode(), other.decode()) for one, other in zip(source, target, strict=True))


def _parsed(numbered: tuple[int, bytes], pair: Pair, item: Input) -> list[Link]:
    """Return the links in a line of Pharaoh's format.

    - `numbered`: the number of the line, and the line.
    - `pair`: the prepared source and target.
    - `item`: the corpus, whose tag shifts the positions of source words.

    Raise `UserError` for another format, or a word that does not exist.
    """
    (number, line), tags = numbered, int(bool(item.named and item.named.tag))
    words = [_words_between_spaces(text) for text in pair]
    links = [(int(source) + tags, int(target)) for source, target in LINK.findall(line)]
    exist = all(source < len(words[0]) and target < len(words[1]) for source, target in links)
    if not exist or not PHARAOH.fullmatch(line):
        line_name = f"{item.alignments} line {number:,}"
        if item.corpus.has_alignments:
            column = item.corpus.config.alignment_column
            line_name = f"{item.corpus.location('target', number)}: the {column} column"
        raise UserError(
            f'{line_name} must have links such as "0-0 1-2" between the '
            f"{len(words[0]) - tags} and {len(words[1])} words of the prepared text, source first. "
            "Correct the line, or leave it empty."
        )
    return [(s, t) for source, target in links for s in words[0][source] for t in words[1][target]]


def _words_between_spaces(line: str) -> list[list[int]]:
    """Return for each word between spaces, which Pharaoh's format counts, the numbers of our words in it.
    Ours also separate punctuation."""
    starts = [start for start, _ in units(line)]
    return [
        [*range(bisect_left(starts, word.start()), bisect_left(starts, word.end()))]
        for word in re.finditer(r"\S+", line)
    ]
