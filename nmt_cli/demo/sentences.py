"""Sentences of the demo's grammar. The function of each pattern draws words, and returns both translations.

Each pattern shows a rule of German word order or inflection that English lacks. An English sentence has
exactly one translation in this grammar.
"""

from nmt_cli.demo import lexicon
from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.phrases import RandomPhrases

HABEN = ("habe", "hat", "haben")


def calculation(draw: RandomPhrases) -> Pair:
    """Return a question like "how much is one plus two?" in both languages. German writes a number as one
    word, ones before tens."""
    first, second, operator = draw.cardinal(), draw.cardinal(), draw.pick(lexicon.OPERATORS)
    return Pair(
        f"how much is {first.en} {operator.en} {second.en}?",
        f"wie viel ist {first.de} {operator.de} {second.de}?",
    )


def departure(draw: RandomPhrases) -> Pair:
    """Return a sentence like "the train to Berlin leaves on Monday evening at seven o'clock." in both
    languages. The prefix of the verb "abfahren" moves to the end."""
    vehicle, city = draw.pick(lexicon.VEHICLES), draw.pick(lexicon.CITIES)
    day, time = draw.weekday(), draw.clock()
    return Pair(
        f"the {vehicle.en} to {city.en} leaves {day.en} at {time.en}.",
        f"{vehicle.article} {vehicle.de} nach {city.de} fährt {day.de} um {time.de} ab.",
    )


def hurry(draw: RandomPhrases) -> Pair:
    """Return a sentence about an errand, with the reason "because the train leaves at seven o'clock", in both
    languages. The German verb is last after a modal verb and after "weil"."""
    subject, modal, errand = draw.subject(), draw.pick(lexicon.MODALS), draw.pick(lexicon.ERRANDS)
    vehicle, time = draw.pick(lexicon.VEHICLES), draw.clock()
    return Pair(
        f"{subject.en} {subject.agree(modal.en)} {errand.en} because the {vehicle.en} leaves at {time.en}.",
        f"{subject.de} {subject.agree(modal.de)} {errand.de}, "
        f"weil {vehicle.article} {vehicle.de} um {time.de} abfährt.",
    )


def action(draw: RandomPhrases) -> Pair:
    """Return a sentence like "she sold three books yesterday." in both languages. The German participle is
    last, and the time precedes the object."""
    subject, verb, things, day = draw.subject(), draw.pick(lexicon.VERBS), draw.several_things(), draw.past()
    return Pair(
        f"{subject.en} {verb.en} {things.en} {day.en}.",
        f"{subject.de} {subject.agree(HABEN)} {day.de} {things.de} {verb.de}.",
    )


def present(draw: RandomPhrases) -> Pair:
    """Return a sentence like "yesterday he bought my brother an old chair for ten euros." in both languages.
    After the time, the German verb precedes the subject. The receiver is in the dative."""
    day, subject, receiver = draw.past(), draw.person(), draw.receiver()
    thing, cost = draw.a_thing(), draw.price()
    return Pair(
        f"{day.en} {subject.en} bought {receiver.en} {thing.en} for {cost.en}.",
        f"{day.de} {subject.agree(HABEN)} {subject.de} {receiver.de} {thing.de} für {cost.de} gekauft.",
    )


def condition(draw: RandomPhrases) -> Pair:
    """Return a sentence like "if the red book costs less than ten euros, he will buy it." in both languages.
    German "it" has the gender of the thing, and the German main clause begins with its verb."""
    (noun, thing), cost, subject = draw.the_thing(), draw.price(), draw.subject()
    buys = subject.agree(("kaufe", "kauft", "kaufen"))
    return Pair(
        f"if {thing.en} costs less than {cost.en}, {subject.en} will buy it.",
        f"wenn {thing.de} weniger als {cost.de} kostet, {buys} {subject.de} {noun.gender.pronoun}.",
    )


def relative_clause(draw: RandomPhrases) -> Pair:
    """Return a sentence like "the red book that he bought yesterday cost ten euros." in both languages. The
    German relative pronoun has the gender of the thing."""
    (noun, thing), subject, day, cost = draw.the_thing(), draw.subject(), draw.past(), draw.price()
    bought = f"{noun.gender.relative_pronoun} {subject.de} {day.de} gekauft {subject.agree(HABEN)}"
    return Pair(
        f"{thing.en} that {subject.en} bought {day.en} cost {cost.en}.",
        f"{thing.de}, {bought}, hat {cost.de} gekostet.",
    )


def birth(draw: RandomPhrases) -> Pair:
    """Return a sentence like "she was born on the third of March nineteen oh five." in both languages. The
    German day is in the dative."""
    subject, day, year = draw.subject(), draw.date(), draw.year()
    was, wurde = subject.agree(("was", "was", "were")), subject.agree(("wurde", "wurde", "wurden"))
    return Pair(
        f"{subject.en} {was} born {day.en} {year.en}.",
        f"{subject.de} {wurde} {day.de} {year.de} geboren.",
    )


PATTERNS = (calculation, departure, hurry, action, present, condition, relative_clause, birth)


def sentence(draw: RandomPhrases) -> Pair:
    """Return a sentence of a random pattern in both languages. Each begins with a capital letter."""
    english, german = draw.pick(PATTERNS)(draw)
    return Pair(english[0].upper() + english[1:], german[0].upper() + german[1:])
