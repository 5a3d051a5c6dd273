"""The words of the demo's grammar, read from `lexicon.toml`."""

import tomllib
from pathlib import Path
from typing import NamedTuple

Forms = tuple[str, str, str]
"""The forms of a verb after "I", after "she" and after "they"."""

RELATIVE_PRONOUN = {"der": "den", "die": "die", "das": "das"}
PRONOUN = {"der": "ihn", "die": "sie", "das": "es"}
"""German pronouns in the accusative, by the article of their noun in the nominative."""

INDEFINITE = {"der": ("ein", "er"), "die": ("eine", "e"), "das": ("ein", "es")}
"""The German word for "a" and the ending of an adjective after it, by the definite article."""


class Pair(NamedTuple):
    """An English phrase and its German translation."""

    en: str
    de: str


class Verb(NamedTuple):
    """A verb in both languages."""

    en: Forms
    de: Forms


class Subject(NamedTuple):
    """The subject of a sentence, in the nominative."""

    en: str
    de: str
    form: int = 1

    def agree(self, forms: Forms) -> str:
        """Return the one of three `forms` of a verb that agrees with this subject."""
        return forms[self.form]


class Noun(NamedTuple):
    """A noun in both languages. The German article in the nominative shows its gender."""

    en: str
    article: str
    de: str
    de_plural: str = ""


_words = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _pairs(*tables: str) -> list[list[Pair]]:
    return [[Pair(*row) for row in _words[table]] for table in tables]


PRONOUNS, PEOPLE = ([Subject(*row) for row in _words[table]] for table in ("pronouns", "people"))
NAMES = [Subject(name, name) for name in _words["names"]]
MODALS, ACTIVITIES = ([Verb(*forms) for forms in _words[table]] for table in ("modals", "activities"))
VEHICLES, THINGS, ANIMALS, BUILDINGS = (
    [Noun(*row) for row in _words[table]] for table in ("vehicles", "things", "animals", "buildings")
)
ADJECTIVES, CITIES, ERRANDS, VERBS, OPERATORS, PLACES = _pairs(
    "adjectives", "cities", "errands", "verbs", "operators", "places"
)
WEEKDAYS, DAY_PARTS, PAST_DAYS, TIME_SPANS = _pairs("weekdays", "day_parts", "past_days", "time_spans")
SMALL_NUMBERS, TENS, CLOCK_TIMES = _pairs("small_numbers", "tens", "clock_times")
