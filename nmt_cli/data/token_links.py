"""Links between the tokens of sentence pairs, from the links between their words.

Words are those of `nmt_cli.text.linked_words`. A link of two words becomes links between all tokens that
begin in them. Many pairs are handled at a time, because a call of NumPy takes as long for a pair as for
hundreds.

Suffixes name axes: P pairs, W words and T tokens of all pairs, N links between words, M links between tokens.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.array_files import Array, ArrayWriter, OffsetsWriter
from nmt_cli.data.dataset import LINK_BITS, Links, side_path
from nmt_cli.data.encode import EncodedSide
from nmt_cli.text.linked_words import Link
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

Numbers = NDArray[np.int64]
Words = Sequence[Sequence[str]]
"""The words of each line."""

REPLACEMENT = "\ufffd"
LATER_BYTE = re.compile(r"<0x[89AB][0-9A-F]>", re.IGNORECASE)
"""The entry of a byte that is not the first one of its character."""


class PairLinks(NamedTuple):
    """The links of consecutive pairs."""

    numbers: Array
    """Those of all pairs in a row, in the form of `LINK_BITS`. Those of a pair ascend."""

    counts: Numbers
    """The number of links of each pair."""


class LinksWriter(ExitStack):
    """Writes the links of a split and their offsets."""

    def __init__(self, folder: Path, split: str, kind: Links) -> None:
        super().__init__()
        tokens, offsets = (side_path(folder, split, kind, name) for name in ("tokens.npy", "offsets.npy"))
        self._numbers = self.enter_context(ArrayWriter(tokens, np.uint32))
        self._offsets = self.enter_context(OffsetsWriter(offsets))

    def append(self, links: PairLinks) -> None:
        """Write the links of more pairs."""
        self._numbers.append(links.numbers)
        self._offsets.append(links.counts)


class WordTokens:
    """Finds the tokens of one side that begin in each word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [tokenizer.decode([i]) for i in range(len(tokenizer.vocabulary))]
        self._lengths = np.array([float(len("".join(text.split()))) for text in texts])
        self._lengths[[*tokenizer.numbering.symbols.values()]] = [*map(len, tokenizer.symbols)]
        # With byte fallback, several tokens are one character. The first of them has its length. BPE has the
        # entry "" after the last one of a word.
        self._is_later_byte = np.array(
            [
                entry == "" or (text == REPLACEMENT and bool(LATER_BYTE.fullmatch(entry)))
                for text, entry in zip(texts, tokenizer.vocabulary.entries, strict=True)
            ]
        )
        self._lengths[self._is_later_byte] = 0
        self._unknown = tokenizer.vocabulary.unknown

    def of(self, words: Words, tokens: EncodedSide) -> Numbers:
        """Return for each token the number of the word in which it begins, counted over all lines, [T]. The
        number is -1 if the line of the token has no words.

        - `words`: the words of the prepared lines.
        - `tokens`: those of the same lines, without end tokens.

        Unknown tokens share the characters that the other tokens of their line leave. If tokens and text
        still differ in length, as after a normalisation by the subword model, the lengths of tokens are
        scaled.
        """
        widths_W = np.array([*map(len, chain.from_iterable(words))], np.int64)
        words_P = np.array([*map(len, words)], np.int64)
        text_P = np.bincount(_owners(words_P), widths_W, len(words))
        line_T, firsts_P = _owners(tokens.lengths), _starts(tokens.lengths)
        is_unknown_T = tokens.tokens == self._unknown
        lengths_T = np.where(is_unknown_T, 0, self._lengths[tokens.tokens])
        spelt_P = np.bincount(line_T, lengths_T, len(words))
        ends_T = lengths_T.cumsum() - _starts(spelt_P)[line_T]
        # The sums above are exact, because known tokens have whole lengths. Shares of unknown ones are not
        # whole, and their sums depend on what was added before. So each line is added up alone.
        for line in np.unique(line_T[is_unknown_T]).tolist():
            own = slice(firsts_P[line], firsts_P[line] + tokens.lengths[line])
            unknown = is_unknown_T[own]
            lengths_T[own][unknown] = max((text_P[line] - spelt_P[line]) / unknown.sum(), 0)
            ends_T[own] = lengths_T[own].cumsum()
            spelt_P[line] = ends_T[own][-1]
        # Rounded, because the share of an unknown token may be 1 / 3.
        starts_T = ((ends_T - lengths_T) * text_P[line_T] / np.maximum(spelt_P, 1)[line_T]).round(6)
        # A later byte begins inside the character before it, which may be the last one of its word.
        starts_T -= 0.5 * self._is_later_byte[tokens.tokens]
        # The character in which a token begins, counted over all lines.
        at_T = np.floor(starts_T).clip(0, text_P[line_T] - 1) + _starts(text_P)[line_T]
        found_T = np.searchsorted(widths_W.cumsum(), at_T, "right")
        return np.where(text_P[line_T] > 0, found_T, -1)


