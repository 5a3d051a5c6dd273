"""Draws the parts of a sentence: numbers, times, dates, prices, people and things."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from nmt_cli.demo import lexicon, numerals
from nmt_cli.demo.lexicon import Noun, Pair, Subject

Item = TypeVar("Item")


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """One item, all equally likely."""
    # Only random() itself is promised to give the same numbers in every version of Python.
    return items[int(rng.random() * len(items))]


def integer(rng: Random, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return low + int(rng.random() * (high - low + 1))


def chance(rng: Random, probability: float) -> bool:
    """True with the given probability."""
    return rng.random() < probability


def two_different(draw: Callable[[Random], Item], rng: Random) -> tuple[Item, Item]:
    """Two draws that are not the same."""
    first = second = draw(rng)
    while second == first:
        second = draw(rng)
    return first, second


def city(rng: Random) -> Pair:
    """The name of a city."""
    return pick(rng, lexicon.CITIES)


NUMBER_RANGES = [(0, 20)] * 4 + [(21, 99)] * 5 + [(100, 999)] * 6 + [(1000, 9999)] * 4 + [(10_000, 999_999)]


def cardinal(rng: Random) -> Pair:
    """A number that stands alone, mostly below ten thousand."""
    number = integer(rng, *pick(rng, NUMBER_RANGES))
    return Pair(numerals.english_cardinal(number), numerals.german_cardinal(number))


def before_noun(rng: Random, low: int, high: int, step: int = 1) -> Pair:
    """A multiple of step from low to high to stand before a plural noun, so never one, 101, 201, ..."""
    number = _not_one(step * integer(rng, low // step, high // step))
    return Pair(numerals.english_cardinal(number), numerals.german_before_noun(number))


def _not_one(number: int) -> int:
    return number + 1 if number % 100 == 1 else number  # see `german_before_noun`


def few(rng: Random) -> Pair:
    """How many things somebody buys: mostly few, at times hundreds."""
    return before_noun(rng, *pick(rng, [(2, 12), (2, 12), (2, 99), (2, 999)]))


def crowd(rng: Random) -> Pair:
    """How many people live in a city: thousands to millions, mostly round."""
    return before_noun(
        rng, *pick(rng, [(1000, 9999, 1), (2000, 900_000, 1000), (2000, 90_000, 100), (10**6, 10**7, 10**5)])
    )


def year(rng: Random, first: int) -> Pair:
    """A year from the first one to 2024."""
    number = integer(rng, first, 2024)
    return Pair(numerals.english_year(number), numerals.german_year(number))


def clock(rng: Random) -> Pair:
    """A clock time; the German needs "um" before it where the English has "at"."""
    hour = integer(rng, 1, 12)
    minute = integer(rng, 0, 59) if chance(rng, 0.2) else 5 * integer(rng, 0, 11)
    return Pair(numerals.english_clock(hour, minute), numerals.german_clock(hour, minute))


def price(rng: Random) -> Pair:
    """A price, in German in the accusative."""
    euros = 1 if chance(rng, 0.03) else _not_one(integer(rng, *pick(rng, [(2, 20), (2, 99), (100, 999)])))
    cents = 5 * integer(rng, 1, 19) if chance(rng, 0.6) else 0
    return Pair(numerals.english_price(euros, cents), numerals.german_price(euros, cents))


def day_of_year(rng: Random) -> Pair:
    """A day to stand after "on" and "am": "the third of March" and "dritten März"."""
    # Every month has a twenty-eighth.
    day, month = integer(rng, 1, 28), pick(rng, lexicon.MONTHS)
    return Pair(
        f"the {numerals.english_ordinal(day)} of {month.en}", f"{numerals.german_ordinal(day)}n {month.de}"
    )


def named_day(rng: Random) -> Pair:
    """A day of the week, often with its part: "on Monday evening" and "am Montagabend"."""
    day, part = pick(rng, lexicon.WEEKDAYS), pick(rng, lexicon.DAY_PARTS)
    if chance(rng, 0.5):
        return Pair(f"on {day.en}", f"am {day.de}")
    return Pair(f"on {day.en} {part.en}", f"am {day.de}{part.de}")


def past(rng: Random) -> Pair:
    """When something happened."""
    kind = integer(rng, 1, 4)
    if kind == 1:
        count, span = before_noun(rng, 2, 12), pick(rng, lexicon.SPANS)
        return Pair(f"{count.en} {span.en} ago", f"vor {count.de} {span.de}")
    if kind == 2:
        day = day_of_year(rng)
        return Pair(f"on {day.en}", f"am {day.de}")
    return named_day(rng) if kind == 3 else pick(rng, lexicon.PAST_DAYS)


def future(rng: Random) -> Pair:
    """When something is going to happen."""
    kind = integer(rng, 1, 3)
    if kind == 1:
        count, span = before_noun(rng, 2, 12), pick(rng, lexicon.SPANS)
        return Pair(f"in {count.en} {span.en}", f"in {count.de} {span.de}")
    return named_day(rng) if kind == 2 else pick(rng, lexicon.FUTURE_DAYS)


class Relative(NamedTuple):
    """Somebody's relative; the German in all four cases."""

    en: str
    nominative: str
    accusative: str
    dative: str
    genitive: str


def relative(rng: Random) -> Relative:
    """A relative with a possessive: "my brother"."""
    owner, kin = pick(rng, lexicon.POSSESSIVES), pick(rng, lexicon.KIN)
    endings = ("e", "e", "er", "er") if kin.feminine else ("", "en", "em", "es")
    nouns = (kin.de, kin.de, kin.de, kin.de_genitive)
    cases = (f"{owner.de}{ending} {noun}" for ending, noun in zip(endings, nouns, strict=True))
    return Relative(f"{owner.en} {kin.en}", *cases)


def subject(rng: Random) -> Subject:
    """Who does something: a pronoun, a name, a relative or several people."""
    kind = integer(rng, 1, 10)
    if kind <= 4:
        return pick(rng, lexicon.PRONOUN_SUBJECTS)
    if kind <= 7:
        person = relative(rng)
        return Subject(person.en, person.nominative, 1)
    return _name(rng) if kind <= 9 else pick(rng, lexicon.GROUP_SUBJECTS)


def pronoun_or_name(rng: Random) -> Subject:
    """Who does something to a relative, and so had better not be a relative too."""
    return pick(rng, lexicon.PRONOUN_SUBJECTS) if chance(rng, 0.5) else _name(rng)


def _name(rng: Random) -> Subject:
    name = pick(rng, lexicon.NAMES)
    return Subject(name, name, 1)


def described(rng: Random, determiner: str) -> tuple[Noun, Pair]:
    """A thing with an adjective and article; `determiner` is a key of `lexicon.ARTICLES`."""
    noun, adjective = pick(rng, lexicon.THINGS), pick(rng, lexicon.ADJECTIVES)
    article = "the" if determiner.startswith("d") else "an" if adjective.en[0] in "aeiou" else "a"
    return noun, Pair(f"{article} {adjective.en} {noun.en}", noun.with_ending(adjective.de, determiner))


def several(rng: Random) -> Pair:
    """A number of things: "three books"."""
    count, noun = few(rng), pick(rng, lexicon.THINGS)
    return Pair(f"{count.en} {noun.en_plural}", f"{count.de} {noun.de_plural}")
