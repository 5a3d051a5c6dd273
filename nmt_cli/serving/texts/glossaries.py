"""Glossaries of requests: of a single one, or stored for many."""

import csv
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nmt_cli.api import Model, SearchConfig, UserError
from nmt_cli.serving.refused import Refused
from nmt_cli.text.glossary import Terms, terms_of
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


def checked_terms(rows: Iterable[Sequence[object]], limit: int) -> Terms:
    """Return the terms of rows, each a source and its accepted translations. Raise `Refused` (400) for other
    rows, a repeated source, a text over `MAX_CHARACTERS`, and no terms or more than `limit`."""
    texts: list[list[str]] = []
    for number, row in enumerate(rows, start=1):
        texts.append([text for text in row if isinstance(text, str) and len(text) <= MAX_CHARACTERS])
        if len(texts[-1]) < len(row):
            raise Refused(400, f"Entry {number:,} must have texts of up to {MAX_CHARACTERS:,} characters.")
        if number > limit:
            raise Refused(400, f"The glossary has more than {limit:,} entries. Shorten it.")
    try:
        return terms_of(texts, "entry")
    except UserError as error:
        raise Refused(400, str(error)) from error


def parsed_entries(text: str, form: str) -> Terms:
    """Return the terms of a text in DeepL's `form`: "tsv" with a source and its translations per line, or
    "csv" with a source and a translation, whose further columns are languages. Raise `Refused` (400)."""
    try:
        rows = csv.reader(text.splitlines(), strict=True) if form == "csv" else None
        entries = [row[:2] for row in rows] if rows else [line.split("\t") for line in text.splitlines()]
    except csv.Error as error:
        raise Refused(400, f"The entries are not valid CSV: {error}.") from error
    return checked_terms(entries, MAX_TERMS)