class TokenLinks:
    """Turns links between words into links between tokens."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._sides = [WordTokens(tokenizers.side(side)) for side in SIDES]

    def of(self, words: Sequence[Words], tokens: Sequence[EncodedSide], links: PairLinks) -> PairLinks:
        """Return the links between the tokens of consecutive pairs.

        - `words`: the words of the prepared sources, and those of the prepared targets.
        - `tokens`: those of the sources and of the targets, without end tokens.
        - `links`: the links between the words.
        """
        pair_N = _owners(links.counts)
        ends = [
            _linked(side.of(own_words, own_tokens), own_words, own_tokens, pair_N, word_N)
            for side, own_words, own_tokens, word_N in zip(
                self._sides, words, tokens, _positions(links.numbers), strict=True
            )
        ]
        # Each token of the source word with each token of the target word.
        sizes_N = ends[0].counts * ends[1].counts
        link_M = _owners(sizes_N)
        number_M = np.arange(len(link_M)) - _starts(sizes_N)[link_M]
        of_source_M, of_target_M = np.divmod(number_M, ends[1].counts[link_M])
        source_M, target_M = (
            end.positions[end.firsts[link_M] + own_M]
            for end, own_M in zip(ends, (of_source_M, of_target_M), strict=True)
        )
        return _numbered(pair_N[link_M], source_M, target_M, len(links.counts))


class _Ends(NamedTuple):
    """The tokens at one end of each link between words."""

    positions: Numbers
    """The positions of all tokens in their lines, by word, [T]."""

    firsts: Numbers
    """Where the tokens of the word begin in `positions`, [N]."""

    counts: Numbers
    """The number of tokens of the word, [N]."""


def _linked(word_T: Numbers, words: Words, tokens: EncodedSide, pair_N: Numbers, word_N: Numbers) -> _Ends:
    """Return the tokens of the words that are linked.

    - `word_T`: the word of each token, as `WordTokens.of` returns it for `words` and `tokens`.
    - `pair_N`, `word_N`: the pair of each link, and the position of its word there.
    """
    words_P = np.array([*map(len, words)], np.int64)
    position_T = np.arange(len(word_T)) - _starts(tokens.lengths)[_owners(tokens.lengths)]
    # Stable, so that the tokens of a word stay in order. Those without a word come first.
    order = np.argsort(word_T, kind="stable")
    counts_W = np.bincount(word_T + 1, minlength=1 + words_P.sum())
    number_N = _starts(words_P)[pair_N] + word_N + 1
    return _Ends(position_T[order], _starts(counts_W)[number_N], counts_W[number_N])


def pair_links(links: Sequence[Collection[Link]]) -> PairLinks:
    """Return the links of each pair as numbers."""
    counts = np.array([*map(len, links)], np.int64)
    flat = chain.from_iterable(chain.from_iterable(links))
    source, target = np.fromiter(flat, np.int64, 2 * counts.sum()).reshape(-1, 2).T
    return _numbered(_owners(counts), source, target, len(links))


def as_links(numbers: Array) -> list[Link]:
    """Return numbers in the form of `LINK_BITS` as links."""
    return [*zip(*(side.tolist() for side in _positions(numbers)), strict=True)]


def _positions(numbers: Array) -> tuple[Array, Array]:
    """Return the source positions and the target positions of links in the form of `LINK_BITS`."""
    return numbers & (1 << LINK_BITS) - 1, numbers >> LINK_BITS


def _numbered(pair_M: Numbers, source_M: Numbers, target_M: Numbers, pairs: int) -> PairLinks:
    """Return links as sorted numbers, each once, in the form of `LINK_BITS`. Longer texts lose their last
    links. `pair_M` has the pair of each link, among `pairs`."""
    fits_M = (source_M < 1 << LINK_BITS) & (target_M < 1 << LINK_BITS)
    keys_M = ((pair_M << LINK_BITS | target_M) << LINK_BITS | source_M)[fits_M]
    keys_M = np.unique(keys_M)
    numbers_M = (keys_M & (1 << 2 * LINK_BITS) - 1).astype(np.uint32)
    return PairLinks(numbers_M, np.bincount(keys_M >> 2 * LINK_BITS, minlength=pairs))


def _starts(counts: Array) -> Array:
    """Return where each group begins if all groups are in a row, given their sizes."""
    return counts.cumsum() - counts


def _owners(counts: Array) -> Numbers:
    """Return the number of its group for each member, given the sizes of groups in a row."""
    return np.repeat(np.arange(len(counts)), counts)
