"""Parts of sentences: their German is right whatever is drawn."""

from random import Random

import pytest

from nmt_cli.demo import numerals, phrases


@pytest.mark.parametrize("number", [1, 101, 2001])
def test_a_number_with_no_settled_plural_form_never_stands_before_a_noun(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} has no settled German form"):
        numerals.german_before_noun(number)
    drawn = phrases.before_noun(Random(1), number, number)
    assert drawn.de == numerals.german_cardinal(number + 1)


def test_relatives_are_declined() -> None:
    drawn = {person.en: person[1:] for person in (phrases.relative(rng) for rng in map(Random, range(800)))}
    assert len(drawn) == 40
    assert drawn["our son"] == ("unser Sohn", "unseren Sohn", "unserem Sohn", "unseres Sohnes")
    assert drawn["her aunt"] == ("ihre Tante", "ihre Tante", "ihrer Tante", "ihrer Tante")
