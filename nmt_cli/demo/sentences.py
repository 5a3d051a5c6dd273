"""The sentences of the quickstart corpus: one function for each pattern, English and German side by side.

A pattern belongs here if its English has exactly one right German within this corpus.
"""

from collections.abc import Callable
from random import Random

from nmt_cli.demo import lexicon
from nmt_cli.demo.lexicon import HABEN, HAS, WAS, WERDEN, WURDE, Pair
from nmt_cli.demo.phrases import (
    before_noun,
    cardinal,
    chance,
    city,
    clock,
    crowd,
    day_of_year,
    described,
    few,
    future,
    named_day,
    past,
    pick,
    price,
    pronoun_or_name,
    relative,
    several,
    subject,
    two_different,
    year,
)


def arriving_late(rng: Random) -> Pair:
    time, who, (en, de) = clock(rng), subject(rng), pick(rng, lexicon.ARRIVALS)
    return Pair(
        f"it was already {time.en} when {who.en} {en}.",
        f"es war schon {time.de}, als {who.de} {who.agree(de)}.",
    )


def departure(rng: Random) -> Pair:
    vehicle, town, time, day = pick(rng, lexicon.VEHICLES), city(rng), clock(rng), named_day(rng)
    article = lexicon.DEFINITE[vehicle.gender]
    return Pair(
        f"the {vehicle.en} to {town.en} leaves {day.en} at {time.en}.",
        f"{article} {vehicle.de} nach {town.de} {vehicle.leaves} {day.de} um {time.de} ab.",
    )


def arrival_question(rng: Random) -> Pair:
    vehicle, town, time = pick(rng, lexicon.VEHICLES), city(rng), clock(rng)
    article = lexicon.DEFINITE[vehicle.gender]
    return Pair(
        f"does the {vehicle.en} from {town.en} arrive at {time.en}?",
        f"kommt {article} {vehicle.de} aus {town.de} um {time.de} an?",
    )


def errand(rng: Random) -> Pair:
    who, (en_modal, de_modal), task = subject(rng), pick(rng, lexicon.MODALS), pick(rng, lexicon.ERRANDS)
    vehicle, time = pick(rng, lexicon.VEHICLES), clock(rng)
    article = lexicon.DEFINITE[vehicle.gender]
    return Pair(
        f"{who.en} {who.agree(en_modal)} {task.en} because the {vehicle.en} leaves at {time.en}.",
        f"{who.de} {who.agree(de_modal)} {task.de}, "
        # In a subordinate clause the prefix stands at its verb: "abfährt".
        f"weil {article} {vehicle.de} um {time.de} ab{vehicle.leaves}.",
    )


def bought(rng: Random) -> Pair:
    who, verb, things, day = subject(rng), pick(rng, lexicon.VERBS), several(rng), past(rng)
    return Pair(
        f"{who.en} {verb.en_past} {things.en} {day.en}.",
        f"{who.de} {who.agree(HABEN)} {day.de} {things.de} {verb.de_participle}.",
    )


def bought_question(rng: Random) -> Pair:
    who, verb, things, day = subject(rng), pick(rng, lexicon.VERBS), several(rng), past(rng)
    return Pair(
        f"did {who.en} {verb.en} {things.en} {day.en}?",
        f"{who.agree(HABEN)} {who.de} {day.de} {things.de} {verb.de_participle}?",
    )


def bought_for(rng: Random) -> Pair:
    who, (_, thing), cost, day = subject(rng), described(rng, "einen"), price(rng), past(rng)
    return Pair(
        f"{day.en} {who.en} bought {thing.en} for {cost.en}.",
        f"{day.de} {who.agree(HABEN)} {who.de} {thing.de} für {cost.de} gekauft.",
    )


def intention(rng: Random) -> Pair:
    who, (en_modal, de_modal), verb = subject(rng), pick(rng, lexicon.MODALS), pick(rng, lexicon.VERBS)
    things, day = several(rng), future(rng)
    return Pair(
        f"{who.en} {who.agree(en_modal)} {verb.en} {things.en} {day.en}.",
        f"{who.de} {who.agree(de_modal)} {day.de} {things.de} {verb.de}.",
    )


