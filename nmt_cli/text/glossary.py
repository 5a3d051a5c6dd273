"""Glossaries: terms with the translations that a user accepts, and the search for terms in a text.

A term is one or more words of the source language. Models that were trained with `augment.terms` follow
annotations: translations in the source text, before the term that they translate.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from nmt_cli.errors import UserError
from nmt_cli.text.linked_words import Change, Edit, Edits, edited
from nmt_cli.text.placeholders import JOINED, TERM, TERM_END, masked
from nmt_cli.text.tag_placement import WORD

Terms = Mapping[str, Sequence[str]]
"""The accepted translations of each term, the preferred one first."""

Value = TypeVar("Value")


class NumberedTerms(dict[str, list[str]]):
    """Terms whose errors name the row of a file or table that a term comes from."""

    def __init__(self, row_name: str) -> None:
        """`row_name` is the word for a row in errors, such as "terms.tsv line". A number follows it."""
        super().__init__()
        self.row_name = row_name
        self.numbers: dict[str, int] = {}
        """The number of each term's row, from 1."""


@contextmanager
def naming_row(terms: Terms, term: str) -> Iterator[None]:
    """Name the row of `term` in a `UserError` that the block raises. An error about terms without rows does
    not change."""
    try:
        yield
    except UserError as error:
        if not isinstance(terms, NumberedTerms):
            raise
        raise UserError(f"{terms.row_name} {terms.numbers[term]:,}: {error.message}") from error


LETTER = WORD.removesuffix("+")
UNIT = re.compile(rf"{WORD}|\S")
OPENING = TERM[0]


def read_terms(path: Path) -> Terms:
    """Read a glossary file. Each line has a term and its accepted translations, separated by tabs.

    Empty lines are skipped. Raise `UserError`, with the number of the line, for any other content, or if the
    file is not UTF-8.
    """
    try:
        # Some programs write a byte-order mark, which is not a part of the first term.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {number:,} is not UTF-8. Convert the file.") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}. Check the path.") from error
    return terms_of((line.split("\t") for line in lines), f"{path} line")


def terms_of(rows: Iterable[Sequence[str]], row_name: str) -> NumberedTerms:
    """Return the terms in rows. Each row has a term and its accepted translations. Empty rows are skipped.

    Raise `UserError` for a row without a translation, a repeated term, or if no terms are left. Messages name
    a row by `row_name` and its number.
    """
    terms = NumberedTerms(row_name)
    for number, row in enumerate(rows, start=1):
        source, *forms = [cell.strip() for cell in row] or [""]
        if not source and not any(forms):
            continue
        if not source or not any(forms):
            raise UserError(f"{row_name} {number:,} needs a source and a translation. Add them.")
        if (first := terms.numbers.setdefault(source, number)) < number:
            where = f"of {row_name.split()[-1]} {first:,}. Put all its translations there"
            raise UserError(f"{row_name} {number:,} repeats the term {source!r} {where}.")
        terms[source] = [form for form in forms if form]
    if not terms:
        raise UserError(f"the glossary is empty: no {row_name} has a source and a translation. Add one.")
    return terms


