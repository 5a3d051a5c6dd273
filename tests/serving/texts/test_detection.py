"""The language of a text is guessed among those that are served."""

import pytest

from nmt_cli.serving.texts.detection import Detection

SENTENCES = {
    "en": "The children are playing in the garden behind the house.",
    "de": "Die Kinder spielen im Garten hinter dem Haus.",
    "fr": "Les enfants jouent dans le jardin derrière la maison.",
    "cs": "Děti si hrají na zahradě za domem.",
}


@pytest.fixture(scope="module")
def detection() -> Detection:
    return Detection(["en", "de_AT", "fr", "cs", "tlh"])


def test_the_likeliest_language_is_first_and_called_as_it_is_served(detection: Detection) -> None:
    served = {"de": "de_AT"}
    for language, text in SENTENCES.items():
        ranked = detection.ranked(text)
        assert ranked[0][0] == served.get(language, language)
        assert ranked[0][1] > 0.9
        assert ranked[-1] == ("tlh", 0.0)
        assert sum(probability for _, probability in ranked) == pytest.approx(1)


def test_a_text_without_words_is_in_any(detection: Detection) -> None:
    assert {language for language, _ in detection.ranked("")} == {"en", "de_AT", "fr", "cs", "tlh"}


def test_where_no_language_is_known_none_is_likely() -> None:
    assert Detection(["tlh", "x-own"]).ranked("a dog") == [("tlh", 0.0), ("x-own", 0.0)]
