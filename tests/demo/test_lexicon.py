"""German words in their cases and genders."""

import pytest

from nmt_cli.demo.lexicon import THINGS


@pytest.mark.parametrize(
    ("english", "der", "den", "einen", "pronouns"),
    [
        ("suitcase", "der rote Koffer", "den roten Koffer", "einen roten Koffer", "er ihn den"),
        ("lamp", "die rote Lampe", "die rote Lampe", "eine rote Lampe", "sie sie die"),
        ("shirt", "das rote Hemd", "das rote Hemd", "ein rotes Hemd", "es es das"),
    ],
)
def test_articles_adjectives_and_pronouns_follow_the_gender(
    english: str, der: str, den: str, einen: str, pronouns: str
) -> None:
    noun = next(thing for thing in THINGS if thing.en == english)
    assert [noun.with_ending("rot", d) for d in ("der", "den", "einen")] == [der, den, einen]
    assert [noun.pronoun(p) for p in ("nominative", "accusative", "relative")] == pronouns.split()
