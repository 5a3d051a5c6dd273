"""Numbers and times in words, as people write them in English and German."""

import pytest

from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.phrases import in_words, time_in_words


@pytest.mark.parametrize(
    ("phrase", "english", "german"),
    [
        (in_words(0), "zero", "null"),
        (in_words(1), "one", "eins"),
        (in_words(16), "sixteen", "sechzehn"),
        (in_words(17), "seventeen", "siebzehn"),
        (in_words(21), "twenty-one", "einundzwanzig"),
        (in_words(30), "thirty", "dreißig"),
        (in_words(70), "seventy", "siebzig"),
        (in_words(100), "one hundred", "einhundert"),
        (in_words(101), "one hundred and one", "einhunderteins"),
        (in_words(247), "two hundred and forty-seven", "zweihundertsiebenundvierzig"),
        (in_words(1000), "one thousand", "eintausend"),
        (in_words(1001), "one thousand and one", "eintausendeins"),
        (in_words(1212), "one thousand two hundred and twelve", "eintausendzweihundertzwölf"),
        (time_in_words(9, 0), "nine o'clock", "neun Uhr"),
        (time_in_words(1, 0), "one o'clock", "ein Uhr"),
        (time_in_words(1, 15), "a quarter past one", "Viertel nach eins"),
        (time_in_words(6, 20), "twenty past six", "zwanzig nach sechs"),
        (time_in_words(6, 25), "twenty-five past six", "fünf vor halb sieben"),
        (time_in_words(7, 30), "half past seven", "halb acht"),
        (time_in_words(12, 30), "half past twelve", "halb eins"),
        (time_in_words(6, 35), "twenty-five to seven", "fünf nach halb sieben"),
        (time_in_words(12, 45), "a quarter to one", "Viertel vor eins"),
        (time_in_words(5, 50), "ten to six", "zehn vor sechs"),
    ],
)
def test_numbers_and_times(phrase: Pair, english: str, german: str) -> None:
    assert phrase == (english, german)
