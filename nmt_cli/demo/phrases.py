"""Draw the phrases of a sentence at random: numbers, prices, times, days, people and things."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from nmt_cli.demo import lexicon, numerals
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
        """Return a number from 0 to 999,999 in words, mostly below ten thousand."""
        ranges = [(0, 20)] * 4 + [(21, 99)] * 5 + [(100, 999)] * 6 + [(1000, 9999)] * 4 + [(10_000, 999_999)]
        return numerals.cardinal(self.integer(*self.pick(ranges)))

    def _plural_number(self, low: int, high: int) -> int:
        """Return a random number from `low` to `high`. Add 1 to 101, 201 and so on, disputed in German."""
        number = self.integer(low, high)
        return number + 1 if number % 100 == 1 else number

    def price(self) -> Pair:
        """Return a price from 1 to under 1,000 euros, in the German accusative. Cents divide by five."""
        euros = self.pick([1] + 30 * [self._plural_number(2, self.pick([20, 99, 999]))])
        return numerals.price(euros, self.pick([0, 5 * self.integer(1, 19)]))

    def clock(self) -> Pair:
        """Return a time in steps of five minutes, to follow "at" and "um": "half past seven", "halb acht"."""
        return numerals.clock(self.integer(1, 12), 5 * self.integer(0, 11))

    def year(self) -> Pair:
        """Return a year of birth from 1900 to 2024, in words."""
        return numerals.year(self.integer(1900, 2024))

    def date(self) -> Pair:
        """Return a date with its preposition: "on the third of March", "am dritten März"."""
        day, month = numerals.ordinal(self.integer(1, 28)), self.pick(lexicon.MONTHS)
        return Pair(f"on the {day.en} of {month.en}", f"am {day.de}n {month.de}")

    def weekday(self) -> Pair:
        """Return a day of the week with its preposition: "on Monday evening", "am Montagabend"."""
        day, part = self.pick(lexicon.WEEKDAYS), self.pick(lexicon.DAY_PARTS)
        return Pair(f"on {day.en}{part.en}", f"am {day.de}{part.de}")

    def past(self) -> Pair:
        """Return a time in the past: a date, a weekday, "yesterday" or "three weeks ago"."""
        count, span = numerals.cardinal(self.integer(2, 12)), self.pick(lexicon.TIME_SPANS)
        ago = Pair(f"{count.en} {span.en} ago", f"vor {count.de} {span.de}")
        return self.pick([self.date(), self.weekday(), self.pick(lexicon.PAST_DAYS), ago])

    def person(self) -> Subject:
        """Return a pronoun or a name as a subject, each kind equally likely."""
        return self.pick(self.pick([lexicon.PRONOUNS, lexicon.NAMES]))

    def subject(self) -> Subject:
        """Return any subject: in half of the cases a pronoun or a name, otherwise a relative or a group."""
        owner, relative = self.pick(lexicon.OWNERS), self.pick(lexicon.RELATIVES)
        german = f"{owner.de}{relative.gender.nominative} {relative.de}"
        family = Subject(f"{owner.en} {relative.en}", german, 1)
        return self.pick([self.person(), self.person(), family, self.pick(lexicon.GROUPS)])

    def receiver(self) -> Pair:
        """Return a relative as a receiver, in the German dative: "my brother", "meinem Bruder"."""
        owner, relative = self.pick(lexicon.OWNERS), self.pick(lexicon.RELATIVES)
        return Pair(f"{owner.en} {relative.en}", f"{owner.de}{relative.gender.dative} {relative.de}")

    def the_thing(self) -> tuple[Noun, Pair]:
        """Return a noun, and a phrase with it in the nominative: "the red book", "das rote Buch"."""
        noun, adjective = self.pick(lexicon.THINGS), self.pick(lexicon.ADJECTIVES)
        return noun, Pair(f"the {adjective.en} {noun.en}", f"{noun.article} {adjective.de}e {noun.de}")

    def a_thing(self) -> Pair:
        """Return a thing in the German accusative: "an old chair", "einen alten Stuhl"."""
        noun, adjective = self.pick(lexicon.THINGS), self.pick(lexicon.ADJECTIVES)
        article = "an" if adjective.en == "old" else "a"
        german = f"ein{noun.gender.accusative} {adjective.de}{noun.gender.adjective} {noun.de}"
        return Pair(f"{article} {adjective.en} {noun.en}", german)

    def several_things(self) -> Pair:
        """Return two or more things, up to about 1,000, in words: "three books", "drei Bücher"."""
        count = numerals.cardinal(self._plural_number(2, self.pick([12, 99, 999])))
        noun = self.pick(lexicon.THINGS)
        return Pair(f"{count.en} {noun.en}s", f"{count.de} {noun.de_plural}")
