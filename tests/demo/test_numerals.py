"""Numbers, times, years, days and prices in words, as people write them in English and German."""

import pytest

from nmt_cli.demo import numerals


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (70, "seventy", "siebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (247, "two hundred and forty-seven", "zweihundertsiebenundvierzig"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand and one", "eintausendeins"),
        (1212, "one thousand two hundred and twelve", "eintausendzweihundertzwölf"),
        (21_000, "twenty-one thousand", "einundzwanzigtausend"),
        (101_000, "one hundred and one thousand", "einhunderteintausend"),
        (
            999_999,
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
        (1_000_000, "one million", "eine Million"),
        (2_300_000, "two million three hundred thousand", "zwei Millionen dreihunderttausend"),
    ],
)
def test_numbers(number: int, english: str, german: str) -> None:
    assert (numerals.english_cardinal(number), numerals.german_cardinal(number)) == (english, german)


@pytest.mark.parametrize("number", [-1, numerals.LIMIT])
def test_a_number_beyond_the_grammar_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} cannot be put into words"):
        numerals.german_cardinal(number)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (9, 0, "nine o'clock", "neun Uhr"),
        (1, 0, "one o'clock", "ein Uhr"),
        (8, 45, "a quarter to nine", "Viertel vor neun"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (6, 20, "twenty past six", "zwanzig nach sechs"),
        (6, 25, "twenty-five past six", "fünf vor halb sieben"),
        (6, 35, "twenty-five to seven", "fünf nach halb sieben"),
        (5, 50, "ten to six", "zehn vor sechs"),
        (1, 17, "one seventeen", "ein Uhr siebzehn"),
        (4, 3, "four oh three", "vier Uhr drei"),
    ],
)
def test_clock_times(hour: int, minute: int, english: str, german: str) -> None:
    assert (numerals.english_clock(hour, minute), numerals.german_clock(hour, minute)) == (english, german)


@pytest.mark.parametrize(
    ("year", "english", "german"),
    [
        (1997, "nineteen ninety-seven", "neunzehnhundertsiebenundneunzig"),
        (1905, "nineteen oh five", "neunzehnhundertfünf"),
        (1900, "nineteen hundred", "neunzehnhundert"),
        (2000, "two thousand", "zweitausend"),
        (2007, "two thousand and seven", "zweitausendsieben"),
        (2014, "twenty fourteen", "zweitausendvierzehn"),
    ],
)
def test_years(year: int, english: str, german: str) -> None:
    assert (numerals.english_year(year), numerals.german_year(year)) == (english, german)


@pytest.mark.parametrize(
    ("day", "english", "german"),
    [
        (1, "first", "erste"),
        (3, "third", "dritte"),
        (7, "seventh", "siebte"),
        (8, "eighth", "achte"),
        (12, "twelfth", "zwölfte"),
        (19, "nineteenth", "neunzehnte"),
        (20, "twentieth", "zwanzigste"),
        (22, "twenty-second", "zweiundzwanzigste"),
    ],
)
def test_days_of_the_month(day: int, english: str, german: str) -> None:
    assert (numerals.english_ordinal(day), numerals.german_ordinal(day)) == (english, german)


@pytest.mark.parametrize(
    ("euros", "cents", "english", "german"),
    [
        (1, 0, "one euro", "einen Euro"),
        (1, 5, "one euro and five cents", "einen Euro fünf"),
        (2, 50, "two euros and fifty cents", "zwei Euro fünfzig"),
        (21, 0, "twenty-one euros", "einundzwanzig Euro"),
    ],
)
def test_prices(euros: int, cents: int, english: str, german: str) -> None:
    assert (numerals.english_price(euros, cents), numerals.german_price(euros, cents)) == (english, german)
