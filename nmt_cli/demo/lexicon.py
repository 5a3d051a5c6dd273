"""The words of the demo's grammar, read from `lexicon.toml`."""

import tomllib
from pathlib import Path
from typing import NamedTuple

Forms = tuple[str, str, str]
"""The forms of a verb after "I", after "she" and after "they"."""


class Pair(NamedTuple):
    """An English phrase and its German translation."""

    en: str
    de: str


class Modal(NamedTuple):
    """A modal verb in both languages."""

    en: Forms
    de: Forms


class Subject(NamedTuple):
    """The subject of a sentence, in the nominative."""

    en: str
    de: str
    form: int

    def agree(self, forms: Forms) -> str:
        """Return the one of three `forms` of a verb that agrees with this subject."""
        return forms[self.form]


class Gender(NamedTuple):
    """The German words and endings that depend on the gender of a noun in the singular."""

    relative_pronoun: str
    pronoun: str
    """In the accusative, like the relative pronoun."""
    nominative: str
    accusative: str
    dative: str
    """Endings of "ein", "mein" and the other possessives in the three cases."""
    adjective: str
    """Ending of an adjective after "ein" in the accusative."""


GENDERS = {
    "der": Gender("den", "ihn", "", "en", "em", "en"),
    "die": Gender("die", "sie", "e", "e", "er", "e"),
    "das": Gender("das", "es", "", "", "em", "es"),
}


class Noun(NamedTuple):
    """A noun in both languages. The German article in the nominative shows its gender."""

    en: str
    article: str
    de: str
    de_plural: str

    @property
    def gender(self) -> Gender:
        """The words and endings that depend on the noun's gender."""
        return GENDERS[self.article]


_words = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _pairs(*tables: str) -> list[list[Pair]]:
    return [[Pair(*row) for row in _words[table]] for table in tables]


def _nouns(*tables: str) -> list[list[Noun]]:
    return [[Noun(*row) for row in _words[table]] for table in tables]


PRONOUNS = [Subject(*row) for row in _words["pronouns"]]
GROUPS = [Subject(*row) for row in _words["groups"]]
NAMES = [Subject(name, name, 1) for name in _words["names"]]
OWNERS, ADJECTIVES, CITIES, ERRANDS, VERBS = _pairs("owners", "adjectives", "cities", "errands", "verbs")
WEEKDAYS, DAY_PARTS, MONTHS, PAST_DAYS = _pairs("weekdays", "day_parts", "months", "past_days")
TIME_SPANS, CLOCK_TIMES, OPERATORS = _pairs("time_spans", "clock_times", "operators")
SMALL_NUMBERS, TENS = _pairs("small_numbers", "tens")
RELATIVES, VEHICLES, THINGS = _nouns("relatives", "vehicles", "things")
MODALS = [Modal(*forms) for forms in _words["modals"]]
ENGLISH_ORDINALS: dict[str, str] = _words["english_ordinals"]
GERMAN_ORDINALS: dict[str, str] = _words["german_ordinals"]
