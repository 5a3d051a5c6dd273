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
            "how much is five thousand eight hundred and thirty-five plus thirty-five?",
            "wie viel ist fünftausendachthundertfünfunddreißig plus fünfunddreißig?",
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
            "Clara can buy the tickets because the train leaves at ten to four.",
            "Clara kann die Fahrkarten kaufen, weil der Zug um zehn vor vier abfährt.",
        ),
        (
            sentences.action,
            "6",
            "Felix ordered nine carpets eleven days ago.",
            "Felix hat vor elf Tagen neun Teppiche bestellt.",
        ),
        (
            sentences.condition,
            "2",
            "if the green kitchen table costs less than fourteen euros, our daughter will buy it.",
            "wenn der grüne Küchentisch weniger als vierzehn Euro kostet, kauft unsere Tochter ihn.",
        ),
        (
            sentences.relative_clause,
            "4",
            "the big umbrella that Felix bought on Wednesday cost eleven euros and sixty-five cents.",
            "der große Regenschirm, den Felix am Mittwoch gekauft hat, hat elf Euro fünfundsechzig gekostet.",
        ),
        (
            sentences.activity,
            "1658",
            "a small dog plays in the garden.",
            "ein kleiner Hund spielt im Garten.",
        ),
        (
            sentences.description,
            "38",
            "the cow and the desk lamp are in the garden.",
            "die Kuh und die Schreibtischlampe sind im Garten.",
        ),
    ],
)
def test_german_word_order(
    pattern: Callable[[RandomPhrases], Pair], seed: str, english: str, translation: str
) -> None:
    assert pattern(RandomPhrases(seed)) == (english, translation)


@pytest.mark.parametrize(
    ("noun", "article", "relative", "pronoun"),
    [("Koffer", "der", "den", "ihn"), ("Lampe", "die", "die", "sie"), ("Hemd", "das", "das", "es")],
)
def test_articles_and_pronouns_agree_with_the_noun(
    german: str, noun: str, article: str, relative: str, pronoun: str
) -> None:
    assert set(re.findall(rf"^Wenn (.+) \w+e {noun} weniger .* (\w+)\.$", german, re.M)) == {
        (article, pronoun)
    }
    assert set(re.findall(rf"^(\w+) \w+e {noun}, (\w+) ", german, re.M)) == {(article.title(), relative)}


@pytest.mark.parametrize(
    ("noun", "indefinite"),
    [("Hund", "Ein \\w+er Hund"), ("Katze", "Eine \\w+e Katze"), ("Pferd", "Ein \\w+es Pferd")],
)
def test_adjectives_agree_with_an_indefinite_article(german: str, noun: str, indefinite: str) -> None:
    phrases = set(re.findall(rf"^Eine? \w+ {noun}\b", german, re.M))
    assert len(phrases) > 5
    assert [phrase for phrase in phrases if not re.fullmatch(indefinite, phrase)] == []


def test_a_vowel_has_an() -> None:
    english = "\n".join(pair.en for pair in corpus("train", 8000, seed=3))
    assert re.search(r"^An old ", english, re.M)
    assert not re.search(r"\b[Aa] [aeiou]", english)


def test_no_number_before_a_noun_ends_in_eins(german: str) -> None:
    assert not re.search(r"eins [A-ZÄÖÜ]", german)
