"""One language's way from a raw line to ids and back: normalise, split into words, segment."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.normalize import BLANK_MARK, Normalizer
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, Subwords
from nmt_cli.text.vocabulary import Numbering, Vocabulary

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Turns raw lines of one language into ids and ids into running text; end marks are left to others."""

    normalizer: Normalizer
    moses: Moses | None
    subwords: Subwords
    numbering: Numbering

    begin: str = ""
    """The symbol that every sentence begins with, as a language's code; empty for none."""

    @property
    def vocabulary(self) -> Vocabulary:
        """What the ids stand for."""
        return self.numbering.vocabulary

    @property
    def symbols(self) -> Sequence[str]:
        """Words that have an id each and are never segmented."""
        return tuple(self.numbering.symbols)

    def prepare(self, raw: str) -> str:
        """The text that `encode` takes: normalised and split into words. To be done once: twice may split
        more."""
        return prepared(raw, self.normalizer, self.moses, self.symbols, self.begin)

    def encode(self, text: str) -> list[int]:
        """The ids of prepared text."""
        return self.segmented(text, self.subwords.encode)

    def segmented(self, text: str, segment: Callable[[str], list[int]]) -> list[int]:
        """The ids of prepared text, where `segment` turns each stretch without symbols into pieces."""
        symbols = self.numbering.symbols
        if not symbols:
            return self.numbering.ids_of(segment(text))
        found: list[int] = []
        for symbol, run in _runs(text, symbols):
            found += [symbols[symbol]] if symbol else self.numbering.ids_of(segment(run))
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Prepared text again: the inverse of `encode` where nothing was unknown."""
        pieces = self.numbering.pieces
        named = {i: symbol for symbol, i in self.numbering.symbols.items()}
        if self.begin:  # then symbols are codes of languages, and no part of a text
            ids = [i for i in ids if i not in named]
        if foreign := self.numbering.foreign:
            return self._decoded_with(foreign, ids)
        parts: list[str] = []
        for is_symbol, run in groupby(ids, key=named.__contains__):
            if is_symbol:
                parts += [named[i] for i in run]
            else:
                parts.append(self.subwords.decode([pieces.get(i, UNKNOWN_PIECE) for i in run]))
        return " ".join(part for part in parts if part)

    def _decoded_with(self, foreign: Collection[int], ids: Sequence[int]) -> str:
        """As `decode`, where some entries are pieces of the other side's subword model alone."""
        entries, parts = self.vocabulary.entries, [""]
        for is_foreign, run in groupby(ids, key=foreign.__contains__):
            known = list(run)
            if is_foreign:
                parts.append("".join(entries[i] for i in known).replace(BLANK_MARK, " "))
            else:
                text = replace(self, numbering=replace(self.numbering, foreign=())).decode(known)
                parts.append(f" {text}" if entries[known[0]].startswith(BLANK_MARK) else text)
        return " ".join("".join(parts).split())

    def restore(self, text: str) -> str:
        """Decoded text as people write it: words are joined again where Moses split them."""
        return self.moses.detokenize(text) if self.moses else text


def prepared(
    raw: str, normalizer: Normalizer, moses: Moses | None, symbols: Collection[str], begin: str = ""
) -> str:
    """See `Tokenizer.prepare`; needs no subword model. A text may begin with another symbol than `begin`."""

    if symbols:
        text = apart_from(symbols, lambda run: _words(run, normalizer, moses), raw)
    else:
        text = _words(raw, normalizer, moses)
    if not begin:
        return text
    begins = not text or text.split(" ", 1)[0] in symbols
    return text if begins else f"{begin} {text}"


def _words(text: str, normalizer: Normalizer, moses: Moses | None) -> str:
    text = normalizer(text)
    return moses.tokenize(text) if moses else text


def apart_from(symbols: Collection[str], change: Callable[[str], str], text: str) -> str:
    """`text` with `change` applied to each stretch between symbols."""
    return " ".join(part for symbol, run in _runs(text, symbols) if (part := symbol or change(run)))


def _runs(text: str, symbols: Collection[str]) -> Iterator[tuple[str, str]]:
    """The words of `text`: each symbol as (symbol, ""), and what stands between symbols as ("", words)."""
    for is_symbol, run in groupby(text.split(), key=lambda word: word in symbols):
        words = list(run)
        yield from ((word, "") for word in words) if is_symbol else [("", " ".join(words))]
