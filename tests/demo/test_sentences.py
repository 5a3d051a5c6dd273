"""Whole sentences of the demo: word order and agreement."""

import re
from collections.abc import Callable

import pytest

from nmt_cli.demo import sentences
from nmt_cli.demo.corpus import corpus
from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.phrases import RandomPhrases


@pytest.fixture(scope="module")
def german() -> str:
    """Return German sentences of the corpus, one per line."""
    return "\n".join(pair.de for pair in corpus("train", 8000, seed=3))


@pytest.mark.parametrize(
    ("pattern", "seed", "english", "translation"),
    [
        (
            sentences.calculation,
            "3",
            "how much is six thousand two hundred and fifty-one plus one hundred and thirty-one?",
            "wie viel ist sechstausendzweihunderteinundfünfzig plus einhunderteinunddreißig?",
        ),
        (
            sentences.departure,
            "3",
            "the taxi to Hanover leaves on Friday at twenty-five past four.",
            "das Taxi nach Hannover fährt am Freitag um fünf vor halb fünf ab.",
        ),
        (
            sentences.hurry,
            "5",
            "the students can get up early because the taxi leaves at five to eight.",
            "die Studenten können früh aufstehen, weil das Taxi um fünf vor acht abfährt.",
        ),
        (
            sentences.action,
            "6",
            "I packed twenty-nine travel bags twelve weeks ago.",
            "ich habe vor zwölf Wochen neunundzwanzig Reisetaschen eingepackt.",
        ),
        (
            sentences.present,
            "3",
            "the day before yesterday Maria bought his uncle a new chair "
            "for fifteen euros and fifteen cents.",
            "vorgestern hat Maria seinem Onkel einen neuen Stuhl für fünfzehn Euro fünfzehn gekauft.",
        ),
        (
            sentences.condition,
            "2",
            "if the green kitchen table costs less than fourteen euros and eighty cents, we will buy it.",
            "wenn der grüne Küchentisch weniger als vierzehn Euro achtzig kostet, kaufen wir ihn.",
        ),
        (
            sentences.relative_clause,
            "4",
            "the big umbrella that Julia bought yesterday evening cost twenty euros.",
            "der große Regenschirm, den Julia gestern Abend gekauft hat, hat zwanzig Euro gekostet.",
        ),
        (
            sentences.birth,
            "3",
            "her sister was born on the twenty-third of April nineteen seventy-three.",
            "ihre Schwester wurde am dreiundzwanzigsten April neunzehnhundertdreiundsiebzig geboren.",
        ),
    ],
)
def test_german_word_order(
    pattern: Callable[[RandomPhrases], Pair], seed: str, english: str, translation: str
) -> None:
    assert pattern(RandomPhrases(seed)) == (english, translation)


@pytest.mark.parametrize(
    ("noun", "article", "relative", "pronoun", "accusative"),
    [
        ("Koffer", "der", "den", "ihn", r"einen \w+en"),
        ("Lampe", "die", "die", "sie", r"eine \w+e"),
        ("Hemd", "das", "das", "es", r"ein \w+es"),
    ],
)
def test_articles_adjectives_and_pronouns_agree_with_the_noun(
    german: str, noun: str, article: str, relative: str, pronoun: str, accusative: str
) -> None:
    assert set(re.findall(rf"^Wenn (.+) \w+e {noun} weniger .* (\w+)\.$", german, re.M)) == {
        (article, pronoun)
    }
    assert set(re.findall(rf"^(\w+) \w+e {noun}, (\w+) ", german, re.M)) == {(article.title(), relative)}
    bought = re.findall(rf"(\w+ \w+) {noun} für", german)
    assert bought and all(re.fullmatch(accusative, words) for words in bought)


def test_possessives_agree_in_nominative_and_dative(german: str) -> None:
    nominative = {"mein", "unser", "sein", "ihr"}
    receivers = re.findall(r"(\w+) (Sohn|Tante) ein", german)
    assert {owner for owner, noun in receivers if noun == "Sohn"} == {f"{owner}em" for owner in nominative}
    assert {owner for owner, noun in receivers if noun == "Tante"} == {f"{owner}er" for owner in nominative}
    born = {match.lower() for match in re.findall(r"(\w+ (?:Sohn|Tante)) wurde", german)}
    assert born == {f"{owner} sohn" for owner in nominative} | {f"{owner}e tante" for owner in nominative}


def test_no_number_before_a_noun_ends_in_eins(german: str) -> None:
    assert not re.search(r"eins [A-ZÄÖÜ]", german)