class TermIndex(Generic[Value]):
    """An index that finds terms in texts, and has a value for each term.

    A term matches whole words. Upper and lower case are equal, unless the term has a capital after its first
    letter, such as "iPhone".
    """

    def __init__(self, values: Iterable[tuple[str, Value]] = ()) -> None:
        """Create the index with pairs of a term and its value."""
        self._values: dict[Sequence[str], Value] = {}
        self._lengths: list[int] = []
        """The lengths of the terms in words and punctuation marks, each once, the longest first."""

        for term, value in values:
            self.add(term, value)

    def add(self, term: str, value: Value) -> None:
        """Add a term with its value. Raise `UserError` if the index already has the term, perhaps in other
        case."""
        # Names such as iPhone differ from other words only in case.
        inner_capital = any(before.isalnum() and after.isupper() for before, after in pairwise(term))
        key = (*UNIT.findall(term if inner_capital else term.lower()),)
        if key in self._values:
            raise UserError(f"the glossary has {term!r} twice. Put all its translations into one term.")
        self._values[key] = value
        if len(key) not in self._lengths:
            self._lengths = sorted([*self._lengths, len(key)], reverse=True)

    def found(self, text: str) -> list[Value]:
        """Return the values of the terms in `text`, in order. A value that occurs repeatedly is returned
        once."""
        return [*dict.fromkeys(value for _, value in self.matches(text))]

    def matches(self, text: str) -> Iterator[tuple[int, Value]]:
        """Yield the index in `text` and the value of each term that occurs there, in order.

        Matches do not overlap. Of several terms that begin at the same word, the longest matches.
        """
        units, position = [*UNIT.finditer(text)], 0
        sides = [unit[0] for unit in units], [unit[0].lower() for unit in units]
        while position < len(units):
            # The lengths are sorted, so the longest match is found first.
            keys = ((*side[position : position + n],) for n in self._lengths for side in sides)
            if key := next((key for key in keys if key in self._values), ()):
                yield units[position].start(), self._values[key]
            position += max(1, len(key))


class Annotator:
    """Adds annotations of terms to prepared source texts.

    An annotation is put before its term. Each translation in it follows the symbol `TERM`, and `TERM_END`
    closes it. `JOINED` precedes the annotation if the text has no space there.
    """

    def __init__(self, terms: Terms, source: Callable[[str], str], target: Callable[[str], str]) -> None:
        """Index the `terms`. `source` and `target` are functions that prepare a text of each side. Raise
        `UserError` for a repeated term."""
        prepared = {source(masked(term, {})): term for term in terms}
        self._index, self._forms = TermIndex[list[str]](), list[list[str]]()
        for text, term in prepared.items():
            self._forms.append([target(masked(one, {})) for one in terms[term]])
            with naming_row(terms, term):
                self._index.add(text, self._forms[-1])

    def annotated(self, text: str) -> str:
        """Return a prepared source text with an annotation of each term."""
        return edited(text, _annotations(text, [*self._index.matches(text)]))

    def learnt(self, source: str, target: str, random: Random) -> Iterator[Change]:
        """Yield the changes that add annotations to a training pair, one after another. `random` draws them.

        Of the terms in `source` that have a translation in `target`, at least one is annotated. With a
        probability of one half, the translation in `target` is exchanged for that of another random term, and
        the annotation has the translations of that other term. So the model learns to copy words that it
        would not choose. A pair without such terms does not change.
        """
        found = [
            (start, forms, form)
            for start, forms in self._index.matches(source)
            if (form := next((form for form in forms if _words(form).search(target)), ""))
        ]
        annotations = []
        for start, forms, form in (
            sorted(random.sample(found, random.randint(1, len(found)))) if found else ()
        ):
            new = forms if random.random() < 0.5 else random.choice(self._forms)
            written = form if new is forms else random.choice(new)
            # The exchange of an earlier term may have replaced this translation.
            if match := _words(form).search(target):
                change = Change(target=[Edit(*match.span(), written)])
                target = edited(target, change.target)
                yield change
            annotations.append((start, new))
        # The exchange of one term may have replaced the translation of another.
        true = [one for one in annotations if any(_words(form).search(target) for form in one[1])]
        yield Change(_annotations(source, true))


@lru_cache(1 << 16)
def _words(form: str) -> re.Pattern[str]:
    """Return a pattern that finds `form` as whole words."""
    return re.compile(rf"(?<!{LETTER}){re.escape(form)}(?!{LETTER})")


def _annotations(text: str, annotations: Sequence[tuple[int, Sequence[str]]]) -> Edits:
    """Return the edits that insert annotations into `text`. Each is the index of a term, and the term's
    translations. They are in order.

    An annotation inside the symbol of a placeholder is skipped.
    """
    edits = []
    for start, forms in annotations:
        if text[start - 1 : start] != OPENING:
            join = f" {JOINED} " if start and text[start - 1] != " " else ""
            edits.append(Edit(start, start, f"{join}{TERM} {f' {TERM} '.join(forms)} {TERM_END} "))
    return edits
