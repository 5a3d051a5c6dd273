"""Sentences of the demo's grammar. The function of each pattern draws words, and returns both translations.

Each pattern shows a rule of German word order or inflection that English lacks. An English sentence has
exactly one translation in this grammar.
"""

from nmt_cli.demo import lexicon
from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.phrases import RandomPhrases

HABEN = ("habe", "hat", "haben")


def calculation(draw: RandomPhrases) -> Pair:
    """Return a question like "how much is one plus two?" with random numbers and a random operator."""
    first, second, operator = draw.cardinal(), draw.cardinal(), draw.pick(lexicon.OPERATORS)
    return Pair(
        f"how much is {first.en} {operator.en} {second.en}?",
        f"wie viel ist {first.de} {operator.de} {second.de}?",
    )


def departure(draw: RandomPhrases) -> Pair:
    """Return a sentence like "the train leaves at one.". The prefix of "abfahren" moves to the end."""
    vehicle, city = draw.pick(lexicon.VEHICLES), draw.pick(lexicon.CITIES)
    day, time = draw.weekday(), draw.clock()
    return Pair(
        f"the {vehicle.en} to {city.en} leaves {day.en} at {time.en}.",
        f"{vehicle.article} {vehicle.de} nach {city.de} fährt {day.de} um {time.de} ab.",
    )


def hurry(draw: RandomPhrases) -> Pair:
    """Return a sentence about an errand. The German verb is last after a modal verb and after "weil"."""
    subject, modal, errand = draw.subject(), draw.pick(lexicon.MODALS), draw.pick(lexicon.ERRANDS)
    vehicle, time = draw.pick(lexicon.VEHICLES), draw.clock()
    return Pair(
        f"{subject.en} {subject.agree(modal.en)} {errand.en} because the {vehicle.en} leaves at {time.en}.",
        f"{subject.de} {subject.agree(modal.de)} {errand.de}, "
        f"weil {vehicle.article} {vehicle.de} um {time.de} abfährt.",
    )


def action(draw: RandomPhrases) -> Pair:
    """Return a sentence like "she sold two books yesterday.". The German participle is last."""
    subject, verb, things, day = draw.subject(), draw.pick(lexicon.VERBS), draw.several_things(), draw.past()
    return Pair(
        f"{subject.en} {verb.en} {things.en} {day.en}.",
        f"{subject.de} {subject.agree(HABEN)} {day.de} {things.de} {verb.de}.",
    )


def condition(draw: RandomPhrases) -> Pair:
    """Return a sentence like "if the book costs less, he will buy it.". German "it" agrees in gender."""
    (noun, thing), cost, subject = draw.the_thing(), draw.price(), draw.subject()
    buys = subject.agree(("kaufe", "kauft", "kaufen"))
    return Pair(
        f"if {thing.en} costs less than {cost.en}, {subject.en} will buy it.",
        f"wenn {thing.de} weniger als {cost.de} kostet, {buys} {subject.de} {lexicon.PRONOUN[noun.article]}.",
    )


def relative_clause(draw: RandomPhrases) -> Pair:
    """Return a sentence like "the book that he bought cost ten euros.", with the right German pronoun."""
    (noun, thing), subject, day, cost = draw.the_thing(), draw.subject(), draw.past(), draw.price()
    bought = f"{lexicon.RELATIVE_PRONOUN[noun.article]} {subject.de} {day.de} gekauft {subject.agree(HABEN)}"
    return Pair(
        f"{thing.en} that {subject.en} bought {day.en} cost {cost.en}.",
        f"{thing.de}, {bought}, hat {cost.de} gekostet.",
    )


def activity(draw: RandomPhrases) -> Pair:
    """Return a sentence like "a small dog runs in the garden.". German articles and adjectives agree."""
    subject, verb = draw.pick([draw.subject(), draw.animals(), draw.animals()]), draw.pick(lexicon.ACTIVITIES)
    place = draw.pick([Pair("", ""), draw.pick(lexicon.PLACES)])
    return Pair(
        f"{subject.en} {subject.agree(verb.en)} {place.en}".rstrip() + ".",
        f"{subject.de} {subject.agree(verb.de)} {place.de}".rstrip() + ".",
    )


def description(draw: RandomPhrases) -> Pair:
    """Return a sentence like "the house is small." or "the dog and the cat are in the garden."."""
    first, second = (draw.pick(draw.pick([lexicon.BUILDINGS, lexicon.ANIMALS, lexicon.THINGS])) for _ in "12")
    quality = draw.pick(draw.pick([lexicon.ADJECTIVES, lexicon.PLACES]))
    english, german = f"the {first.en}", f"{first.article} {first.de}"
    if first == second or draw.integer(0, 1):
        return Pair(f"{english} is {quality.en}.", f"{german} ist {quality.de}.")
    return Pair(
        f"{english} and the {second.en} are {quality.en}.",
        f"{german} und {second.article} {second.de} sind {quality.de}.",
    )


PATTERNS = (
    calculation,
    departure,
    hurry,
    action,
    condition,
    relative_clause,
    activity,
    description,
)


def sentence(draw: RandomPhrases) -> Pair:
    """Return a sentence of a random pattern in both languages. Each begins with a capital letter."""
    english, german = draw.pick(PATTERNS)(draw)
    return Pair(english[0].upper() + english[1:], german[0].upper() + german[1:])
