"""Glossaries of requests: of a single one, or stored for many."""

import csv
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nmt_cli.api import Model, SearchConfig, UserError
from nmt_cli.serving.refused import Refused
from nmt_cli.text.glossary import Terms
from nmt_cli.translation.text.glossary import Glossary

MAX_GLOSSARIES, MAX_TERMS, MAX_TERMS_IN_REQUEST = 100, 10_000, 1000
MAX_CHARACTERS = 200
"""Maximum number of characters of a source or target term."""


@dataclass(slots=True)
class ServedGlossary:
    """Terms for one direction, and the glossary of its model."""

    terms: Terms
    direction: str
    """Source and target language, for example "en-de"."""

    name: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    _glossary: Glossary | None = None

    def of_model(self, model: Model, search: SearchConfig) -> Glossary:
        """Return the glossary for `model`, encoded at the first call. Raise `Refused` (400) for terms that
        the model cannot write, and for search settings that cannot use a glossary."""
        try:
            if self._glossary is None:
                self._glossary = model.glossary(self.terms)
            self._glossary.check(search, model.tokenizers)
        except UserError as error:
            raise Refused(400, str(error)) from error
        return self._glossary


class Glossaries:
    """Stores glossaries in memory, until they are deleted or the server ends."""

    def __init__(self) -> None:
        self._stored: dict[str, ServedGlossary] = {}

    def add(self, glossary: ServedGlossary) -> None:
        """Store a glossary. Raise `Refused` (400) beyond `MAX_GLOSSARIES`."""
        if len(self._stored) >= MAX_GLOSSARIES:
            raise Refused(400, f"The server has {MAX_GLOSSARIES:,} glossaries, its limit. Delete one first.")
        self._stored[glossary.key] = glossary

    def all(self) -> list[ServedGlossary]:
        """Return all glossaries, the oldest first."""
        return [*self._stored.values()]

    def get(self, key: str) -> ServedGlossary | None:
        """Return a glossary, or None if there is none with this key."""
        return self._stored.get(key)

    def delete(self, key: str) -> None:
        """Remove a stored glossary."""
        del self._stored[key]


def checked_terms(entries: Iterable[Sequence[object]], limit: int) -> Terms:
    """Return terms from entries of a source and its accepted translations. Raise `Refused` (400) for another
    form, a repeated source, a text over `MAX_CHARACTERS`, and no entries or more than `limit`."""
    terms: dict[str, list[str]] = {}
    for number, entry in enumerate(entries, start=1):
        texts = [text.strip() for text in entry if isinstance(text, str)]
        if len(texts) != len(entry) or len(texts) < 2 or not all(texts):
            raise Refused(400, f"Entry {number:,} of the glossary must be a source and its translations.")
        if any(len(text) > MAX_CHARACTERS for text in texts):
            raise Refused(400, f"Entry {number:,} of the glossary has over {MAX_CHARACTERS:,} characters.")
        if texts[0] in terms:
            raise Refused(400, f"Entry {number:,} of the glossary repeats an earlier source.")
        if number > limit:
            raise Refused(400, f"The glossary has more than {limit:,} entries. Shorten it.")
        terms[texts[0]] = texts[1:]
    if not terms:
        raise Refused(400, "The glossary has no entries.")
    return terms


def parsed_entries(text: str, form: str) -> Terms:
    """Return the terms of a text in DeepL's `form`: "tsv" with a source and its translations per line, or
    "csv" with a source and a translation, whose further columns are languages. Raise `Refused` (400)."""
    try:
        rows = csv.reader(text.splitlines(), strict=True) if form == "csv" else None
        entries = [row[:2] for row in rows] if rows else [line.split("\t") for line in text.splitlines()]
    except csv.Error as error:
        raise Refused(400, f"The entries are not valid CSV: {error}.") from error
    return checked_terms((entry for entry in entries if any(entry)), MAX_TERMS)
