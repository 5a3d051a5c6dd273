"""A tokeniser of one language: normalisation, words and subwords, from a raw line to ids and back."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.normalize import SPACE_MARK, Normalizer
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, Subwords
from nmt_cli.text.vocabulary import Numbering, Vocabulary

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokeniser of one side. Its ids do not include end tokens."""

    normalizer: Normalizer
    moses: Moses | None
    subwords: Subwords
    numbering: Numbering

    begin: str = ""
    """The symbol at the start of every sentence, such as a language code. Empty for none."""

    symbols_are_pieces: bool = False
    """The subword model has the symbols as pieces, and segments them with the text, as in MADLAD-400."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the ids."""
        return self.numbering.vocabulary

    @property
    def symbols(self) -> Sequence[str]:
        """Words with an id each that are never segmented."""
        return tuple(self.numbering.symbols)

    def prepare(self, raw: str) -> str:
        """Return `raw` for `encode`: normalised, in words if `moses` is set, after `begin` unless `raw` is
        empty or begins with a symbol. Symbols stay unchanged. Preparing a text twice may split it further."""
        return prepared(raw, self.normalizer, self.moses, self.symbols, self.begin)

    def encode(self, text: str) -> list[int]:
        """Return the ids of prepared text, without an end token."""
        return self.segmented(text, self.subwords.encode)

    def segmented(self, text: str, segment: Callable[[str], list[int]]) -> list[int]:
        """Return the ids of prepared text. Each symbol becomes its own id, and `segment` returns the pieces
        of each run of words between symbols."""
        symbols = self.numbering.symbols
        if not symbols or self.symbols_are_pieces:
            return self.numbering.ids_of(segment(text))
        ids: list[int] = []
        for symbol, run in _runs(text, symbols):
            ids += [symbols[symbol]] if symbol else self.numbering.ids_of(segment(run))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the prepared text of `ids`. If no id is unknown, the text is what `encode` got. Unknown ids
        become the model's unknown text. If `begin` is set, omit all symbols, which are language codes."""
        pieces = self.numbering.pieces
        named = {i: symbol for symbol, i in self.numbering.symbols.items()}
        if self.begin:  # then symbols are language codes, which are not part of a text
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
        """Return the text of `ids`. Ids in `foreign` are pieces of only the other side's subword model. Join
        their vocabulary entries, with spaces for `SPACE_MARK`. Decode the other ids."""
        entries, parts = self.vocabulary.entries, [""]
        for is_foreign, run in groupby(ids, key=foreign.__contains__):
            run_ids = list(run)
            if is_foreign:
                parts.append("".join(entries[i] for i in run_ids).replace(SPACE_MARK, " "))
            else:
                text = replace(self, numbering=replace(self.numbering, foreign=())).decode(run_ids)
                parts.append(f" {text}" if entries[run_ids[0]].startswith(SPACE_MARK) else text)
        return " ".join("".join(parts).split())

    def restore(self, text: str) -> str:
        """Return decoded text as people write it: detokenised if `moses` is set, otherwise unchanged."""
        return self.moses.detokenize(text) if self.moses else text


def prepared(
    raw: str, normalizer: Normalizer, moses: Moses | None, symbols: Collection[str], begin: str = ""
) -> str:
    """Return `raw` normalised and, with `moses`, split into words. Words in `symbols` never change. Put
    `begin` before the text, unless the text is empty or begins with a symbol."""
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
    """Return `text` with `change` applied to each run of words between symbols, without empty results."""
    return " ".join(part for symbol, run in _runs(text, symbols) if (part := symbol or change(run)))


def _runs(text: str, symbols: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each symbol of `text` as (symbol, ""), and the words between two symbols as ("", words)."""
    for is_symbol, run in groupby(text.split(), key=lambda word: word in symbols):
        words = list(run)
        yield from ((word, "") for word in words) if is_symbol else [("", " ".join(words))]
