"""Numbers, times, years, days and prices in words, as people write them in English and German."""

import pytest

from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.numerals import cardinal, clock, ordinal, price, year


@pytest.mark.parametrize(
    ("phrase", "english", "german"),
    [
        (cardinal(0), "zero", "null"),
        (cardinal(1), "one", "eins"),
        (cardinal(16), "sixteen", "sechzehn"),
        (cardinal(17), "seventeen", "siebzehn"),
        (cardinal(21), "twenty-one", "einundzwanzig"),
        (cardinal(30), "thirty", "dreißig"),
        (cardinal(70), "seventy", "siebzig"),
        (cardinal(100), "one hundred", "einhundert"),
        (cardinal(101), "one hundred and one", "einhunderteins"),
        (cardinal(247), "two hundred and forty-seven", "zweihundertsiebenundvierzig"),
        (cardinal(1000), "one thousand", "eintausend"),
        (cardinal(1001), "one thousand and one", "eintausendeins"),
        (cardinal(1212), "one thousand two hundred and twelve", "eintausendzweihundertzwölf"),
        (cardinal(21_000), "twenty-one thousand", "einundzwanzigtausend"),
        (cardinal(101_000), "one hundred and one thousand", "einhunderteintausend"),
        (
            cardinal(999_999),
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
        (year(1997), "nineteen ninety-seven", "neunzehnhundertsiebenundneunzig"),
        (year(1905), "nineteen oh five", "neunzehnhundertfünf"),
        (year(1900), "nineteen hundred", "neunzehnhundert"),
        (year(2000), "two thousand", "zweitausend"),
        (year(2007), "two thousand and seven", "zweitausendsieben"),
        (year(2014), "twenty fourteen", "zweitausendvierzehn"),
        (ordinal(1), "first", "erste"),
        (ordinal(2), "second", "zweite"),
        (ordinal(3), "third", "dritte"),
        (ordinal(7), "seventh", "siebte"),
        (ordinal(8), "eighth", "achte"),
        (ordinal(12), "twelfth", "zwölfte"),
        (ordinal(19), "nineteenth", "neunzehnte"),
        (ordinal(20), "twentieth", "zwanzigste"),
        (ordinal(21), "twenty-first", "einundzwanzigste"),
        (clock(9, 0), "nine o'clock", "neun Uhr"),
        (clock(1, 0), "one o'clock", "ein Uhr"),
        (clock(1, 15), "a quarter past one", "Viertel nach eins"),
        (clock(6, 20), "twenty past six", "zwanzig nach sechs"),
        (clock(6, 25), "twenty-five past six", "fünf vor halb sieben"),
        (clock(7, 30), "half past seven", "halb acht"),
        (clock(12, 30), "half past twelve", "halb eins"),
        (clock(6, 35), "twenty-five to seven", "fünf nach halb sieben"),
        (clock(12, 45), "a quarter to one", "Viertel vor eins"),
        (clock(5, 50), "ten to six", "zehn vor sechs"),
        (price(1, 0), "one euro", "einen Euro"),
        (price(1, 5), "one euro and five cents", "einen Euro fünf"),
        (price(2, 50), "two euros and fifty cents", "zwei Euro fünfzig"),
        (price(21, 0), "twenty-one euros", "einundzwanzig Euro"),
    ],
)
def test_numbers_years_days_times_and_prices(phrase: Pair, english: str, german: str) -> None:
    assert phrase == (english, german)
