"""Glossaries: terms of a source language with the words that translate them, and their search in a text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import regex

from nmt_cli.errors import UserError

Terms = Mapping[str, Sequence[str]]
"""The accepted translations of each source term, the preferred first."""

Value = TypeVar("Value")

IN_WORD = r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]"
"""A character of a word. Scripts without spaces have no words."""

UNIT = regex.compile(rf"{IN_WORD}+|\S", regex.V1)
INNER_CAPITAL = regex.compile(r"\w\p{Lu}")


def read_terms(path: Path) -> dict[str, list[str]]:
    """Return the terms of a UTF-8 file with a term per line: source, target and further accepted forms of the
    target, separated by tabs. Skip empty lines. Raise `UserError` with the line for any other content."""
    terms: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {number:,} is not UTF-8. Convert the file.") from error
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}. Check the path.") from error
    for number, line in enumerate(lines, start=1):
        source, *forms = (cell.strip() for cell in line.split("\t"))
        if not line.strip():
            continue
        if not source or not any(forms):
            raise UserError(f"{path} line {number:,}: a term is a source, a tab and a target. Add them.")
        if source in terms:
            raise UserError(
                f"{path} line {number:,}: {source!r} is on line {numbers[source]:,} too. Put all forms there."
            )
        terms[source], numbers[source] = [form for form in forms if form], number
    if not terms:
        raise UserError(f"{path} has no terms. Add lines with a source, a tab and a target.")
    return terms


class TermIndex(Generic[Value]):
    """Finds terms in texts. Each term has a value."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        """Add the terms of `values`, with single spaces. Raise `UserError` for terms that differ only in
        case. A capital inside a word is a difference."""
        self._values: dict[str, Value] = {}
        lengths = defaultdict[str, set[int]](set)
        for term, value in values.items():
            key = term if INNER_CAPITAL.search(term) else _lower(term)
            if key in self._values:
                raise UserError(f"the glossary has {term!r} twice. Put all its translations into one term.")
            self._values[key] = value
            if first := UNIT.match(_lower(term)):
                lengths[first[0]].add(len(key))
        self._lengths = {first: sorted(each, reverse=True) for first, each in lengths.items()}

    def found(self, text: str) -> list[Value]:
        """Return the values of the terms in `text`, which has single spaces, each once, in order.

        Terms match whole words, in any case unless they have a capital inside a word. The longest match
        counts. Matches do not overlap.
        """
        lowered, values, position = _lower(text), dict[str, Value](), 0
        units = list(UNIT.finditer(lowered))
        ends = {unit.end() for unit in units}
        for unit in units:
            start = unit.start()
            for key in self._keys(text, lowered, start, unit[0]) if start >= position else ():
                if start + len(key) in ends and key in self._values:
                    values[key], position = self._values[key], start + len(key)
                    break
        return [*values.values()]

    def _keys(self, text: str, lowered: str, start: int, first: str) -> Iterator[str]:
        """Yield possible keys at `start`, longest first."""
        for length in self._lengths.get(first, ()):
            yield text[start : start + length]
            yield lowered[start : start + length]


def _lower(text: str) -> str:
    """Return `text` in lower case, without a change of length."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := one.lower()) == 1 else one for one in text)
