"""The phrases of the demo's sentences, drawn at random: numbers, prices and times in words, and nouns."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from nmt_cli.demo import lexicon
from nmt_cli.demo.lexicon import Noun, Pair, Subject

Item = TypeVar("Item")


class RandomPhrases:
    """A source of random phrases. The same seed gives the same phrases in every version of Python."""

    def __init__(self, seed: str) -> None:
        """The phrases depend only on the text `seed`."""
        # Python promises the same numbers in every version for random() only.
        self._random = Random(seed).random

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items, all equally likely. Raise `IndexError` if there are none."""
        return items[int(self._random() * len(items))]

    def integer(self, low: int, high: int) -> int:
        """Return a random integer from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def cardinal(self) -> Pair:
        """Return a number from 0 to 9,999 in words, mostly below one thousand."""
        return in_words(self.integer(0, self.pick([20, 99, 999, 999, 9999])))

    def _plural_number(self, *limits: int) -> Pair:
        """Return a number from 2 to one of `limits` in words. Add 1 to 101, 201 and so on, disputed in
        German."""
        number = self.integer(2, self.pick(limits))
        return in_words(number + 1 if number % 100 == 1 else number)

    def price(self) -> Pair:
        """Return a price from 2 to under 1,000 euros. Cents divide by five: "two euros and fifty cents"."""
        euros, cents = self._plural_number(20, 99, 999), in_words(5 * self.integer(1, 19))
        with_cents = f"{euros.en} euros and {cents.en} cents", f"{euros.de} Euro {cents.de}"
        return Pair(*self.pick([with_cents, (f"{euros.en} euros", f"{euros.de} Euro")]))

    def clock(self) -> Pair:
        """Return a time in steps of five minutes, to follow "at" and "um": "half past seven", "halb acht"."""
        return time_in_words(self.integer(1, 12), 5 * self.integer(0, 11))

    def weekday(self) -> Pair:
        """Return a day of the week with its preposition: "on Monday evening", "am Montagabend"."""
        day, part = self.pick(lexicon.WEEKDAYS), self.pick(lexicon.DAY_PARTS)
        return Pair(f"on {day.en}{part.en}", f"am {day.de}{part.de}")

    def past(self) -> Pair:
        """Return a time in the past: a weekday, "yesterday" or "three weeks ago"."""
        count, span = in_words(self.integer(2, 12)), self.pick(lexicon.TIME_SPANS)
        ago = Pair(f"{count.en} {span.en} ago", f"vor {count.de} {span.de}")
        return self.pick([self.weekday(), self.pick(lexicon.PAST_DAYS), ago])

    def subject(self) -> Subject:
        """Return a pronoun, a name or a noun as a subject, each kind equally likely."""
        return self.pick(self.pick([lexicon.PRONOUNS, lexicon.NAMES, lexicon.PEOPLE]))

    def the_thing(self) -> tuple[Noun, Pair]:
        """Return a noun, and a phrase with it in the nominative: "the red book", "das rote Buch"."""
        noun, adjective = self.pick(lexicon.THINGS), self.pick(lexicon.ADJECTIVES)
        return noun, Pair(f"the {adjective.en} {noun.en}", f"{noun.article} {adjective.de}e {noun.de}")

    def animals(self) -> Subject:
        """Return one or several animals as a subject: "a small cat", "the dog", "two black horses"."""
        noun, adjective = self.pick(lexicon.ANIMALS), self.pick([None, None, self.pick(lexicon.ADJECTIVES)])
        english = f"{adjective.en} {noun.en}" if adjective else noun.en
        count, article = self._plural_number(12), "an" if english[0] in "aeiou" else "a"
        german, ending = lexicon.INDEFINITE[noun.article]
        return self.pick(
            [
                Subject(
                    f"{count.en} {english}s", f"{count.de} {_inflected(adjective, 'e', noun.de_plural)}", 2
                ),
                Subject(f"the {english}", f"{noun.article} {_inflected(adjective, 'e', noun.de)}"),
                Subject(f"{article} {english}", f"{german} {_inflected(adjective, ending, noun.de)}"),
            ]
        )

    def several_things(self) -> Pair:
        """Return 2 to 99 things, with the number in words: "three books", "drei Bücher"."""
        count, noun = self._plural_number(12, 99), self.pick(lexicon.THINGS)
        return Pair(f"{count.en} {noun.en}s", f"{count.de} {noun.de_plural}")


def _inflected(adjective: Pair | None, ending: str, noun: str) -> str:
    """Return a German noun after its adjective, which has the given ending."""
    return f"{adjective.de}{ending} {noun}" if adjective else noun


def in_words(number: int) -> Pair:
    """Return a number from 0 to 9,999 in words: 21 is "twenty-one", "einundzwanzig"."""
    return Pair(_english(number), _german(number))


def time_in_words(hour: int, minute: int) -> Pair:
    """Return a twelve-hour time in words: (7, 30) is "half past seven", "halb acht". The hour is from 1 to
    12, and the minute is a multiple of 5 below 60."""
    now, following, time = in_words(hour), in_words(hour % 12 + 1), lexicon.CLOCK_TIMES[minute // 5]
    german_now = now.de if minute else _german_prefix(hour)
    return Pair(time.en.format(now.en, following.en), time.de.format(german_now, following.de))


def _english(number: int) -> str:
    if number < 20:
        return lexicon.SMALL_NUMBERS[number].en
    if number < 100:
        tens, ones = divmod(number, 10)
        return lexicon.TENS[tens].en + (f"-{_english(ones)}" if ones else "")
    size, unit = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, size)
    link = " and " if rest < 100 else " "
    return f"{_english(count)} {unit}" + (f"{link}{_english(rest)}" if rest else "")


def _german(number: int) -> str:
    if number < 20:
        return lexicon.SMALL_NUMBERS[number].de
    if number < 100:
        tens, ones = divmod(number, 10)
        return (f"{_german_prefix(ones)}und" if ones else "") + lexicon.TENS[tens].de
    size, unit = (1000, "tausend") if number >= 1000 else (100, "hundert")
    count, rest = divmod(number, size)
    return f"{_german_prefix(count)}{unit}" + (_german(rest) if rest else "")


def _german_prefix(number: int) -> str:
    """Return a number in German in the form before another word: "eins" becomes "ein"."""
    return _german(number).removesuffix("s") if number % 100 == 1 else _german(number)
