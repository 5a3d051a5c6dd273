"""One language's way from a raw line to ids and back: normalise, split into words, segment."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from nmt_cli.text.moses import Moses
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subwords import MARKS, Subwords, padded_size

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Turns raw lines of one language into ids and ids into running text; no end marks here."""

    normalizer: Normalizer
    moses: Moses | None
    symbols: Sequence[str]
    subwords: Subwords

    @property
    def entries(self) -> list[str]:
        """What each id stands for; filler entries, never produced, are empty."""
        known = [*MARKS, *self.symbols, *self.subwords.entries]
        return known + [""] * (padded_size(len(known)) - len(known))

    @property
    def unused(self) -> range:
        """The ids of the filler entries."""
        known = len(MARKS) + len(self.symbols) + len(self.subwords.entries)
        return range(known, padded_size(known))

    def prepare(self, raw: str) -> str:
        """The text that is segmented: normalised, in words. Preparing twice is not needed, nor harmless."""
        return prepared(raw, self.normalizer, self.moses, self.symbols)

    def encode(self, text: str) -> list[int]:
        """The ids of prepared text."""
        return self.segmented(text, self.subwords.encode)

    def segmented(self, text: str, segment: Callable[[str], list[int]]) -> list[int]:
        """The ids of prepared text, with those of all that is no symbol from `segment`."""
        if not self.symbols:
            return segment(text)
        ids: list[int] = []
        for symbol, run in _runs(text, self.symbols):
            ids += [len(MARKS) + self.symbols.index(symbol)] if symbol else segment(run)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Prepared text again: the inverse of `encode` where nothing was unknown."""
        first = len(MARKS) + len(self.symbols)
        parts = []
        for is_symbol, run in groupby(ids, key=lambda i: len(MARKS) <= i < first):
            some = list(run)
            parts += (
                [self.symbols[i - len(MARKS)] for i in some] if is_symbol else [self.subwords.decode(some)]
            )
        return " ".join(part for part in parts if part)

    def restore(self, text: str) -> str:
        """Prepared text as one would write it."""
        return self.moses.detokenize(text) if self.moses else text


def prepared(raw: str, normalizer: Normalizer, moses: Moses | None, symbols: Sequence[str]) -> str:
    """See `Tokenizer.prepare`; needs no subword model."""

    def words(text: str) -> str:
        text = normalizer(text)
        return moses.tokenize(text) if moses else text

    return apart_from(symbols, words, raw) if symbols else words(raw)


def apart_from(symbols: Sequence[str], change: Callable[[str], str], text: str) -> str:
    """`text` with `change` done to all of it but the words that are symbols."""
    return " ".join(part for symbol, run in _runs(text, symbols) if (part := symbol or change(run)))


def _runs(text: str, symbols: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words of `text`: each symbol as (symbol, ""), and what stands between symbols as ("", words)."""
    for is_symbol, run in groupby(text.split(), key=lambda word: word in symbols):
        words = list(run)
        yield from ((word, "") for word in words) if is_symbol else [("", " ".join(words))]
