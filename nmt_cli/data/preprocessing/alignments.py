"""The links between the tokens of the training pairs, from files of the user or by the aligner.

The aligner links words, because their frequencies say more than those of subwords. A link of two words
becomes links between all their tokens. A file of the user has a line per pair in Pharaoh's format, such as
"0-0 1-2".
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from nmt_cli.corpus import raw_files
from nmt_cli.data.array_files import ArrayWriter, OffsetsWriter, mapped_array
from nmt_cli.data.dataset import LINK_BITS, LINKS, TRAIN, open_sentences, side_path
from nmt_cli.data.preprocessing.aligner import Aligner, Links
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.data.preprocessing.parts import KEPT
from nmt_cli.data.preprocessing.training_set import BLOCK_PAIRS, Run
from nmt_cli.errors import UserError
from nmt_cli.text.tag_placement import units
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

LEARNED_CELLS = 20_000_000
"""The aligner learns from a sample of pairs. The products of their source and target tokens add up to about
this number, which decides the memory that is needed."""

LINK = re.compile(rb"(\d{1,6})-(\d{1,6})(?:\s+|$)")
PHARAOH = re.compile(rb"\s*(%b)*" % LINK.pattern)


class _Tokens:
    """The tokens of one side of the training set, with the number of characters of each vocabulary entry."""

    def __init__(self, folder: Path, side: Side, tokenizer: Tokenizer) -> None:
        self.sentences = open_sentences(folder, TRAIN, side)
        texts = (tokenizer.decode([i]) for i in range(len(tokenizer.vocabulary)))
        self._lengths = np.array([len("".join(text.split())) for text in texts])
        self._lengths[[*tokenizer.numbering.symbols.values()]] = [*map(len, tokenizer.symbols)]

    def by_word(self, number: int, words: Sequence[str]) -> list[list[int]]:
        """Return for each word of a line the positions of the tokens that begin in it.

        `number` is that of the pair, and `words` are the words of its line. Tokens may have more or fewer
        characters than the words, as unknown tokens do. Then their lengths are scaled.
        """
        start, end = self.sentences.offsets[number : number + 2]
        lengths = self._lengths[self.sentences.tokens[start : min(end - 1, start + (1 << LINK_BITS))]]
        ends_W, ends_T = np.cumsum([*map(len, words)]), lengths.cumsum()
        starts_T = (ends_T - lengths) * ends_W[-1] / max(ends_T[-1:].sum(), 1)
        positions: list[list[int]] = [[] for _ in words]
        for position, word in enumerate(np.searchsorted(ends_W[:-1], starts_T, "right").tolist()):
            positions[word].append(position)
        return positions


def write_alignments(run: Run, tokenizers: Tokenizers, folder: Path, counts: Sequence[int]) -> None:
    """Write the links of the training set to the dataset `folder`.

    `counts` has the number of pairs of each corpus. A corpus without a file of links is aligned if
    corpus.align is set, and otherwise has no links. Raise `UserError` for a damaged file, or a link to a word
    that does not exist.
    """
    paths = (side_path(folder, TRAIN, LINKS, content) for content in ("tokens.npy", "offsets.npy"))
    with ArrayWriter(next(paths), np.uint32) as links, OffsetsWriter(next(paths)) as offsets:
        for codes in _codes(run, tokenizers, folder, counts):
            links.append(np.array(sorted(codes)))
            offsets.append(np.array([len(codes)]))


def _codes(run: Run, tokenizers: Tokenizers, folder: Path, counts: Sequence[int]) -> Iterator[set[int]]:
    """Yield the links of each training pair. Each link is one number, in the form of `LINK_BITS`."""
    numbers, pairs = mapped_array(run.work / KEPT), enumerate(_lines(folder))
    sides = [_Tokens(folder, side, tokenizers.side(side)) for side in SIDES]
    aligner = _learned(folder, sides, run) if run.config.corpus.align else None
    for item, count in zip(run.training, counts, strict=True):
        given = enumerate(raw_files.lines(item.alignments), start=1) if item.alignments else None
        for number, lines in islice(pairs, count):
            # Pharaoh's format counts words between spaces. The aligner also separates punctuation.
            words = [line.split() if given else _units(line) for line in lines]
            if given:
                linked = _parsed(next(one for one in given if one[0] == numbers[number]), words, item)
            else:
                linked = aligner.links(words) if aligner else []
            source, target = (side.by_word(number, own) for side, own in zip(sides, words, strict=True))
            yield {t << LINK_BITS | s for one, other in linked for s in source[one] for t in target[other]}
            if number % BLOCK_PAIRS == 0:
                run.progress("aligning", number, len(numbers))


def _learned(folder: Path, sides: Sequence[_Tokens], run: Run) -> Aligner:
    """Return an aligner that has learnt from all pairs, or from evenly spread ones if there are too many."""
    run.progress("learning alignments", 0, 0)
    cells = np.prod([np.diff(side.sentences.offsets) for side in sides], axis=0).sum()
    sample = islice(_lines(folder), 0, None, -(-int(cells) // LEARNED_CELLS))
    return Aligner([[_units(line) for line in lines] for lines in sample])


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the prepared text of each training pair."""
    source, target = (side_path(folder, TRAIN, side, "txt").open("rb") for side in SIDES)
    with source, target:
        yield from ((one.decode(), other.decode()) for one, other in zip(source, target, strict=True))


def _units(line: str) -> list[str]:
    return [line[start:end] for start, end in units(line)]


def _parsed(numbered: tuple[int, bytes], words: Sequence[Sequence[str]], item: Input) -> Links:
    """Return the links in a line of Pharaoh's format.

    - `numbered`: the number of the line, and the line.
    - `words`: the words of the pair.
    - `item`: the corpus, whose tag shifts the positions of source words.

    Raise `UserError` for another format, or a word that does not exist.
    """
    (number, line), tags = numbered, int(bool(item.named and item.named.tag))
    links = [(int(source) + tags, int(target)) for source, target in LINK.findall(line)]
    exist = all(source < len(words[0]) and target < len(words[1]) for source, target in links)
    if not exist or not PHARAOH.fullmatch(line):
        raise UserError(
            f'{item.alignments} line {number:,} must have links such as "0-0 1-2" between the '
            f"{len(words[0]) - tags} and {len(words[1])} words of the prepared text, source first. "
            "Correct the line, or leave it empty."
        )
    return links