def costs(rng: Random) -> Pair:
    (_, thing), cost = described(rng, "der"), price(rng)
    return Pair(f"{thing.en} costs {cost.en}.", f"{thing.de} kostet {cost.de}.")


def saying(rng: Random) -> Pair:
    who, (en_verb, de_verb) = subject(rng), pick(rng, lexicon.SAYING)
    (_, thing), cost = described(rng, "der"), price(rng)
    return Pair(
        f"{who.en} {who.agree(en_verb)} that {thing.en} costs {cost.en}.",
        f"{who.de} {who.agree(de_verb)}, dass {thing.de} {cost.de} kostet.",
    )


def condition(rng: Random) -> Pair:
    who, (noun, thing), cost = subject(rng), described(rng, "der"), price(rng)
    buys = who.agree(("kaufe", "kauft", "kaufen"))
    return Pair(
        f"if {thing.en} costs less than {cost.en}, {who.en} will buy it.",
        f"wenn {thing.de} weniger als {cost.de} kostet, {buys} {who.de} {noun.pronoun('accusative')}.",
    )


def too_expensive(rng: Random) -> Pair:
    who, (noun, thing), cost = subject(rng), described(rng, "den"), price(rng)
    return Pair(
        f"{who.en} did not buy {thing.en} because it cost {cost.en}.",
        f"{who.de} {who.agree(HABEN)} {thing.de} nicht gekauft, "
        f"weil {noun.pronoun('nominative')} {cost.de} kostete.",
    )


def which_cost(rng: Random) -> Pair:
    who, (noun, thing), cost, day = subject(rng), described(rng, "der"), price(rng), past(rng)
    return Pair(
        f"{thing.en} that {who.en} bought {day.en} cost {cost.en}.",
        f"{thing.de}, {noun.pronoun('relative')} {who.de} {day.de} gekauft {who.agree(HABEN)}, "
        f"hat {cost.de} gekostet.",
    )


def present(rng: Random) -> Pair:
    who, whom, (_, thing), day = pronoun_or_name(rng), relative(rng), described(rng, "einen"), past(rng)
    return Pair(
        f"{who.en} gave {whom.en} {thing.en} {day.en}.",
        f"{who.de} {who.agree(HABEN)} {whom.dative} {day.de} {thing.de} geschenkt.",
    )


def born(rng: Random) -> Pair:
    who, day, when = subject(rng), day_of_year(rng), year(rng, 1900)
    return Pair(
        f"{who.en} {who.agree(WAS)} born on {day.en} {when.en}.",
        f"{who.de} {who.agree(WURDE)} am {day.de} {when.de} geboren.",
    )


def birthday(rng: Random) -> Pair:
    who, day, age = pronoun_or_name(rng), day_of_year(rng), before_noun(rng, 2, 99)
    return Pair(
        f"{who.en} will be {age.en} years old on {day.en}.",
        f"{who.de} {who.agree(WERDEN)} am {day.de} {age.de} Jahre alt.",
    )


def residence(rng: Random) -> Pair:
    who, town, since = subject(rng), city(rng), year(rng, 1950)
    lives = who.agree(("wohne", "wohnt", "wohnen"))
    return Pair(
        f"{who.en} {who.agree(HAS)} been living in {town.en} since {since.en}.",
        f"{who.de} {lives} seit {since.de} in {town.de}.",
    )


def event(rng: Random) -> Pair:
    what, place, day, time = pick(rng, lexicon.EVENTS), pick(rng, lexicon.PLACES), named_day(rng), clock(rng)
    article = lexicon.DEFINITE[what.gender]
    return Pair(
        f"the {what.en} takes place {place.en} {day.en} at {time.en}.",
        f"{article} {what.de} findet {day.de} um {time.de} {place.de} statt.",
    )


