"""The languages of a model, and the symbols that choose among them.

A model of several languages has a symbol for each, such as `<2fr>` or `fra_Latn`. The symbol of a target
language is put before the source, or is the first token of the translation. The symbol of a source language
is put before the source. A direction is a source and a target language.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nmt_cli.errors import UserError, shortened
from nmt_cli.language import iso_code, language_in, nearest_language

MANY = "mul"
"""The name of several languages in place of one, as in ISO 639-2."""

TAG = re.compile(r"(?:<2|>>)(?P<name>[a-z]{2,3}(?:[-_][A-Za-z]{2,8})*)(?:>|<<)")
"""A symbol before the source that names the target language, such as `<2fr>` and `>>zh_Hans<<`."""

LISTED = 6
"""The maximum number of languages that an error lists."""


@dataclass(frozen=True, slots=True)
class ModelLanguages:
    """The languages of a model by name, each with its symbol. "" means that it has none."""

    sources: Mapping[str, str]
    targets: Mapping[str, str]
    target_symbols: Literal["source", "target"] = "source"
    """The side that begins with the symbol of the target language. With "target", the symbol is the first
    token of the translation, and the source begins with the symbol of its own language."""

    pairs: tuple[tuple[str, ...], ...] = ()
    """The directions of the training data, each a source and a target language. Empty means all of them."""

    def __post_init__(self) -> None:
        """Raise `UserError` if a side has no language, or if a source would begin with two symbols."""
        if not self.sources or not self.targets:
            raise UserError("languages has no source or no target.")
        if self.target_symbols == "source" and any(self.sources.values()) and any(self.targets.values()):
            raise UserError("languages has symbols of both sides for the source, but it takes one.")
        for pair in self.pairs:
            if len(pair) != 2 or pair[0] not in self.sources or pair[1] not in self.targets:
                raise UserError(f"languages has the pair {' '.join(pair)}, but not both of its languages.")

    def __hash__(self) -> int:
        """Return a hash, because worker processes keep what they made for a recipe."""
        return hash((*self.sources.items(), *self.targets.items(), self.target_symbols))

    @property
    def symbols(self) -> set[str]:
        """All symbols of languages."""
        return {*self.sources.values(), *self.targets.values()} - {""}

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The `pairs`, or else all directions but those of a language into itself."""
        if self.pairs:
            return [(source, target) for source, target in self.pairs]
        return [
            (source, target)
            for source in self.sources
            for target in self.targets
            if source != target or len(self.sources) == len(self.targets) == 1
        ]

    def begins(self, source: str, target: str) -> tuple[str, str]:
        """Return the symbols with which the source and the translation begin in a direction."""
        own, other = self.sources.get(source, ""), self.targets[target]
        return (own, other) if self.target_symbols == "target" else (own or other, "")

    def direction(self, source: str | None, target: str | None, usual: tuple[str, str]) -> tuple[str, str]:
        """Return a direction of the model by the names of its languages.

        source, target: languages, which may be spelt in another way: "de" for "deu_Latn". None is the
            language of the usual direction.
        usual: the usual direction. It need not be one of the model's directions.

        Raise `UserError` for a language that the model does not have, and for None without a usual one.
        """
        # Without symbols for sources, all of them are translated alike.
        if source is None and not any(self.sources.values()):
            source = usual[0]
        else:
            source = _chosen(source, self.sources, usual[0], "from")
        return source, _chosen(target, self.targets, usual[1], "into")


def _chosen(name: str | None, known: Mapping[str, str], usual: str, word: str) -> str:
    """Return the name of a language in `known`, given its name or symbol. `word` is "from" or "into", for
    errors."""
    if name is None:
        if found := language_in(known, usual) or (next(iter(known)) if len(known) == 1 else None):
            return found
        raise UserError(f"the model translates {word} {listed(known)}. Choose one of them.")
    of_symbol = next((own for own, symbol in known.items() if symbol and symbol == name), None)
    if found := of_symbol or language_in(known, name):
        return found
    if word == "from" and known.get(MANY) == "":  # it reads languages that are not recorded
        return name
    offered = nearest_language(name, known) or f"it has {listed(known)}."
    raise UserError(f"the model does not translate {word} {shortened(name)}: {offered}")


def listed(names: Iterable[str]) -> str:
    """Return `names` as a list for people, at most `LISTED` of them and the number of others."""
    names = [*names]
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def languages_of_symbols(
    pair: tuple[str, str], symbols: Iterable[str], begins: tuple[str, ...]
) -> ModelLanguages:
    """Return the languages of a model that does not record them.

    pair: the usual source and target language.
    symbols: all symbols of the vocabulary.
    begins: the symbols with which source and target sentences usually begin, or ().

    The names of target languages are in their symbols. Without such symbols, the languages are `pair`.
    """
    source, target = pair
    if begins and begins[1]:  # M2M100 and NLLB have a symbol per language, and no others
        codes = {symbol.strip("_"): symbol for symbol in symbols}
        return ModelLanguages(codes, codes, "target")
    targets = {match["name"]: match[0] for match in map(TAG.fullmatch, symbols) if match}
    if not targets:
        return ModelLanguages({source: ""}, {target: ""})
    # MADLAD-400 begins its sources with a symbol, and reads all languages. So do models of OPUS-MT such as
    # itc-itc, whose names have a family of languages on both sides.
    reads_all = bool(begins) or iso_code(source) == MANY or source == target
    return ModelLanguages(dict.fromkeys(targets, "") if reads_all else {source: ""}, targets)
