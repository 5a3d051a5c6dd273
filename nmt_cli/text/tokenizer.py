"""The tokeniser of one side: from a raw line to the ids of its subwords, and back to text.

A line is first prepared: it is normalised and, with Moses, split into words. Then a subword model cuts it
into pieces, which the vocabulary maps to ids. A symbol is a word that is never changed or cut, such as a
language code, and has its own id.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.normalize import SPACE_MARK, Normalizer
from nmt_cli.text.placeholders import OURS, apart
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, Subwords
from nmt_cli.text.vocabulary import Numbering, Vocabulary

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokeniser of one side, source or target. Its ids do not include end tokens."""

    normalizer: Normalizer
    moses: Moses | None
    subwords: Subwords
    numbering: Numbering

    begin: str = ""
    """The symbol with which every sentence begins, such as a language code. Empty for none."""

    symbols_are_pieces: bool = False
    """True if the symbols are pieces of the subword model, which then segments them with the text. MADLAD-400
    has such symbols."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary to which the ids belong."""
        return self.numbering.vocabulary

    @property
    def symbols(self) -> Sequence[str]:
        """The words that are never segmented and have an id each."""
        return tuple(self.numbering.symbols)

    @property
    def codes(self) -> Collection[int]:
        """The ids of language codes. If `begin` is set, they are all symbols but those of placeholders."""
        symbols = self.numbering.symbols
        return {symbols[symbol] for symbol in apart(self.symbols)[1]} if self.begin else ()

    def prepare(self, raw: str) -> str:
        """Return a raw line as `encode` needs it: normalised, split into words if `moses` is set, and after
        `begin`.

        `begin` is not added to an empty line, or a line that begins with a language code. Symbols do not
        change.
        Prepare a line only once, because Moses may split its own result further.
        """
        return prepared(raw, self.normalizer, self.moses, self.symbols, self.begin)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prepared line, without an end token."""
        return self.segmented(text, self.subwords.encode)

    def segmented(self, text: str, segment: Callable[[str], list[int]]) -> list[int]:
        """Return the ids of a prepared line, with another segmentation than that of `encode`.

        `segment` is called with each run of words between symbols, and returns the numbers of its pieces.
        """
        symbols = self.numbering.symbols
        if not symbols or self.symbols_are_pieces:
            return self.numbering.ids_of(segment(text))
        ids: list[int] = []
        for symbol, run in _runs(text, symbols):
            ids += [symbols[symbol]] if symbol else self.numbering.ids_of(segment(run))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the prepared text of `ids`. An unknown id becomes the unknown text of the subword model.

        Language codes are left out.
        """
        pieces = self.numbering.pieces
        named = {i: symbol for symbol, i in self.numbering.symbols.items()}
        if self.begin:
            codes = self.codes
            ids = [i for i in ids if i not in codes]
        # With a shared vocabulary, a model may output a piece of the other side, which this side's subword
        # model does not know.
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
        """Return the text of `ids`, of which those in `foreign` are pieces of the other side's subword model
        only.

        The entries of foreign ids are joined, with spaces for `SPACE_MARK`. The subword model of this side
        decodes the others.
        """
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
        """Return decoded text as people write it. It is detokenised if `moses` is set, and unchanged
        otherwise."""
        return self.moses.detokenize(text) if self.moses else text


def prepared(
    raw: str, normalizer: Normalizer, moses: Moses | None, symbols: Collection[str], begin: str = ""
) -> str:
    """Return `raw` normalised and, with `moses`, split into words. Words in `symbols` do not change.

    `begin` is put before the result, unless the result is empty or begins with a language code.
    """
    # Most vocabularies have no symbols. Then the text need not be split into runs.
    if symbols:
        text = apart_from(symbols, lambda run: _words(run, normalizer, moses), raw)
    else:
        text = _words(raw, normalizer, moses)
    if not begin:
        return text
    first = text.split(" ", 1)[0]
    # The symbol of a placeholder is a part of the text.
    begins = not text or (first in symbols and not OURS.fullmatch(first))
    return text if begins else f"{begin} {text}"


def _words(text: str, normalizer: Normalizer, moses: Moses | None) -> str:
    text = normalizer(text)
    return moses.tokenize(text) if moses else text


def apart_from(symbols: Collection[str], change: Callable[[str], str], text: str) -> str:
    """Apply `change` to each run of words between symbols, and join the results and the symbols by spaces.
    Empty results are left out."""
    return " ".join(part for symbol, run in _runs(text, symbols) if (part := symbol or change(run)))


def _runs(text: str, symbols: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of `text` in order: each symbol as (symbol, ""), and the words between two symbols as
    ("", words)."""
    for is_symbol, run in groupby(text.split(), key=lambda word: word in symbols):
        words = list(run)
        yield from ((word, "") for word in words) if is_symbol else [("", " ".join(words))]