def invitation(rng: Random) -> Pair:
    who, count, people, what = subject(rng), few(rng), pick(rng, lexicon.PEOPLE), pick(rng, lexicon.EVENTS)
    to = "zur" if what.gender == "f" else "zum"  # zu der, zu dem
    return Pair(
        f"{who.en} {who.agree(HAS)} invited {count.en} {people.en} to the {what.en}.",
        f"{who.de} {who.agree(HABEN)} {count.de} {people.de} {to} {what.de} eingeladen.",
    )


def telephoning(rng: Random) -> Pair:
    who, whom, time = pronoun_or_name(rng), relative(rng), clock(rng)
    en_day, de_day = named_day(rng)
    return Pair(
        f"{who.en} called {whom.en} {en_day} at {time.en}.",
        f"{who.de} {who.agree(HABEN)} {whom.accusative} {de_day} um {time.de} angerufen.",
    )


def waiting(rng: Random) -> Pair:
    who, count, vehicle = subject(rng), before_noun(rng, 2, 59), pick(rng, lexicon.VEHICLES)
    town = city(rng)
    article, _ = lexicon.ARTICLES["den"][vehicle.gender]
    return Pair(
        f"{who.en} waited for the {vehicle.en} to {town.en} for {count.en} minutes.",
        f"{who.de} {who.agree(HABEN)} {count.de} Minuten auf {article} {vehicle.de} nach {town.de} gewartet.",
    )


def opening_hours(rng: Random) -> Pair:
    place, day = pick(rng, lexicon.OPEN_PLACES), pick(rng, lexicon.WEEKDAYS)
    opens, closes = two_different(clock, rng)
    return Pair(
        f"{place.en} is open on {day.en} from {opens.en} until {closes.en}.",
        f"{place.de} ist am {day.de} von {opens.de} bis {closes.de} geöffnet.",
    )


def distance(rng: Random) -> Pair:
    start, end = two_different(city, rng)
    length = before_noun(rng, 20, 2000)
    return Pair(
        f"it is {length.en} kilometres from {start.en} to {end.en}.",
        f"von {start.de} nach {end.de} sind es {length.de} Kilometer.",
    )


def inhabitants(rng: Random) -> Pair:
    town, people = city(rng), crowd(rng)
    if chance(rng, 0.5):
        return Pair(f"{people.en} people live in {town.en}.", f"in {town.de} leben {people.de} Menschen.")
    when = year(rng, 1800)
    return Pair(
        f"{people.en} people lived in {town.en} in {when.en}.",
        f"im Jahr {when.de} lebten in {town.de} {people.de} Menschen.",
    )


def stock(rng: Random) -> Pair:
    store, things = pick(rng, lexicon.STORES), several(rng)
    return Pair(f"there are {things.en} {store.en}.", f"{store.de} gibt es {things.de}.")


def number_of(rng: Random) -> Pair:
    whose, what, number = relative(rng), pick(rng, lexicon.NUMBERED), cardinal(rng)
    return Pair(f"{whose.en}'s {what.en} is {number.en}.", f"{what.de} {whose.genitive} ist {number.de}.")


def sum_of(rng: Random) -> Pair:
    first, second = cardinal(rng), cardinal(rng)
    word = pick(rng, [Pair("plus", "plus"), Pair("minus", "minus"), Pair("times", "mal")])
    return Pair(
        f"how much is {first.en} {word.en} {second.en}?", f"wie viel ist {first.de} {word.de} {second.de}?"
    )


PATTERNS: tuple[Callable[[Random], Pair], ...] = (
    arriving_late,
    departure,
    arrival_question,
    errand,
    bought,
    bought_question,
    bought_for,
    intention,
    costs,
    saying,
    condition,
    too_expensive,
    which_cost,
    present,
    born,
    birthday,
    residence,
    event,
    invitation,
    telephoning,
    waiting,
    opening_hours,
    distance,
    inhabitants,
    stock,
    number_of,
    sum_of,
)


def sentence(rng: Random) -> Pair:
    """One sentence with its translation, as it would be printed."""
    en, de = pick(rng, PATTERNS)(rng)
    return Pair(en[0].upper() + en[1:], de[0].upper() + de[1:])
