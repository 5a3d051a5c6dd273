"""Glossaries: terms of a source language with the words that translate them, and their search in a text."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from nmt_cli.errors import UserError
from nmt_cli.text.placeholders import JOINED, TERM, TERM_END, masked
from nmt_cli.text.tag_placement import WORD

Terms = Mapping[str, Sequence[str]]
"""The accepted translations of each source term, the preferred first."""

Value = TypeVar("Value")


class NumberedTerms(dict[str, list[str]]):
    """Terms that errors name by their rows, such as line 3 of a file."""

    def __init__(self, row_name: str) -> None:
        """`row_name` is what errors call a row, without its number."""
        super().__init__()
        self.row_name = row_name
        self.numbers: dict[str, int] = {}
        """The number of the row of each term, from 1."""


@contextmanager
def naming_row(terms: Terms, term: str) -> Iterator[None]:
    """Add the row of `term` to the message of a `UserError` in the block, if `terms` have numbers."""
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
    """Return the terms of a UTF-8 file with a term per line: source, target and further accepted forms of the
    target, separated by tabs. Skip empty lines. Raise `UserError` with the line for any other content."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {number:,} is not UTF-8. Convert the file.") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}. Check the path.") from error
    return terms_of((line.split("\t") for line in lines), f"{path} line")


def terms_of(rows: Iterable[Sequence[str]], row_name: str) -> NumberedTerms:
    """Return the terms of rows, each with a source and its accepted translations. Skip empty rows. Raise
    `UserError` for incomplete rows, a repeated source and no terms. Messages have `row_name` and a number."""
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
    """Finds terms in texts. Each term has a value."""

    def __init__(self, values: Iterable[tuple[str, Value]] = ()) -> None:
        """Add terms with their values, as `add` does."""
        self._values: dict[Sequence[str], Value] = {}
        self._lengths: list[int] = []
        """The number of units of the terms, each once, longest first."""

        for term, value in values:
            self.add(term, value)

    def add(self, term: str, value: Value) -> None:
        """Add a term. Raise `UserError` for a repeated term, also in other case. A capital inside a word is a
        difference."""
        inner_capital = any(before.isalnum() and after.isupper() for before, after in pairwise(term))
        key = (*UNIT.findall(term if inner_capital else term.lower()),)
        if key in self._values:
            raise UserError(f"the glossary has {term!r} twice. Put all its translations into one term.")
        self._values[key] = value
        if len(key) not in self._lengths:
            self._lengths = sorted([*self._lengths, len(key)], reverse=True)

    def found(self, text: str) -> list[Value]:
        """Return the values of the terms in `text`, each value once, in order."""
        return [*dict.fromkeys(value for _, value in self.matches(text))]

    def matches(self, text: str) -> Iterator[tuple[int, Value]]:
        """Yield the index and the value of each term in `text`, in order.

        Terms match whole words, in any case unless they have a capital inside a word. The longest match
        counts. Matches do not overlap.
        """
        units, position = [*UNIT.finditer(text)], 0
        sides = [unit[0] for unit in units], [unit[0].lower() for unit in units]
        while position < len(units):
            keys = ((*side[position : position + n],) for n in self._lengths for side in sides)
            if key := next((key for key in keys if key in self._values), ()):
                yield units[position].start(), self._values[key]
            position += max(1, len(key))


class Annotator:
    """Annotates terms in prepared source texts. An annotation is before its term. It has `TERM` before each
    translation, and `TERM_END` at the end. `JOINED` comes first if the text has no space there."""

    def __init__(self, terms: Terms, source: Callable[[str], str], target: Callable[[str], str]) -> None:
        """`source` and `target` prepare texts. Raise `UserError` for a repeated term."""
        prepared = {source(masked(term, {})): term for term in terms}
        self._index, self._forms = TermIndex[list[str]](), list[list[str]]()
        for text, term in prepared.items():
            self._forms.append([target(masked(one, {})) for one in terms[term]])
            with naming_row(terms, term):
                self._index.add(text, self._forms[-1])

    def annotated(self, text: str) -> str:
        """Return `text` with an annotation of each term."""
        return _annotated(text, [*self._index.matches(text)])

    def learnt(self, source: str, target: str, random: Random) -> tuple[str, str]:
        """Return a pair for training. Annotate at least one of the terms of `source` with translations in
        `target`. In both, exchange half of these for random others, so that the model copies any word."""
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
            target = _words(form).sub(written.replace("\\", r"\\"), target, 1)
            annotations.append((start, new))
        true = [one for one in annotations if any(_words(form).search(target) for form in one[1])]
        return _annotated(source, true), target


@lru_cache(1 << 16)
def _words(form: str) -> re.Pattern[str]:
    """Return a pattern of `form` as whole words."""
    return re.compile(rf"(?<!{LETTER}){re.escape(form)}(?!{LETTER})")


def _annotated(text: str, annotations: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Return `text` with `annotations`, each the index of a term and its translations, in order. Skip those
    inside the symbol of a placeholder."""
    for start, forms in reversed([one for one in annotations if text[one[0] - 1 : one[0]] != OPENING]):
        join = f" {JOINED} " if start and text[start - 1] != " " else ""
        text = f"{text[:start]}{join}{TERM} {f' {TERM} '.join(forms)} {TERM_END} {text[start:]}"
    return text
