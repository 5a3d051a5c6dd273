"""A glossary for a model, as token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.terms import Term, largest
from nmt_cli.errors import UserError
from nmt_cli.text.glossary import Annotator, TermIndex, Terms, naming_row, read_terms
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers


class Glossary:
    """Terms that translations must contain, as returned by `Model.glossary`."""

    def __init__(
        self, tokenizers: Tokenizers, terms: Terms | str | PathLike[str], annotates: bool = False
    ) -> None:
        """Encode the translations of `terms`, or of those in a file. `annotates` is true for a model that has
        learnt annotations. Raise `UserError` for an invalid file, a term without text, a repeated term, and a
        translation that the vocabulary cannot write. The error names the row of the term in a file."""
        self.tokenizers = tokenizers
        terms = terms if isinstance(terms, Mapping) else read_terms(Path(terms))
        self._index = TermIndex[Term]()
        for term, forms in terms.items():
            with naming_row(terms, term):
                self._add(term, forms)
        self._forms = {form for forms in terms.values() for form in forms}
        # A language code begins the sentence, and not each term.
        prepare = [replace(side, begin="").prepare for side in (tokenizers.source, tokenizers.target)]
        self._annotator = Annotator(terms, prepare[0], prepare[1]) if annotates else None

    def _add(self, term: str, forms: Sequence[str]) -> None:
        """Encode a term and add it to the index. Raise `UserError` if it cannot be used."""
        if not isinstance(forms, list | tuple) or not all(isinstance(form, str) for form in forms):
            raise UserError(f"the glossary term {term!r} needs a list of translations (got {forms!r}).")
        source, target = self.tokenizers.source, self.tokenizers.target
        texts = [source.normalizer(term), *map(target.normalizer, forms)]
        if not forms or not all(texts):
            raise UserError(f"the glossary term {term!r} needs a source and a translation. Add them.")
        ids = dict.fromkeys(path for form in forms for path in _paths(target, form))
        self._index.add(texts[0], (*ids,))

    def check(self, search: SearchConfig, tokenizers: Tokenizers) -> None:
        """Raise `UserError` if `search`, or a model with `tokenizers`, cannot use the glossary."""
        if search.glossary == "soft" and not self._annotator:
            raise UserError(
                "glossary=soft needs a model that was trained with augment.terms. Set it to hard."
            )
        if not self._soft(search) and (search.sample or search.beam == 1):
            raise UserError(
                f"a glossary needs beam search (beam={search.beam}, sample={str(search.sample).lower()}). "
                "Set beam to at least 2, and sample to false."
            )
        if tokenizers is not self.tokenizers and tokenizers.fingerprint != self.tokenizers.fingerprint:
            raise UserError("the glossary belongs to another model. Build it with this model.")
        if banned := [text for text in search.ban if text in self._forms]:
            raise UserError(
                f"search.ban has {banned[0]!r}, a translation in the glossary. Remove one of them."
            )

    def _soft(self, search: SearchConfig) -> Annotator | None:
        return None if search.glossary == "hard" else self._annotator

    def annotated(self, prepared: str, longest: int, search: SearchConfig) -> list[int]:
        """Return the tokens of a prepared source text with annotations of its terms. Return [] if they are
        more than `longest`, and if `search` has to find the terms."""
        annotator = self._soft(search)
        ids = self.tokenizers.source.encode(annotator.annotated(prepared)) if annotator else []
        return ids if len(ids) <= longest else []

    def wanted(self, number: int, prepared: str, longest: int, search: SearchConfig) -> tuple[Term, ...]:
        """Return the terms that a translation of a prepared source text of line `number` must contain, () if
        annotations suggest them. Raise `UserError` if they need more than `longest` tokens."""
        if self._soft(search):
            return ()
        terms = (*dict.fromkeys(self._index.found(self.tokenizers.source.restore(prepared))),)
        if (count := sum(map(largest, terms))) > longest:
            raise UserError(
                f"line {number:,} has a sentence with glossary terms of {count:,} tokens, more than the "
                f"{longest:,} that the model takes. Split it, or remove terms."
            )
        return terms


def _paths(target: Tokenizer, form: str) -> list[tuple[int, ...]]:
    """Return the token ids of `form` at the start of a text, after a word and after a bracket.
    Raise `UserError` if they contain the unknown token."""
    begins = 1 if target.begin else 0

    def ids(text: str) -> list[int]:
        return target.encode(target.prepare(text))[begins:]

    variants = [ids(form)]
    for before in ("a ", "("):
        head, both = ids(before.strip()), ids(before + form)
        # Otherwise, a token has parts of both, and none is the beginning of the form.
        if both[: len(head)] == head:
            variants.append(both[len(head) :])
    known = [each for each in variants if each and target.vocabulary.unknown not in each]
    if not known:
        raise UserError(
            f"the model cannot write {form!r}: its vocabulary lacks a character. Remove the term."
        )
    return [tuple(each) for each in known]
