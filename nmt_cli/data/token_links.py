"""Links between the tokens of a sentence pair, from the links between its words.

Words are those of `nmt_cli.text.linked_words`. A link of two words becomes links between all tokens that
begin in them.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from nmt_cli.data.array_files import Array, ArrayWriter, OffsetsWriter
from nmt_cli.data.dataset import LINK_BITS, Links, side_path
from nmt_cli.text.linked_words import Link, Pair
from nmt_cli.text.tag_placement import units
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

REPLACEMENT = "\ufffd"
LATER_BYTE = re.compile(r"<0x[89AB][0-9A-F]>", re.IGNORECASE)
"""The entry of a byte that is not the first one of its character."""


class LinksWriter(ExitStack):
    """Writes the links of a split and their offsets, as numbers in the form of `LINK_BITS`."""

    def __init__(self, folder: Path, split: str, kind: Links) -> None:
        super().__init__()
        tokens, offsets = (side_path(folder, split, kind, name) for name in ("tokens.npy", "offsets.npy"))
        self._numbers = self.enter_context(ArrayWriter(tokens, np.uint32))
        self._offsets = self.enter_context(OffsetsWriter(offsets))

    def append(self, pairs: Sequence[Array]) -> None:
        """Write the links of more pairs."""
        for numbers in pairs:
            self._numbers.append(numbers)
        self._offsets.append(np.array([len(numbers) for numbers in pairs], np.int64))


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

    def of(self, text: str, tokens: Array) -> Sequence[Sequence[int]]:
        """Return for each word of a line the positions of the tokens that begin in it.

        - `text`: the prepared line.
        - `tokens`: its ids, without the end token.

        Unknown tokens share the characters that the other tokens leave. If tokens and text still differ in
        length, as after a normalisation by the subword model, the lengths of tokens are scaled.
        """
        words = [end - start for start, end in units(text)]
        positions: list[list[int]] = [[] for _ in words]
        if not words or not len(tokens):
            return positions
        ends_W, lengths = np.cumsum(words), self._lengths[tokens]
        if (is_unknown := tokens == self._unknown).any():
            rest = ends_W[-1] - lengths[~is_unknown].sum()
            lengths[is_unknown] = max(rest / is_unknown.sum(), 0)
        ends_T = lengths.cumsum()
        # Rounded, because the share of an unknown token may be 1 / 3.
        starts_T = ((ends_T - lengths) * ends_W[-1] / max(ends_T[-1], 1)).round(6)
        # A later byte begins inside the character before it, which may be the last one of its word.
        starts_T -= 0.5 * self._is_later_byte[tokens]
        for position, word in enumerate(np.searchsorted(ends_W[:-1], starts_T, "right").tolist()):
            positions[word].append(position)
        return positions


class TokenLinks:
    """Turns links between words into links between tokens."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._sides = [WordTokens(tokenizers.side(side)) for side in SIDES]

    def of(self, pair: Pair, tokens: Sequence[Array], links: Iterable[Link]) -> Array:
        """Return the links between the tokens of a pair as numbers, sorted, in the form of `LINK_BITS`.

        - `pair`: the prepared source and target.
        - `tokens`: the ids of both, without end tokens.
        - `links`: the links between the words.
        """
        source, target = (
            # Later tokens are too far away for a link.
            side.of(text, ids[: 1 << LINK_BITS])
            for side, text, ids in zip(self._sides, pair, tokens, strict=True)
        )
        return as_numbers((s, t) for one, other in links for s in source[one] for t in target[other])


def as_numbers(links: Iterable[Link]) -> Array:
    """Return links as sorted numbers, each once, in the form of `LINK_BITS`. Longer texts lose their last
    links."""
    most = 1 << LINK_BITS
    numbers = {t << LINK_BITS | s for s, t in links if s < most and t < most}
    return np.array(sorted(numbers), np.uint32)


def as_links(numbers: Array) -> list[Link]:
    """Return numbers in the form of `LINK_BITS` as links."""
    sources, targets = numbers & (1 << LINK_BITS) - 1, numbers >> LINK_BITS
    return [*zip(sources.tolist(), targets.tolist(), strict=True)]
