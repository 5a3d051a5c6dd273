"""Glossaries: terms of a source language with the words that translate them, and their search in a text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

from nmt_cli.errors import UserError
from nmt_cli.text.tag_placement import WORD

Terms = Mapping[str, Sequence[str]]
"""The accepted translations of each source term, the preferred first."""

Value = TypeVar("Value")

UNIT = re.compile(rf"{WORD}|\S")


def read_terms(path: Path) -> Terms:
    """Return the terms of a UTF-8 file with a term per line: source, target and further accepted forms of the
    target, separated by tabs. Skip empty lines. Raise `UserError` with the line for any other content."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {number:,} is not UTF-8. Convert the file.") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}. Check the path.") from error
    return terms_of((line.split("\t") for line in lines), f"{path} line")


def terms_of(rows: Iterable[Sequence[str]], row_name: str) -> Terms:
    """Return the terms of rows, each with a source and its accepted translations. Skip empty rows. Raise
    `UserError` for incomplete rows, a repeated source and no terms. Messages have `row_name` and a number."""
    terms: dict[str, list[str]] = {}
    for number, row in enumerate(rows, start=1):
        source, *forms = [cell.strip() for cell in row] or [""]
        if not source and not any(forms):
            continue
        if not source or not any(forms):
            raise UserError(f"{row_name} {number:,} needs a source and a translation. Add them.")
        if source in terms:
            raise UserError(f"{row_name} {number:,} repeats {source!r}. Put its translations into one.")
        terms[source] = [form for form in forms if form]
    if not terms:
        raise UserError(f"the glossary is empty: no {row_name} has a source and a translation. Add one.")
    return terms


class TermIndex(Generic[Value]):
    """Finds terms in texts. Each term has a value."""

    def __init__(self, values: Iterable[tuple[str, Value]]) -> None:
        """Add terms with their values. Raise `UserError` for a repeated term, also in other case. A capital
        inside a word is a difference."""
        self._values: dict[Sequence[str], Value] = {}
        for term, value in values:
            inner_capital = any(before.isalnum() and after.isupper() for before, after in pairwise(term))
            key = (*UNIT.findall(term if inner_capital else term.lower()),)
            if key in self._values:
                raise UserError(f"the glossary has {term!r} twice. Put all its translations into one term.")
            self._values[key] = value
        self._lengths = sorted({*map(len, self._values)}, reverse=True)

    def found(self, text: str) -> list[Value]:
        """Return the values of the terms in `text`, each once, in order.

        Terms match whole words, in any case unless they have a capital inside a word. The longest match
        counts. Matches do not overlap.
        """
        units, values, position = UNIT.findall(text), dict[Sequence[str], Value](), 0
        sides = units, [unit.lower() for unit in units]
        while position < len(units):
            keys = ((*side[position : position + n],) for n in self._lengths for side in sides)
            if key := next((key for key in keys if key in self._values), ()):
                values[key] = self._values[key]
            position += max(1, len(key))
        return [*values.values()]
