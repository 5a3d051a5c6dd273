"""Numbers, years, days of the month, clock times and prices in words: British English and German."""

from nmt_cli.demo.lexicon import CLOCK_TIMES, ENGLISH_ORDINALS, GERMAN_ORDINALS, SMALL_NUMBERS, TENS, Pair


def cardinal(number: int) -> Pair:
    """Return a number from 0 to 999,999 in words: 21 is "twenty-one", "einundzwanzig"."""
    return Pair(_english(number), _german(number))


def _english(number: int) -> str:
    if number < 20:
        return SMALL_NUMBERS[number].en
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens].en + (f"-{_english(ones)}" if ones else "")
    size, unit = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, size)
    link = " and " if rest < 100 else " "
    return f"{_english(count)} {unit}" + (f"{link}{_english(rest)}" if rest else "")


def _german(number: int) -> str:
    if number < 20:
        return SMALL_NUMBERS[number].de
    if number < 100:
        tens, ones = divmod(number, 10)
        return (f"{_german_prefix(ones)}und" if ones else "") + TENS[tens].de
    size, unit = (1000, "tausend") if number >= 1000 else (100, "hundert")
    count, rest = divmod(number, size)
    return f"{_german_prefix(count)}{unit}" + (_german(rest) if rest else "")


def _german_prefix(number: int) -> str:
    """Return a number in German in the form before another word: "eins" becomes "ein"."""
    return _german(number).removesuffix("s") if number % 100 == 1 else _german(number)


def year(number: int) -> Pair:
    """Return a year from 1100 to 2099 in words: 1905 is "nineteen oh five", "neunzehnhundertfünf"."""
    if 2000 <= number < 2010:
        return cardinal(number)
    century, rest = divmod(number, 100)
    tail = "hundred" if rest == 0 else f"oh {_english(rest)}" if rest < 10 else _english(rest)
    german_tail = _german(rest) if rest else ""
    german = _german(number) if number >= 2000 else f"{_german(century)}hundert{german_tail}"
    return Pair(f"{_english(century)} {tail}", german)


def ordinal(day: int) -> Pair:
    """Return a day of the month, 1 to 31, in words: 21 is "twenty-first", "einundzwanzigste"."""
    head, dash, last = _english(day).rpartition("-")
    english = head + dash + ENGLISH_ORDINALS.get(last, f"{last}th")
    regular = _german(day) + ("te" if day < 20 else "ste")
    return Pair(english, GERMAN_ORDINALS.get(_german(day), regular))


def clock(hour: int, minute: int) -> Pair:
    """Return a twelve-hour time in words: (7, 30) is "half past seven", "halb acht". The hour is from 1 to
    12, and the minute is a multiple of 5 below 60."""
    now, following, time = cardinal(hour), cardinal(hour % 12 + 1), CLOCK_TIMES[minute // 5]
    german_now = now.de if minute else _german_prefix(hour)
    return Pair(time.en.format(now.en, following.en), time.de.format(german_now, following.de))


def price(euros: int, cents: int) -> Pair:
    """Return a price of 1 euro or more, in the German accusative: "einen Euro", "zwei Euro fünfzig"."""
    english = "one euro" if euros == 1 else f"{_english(euros)} euros"
    german = "einen Euro" if euros == 1 else f"{_german(euros)} Euro"
    if cents:
        return Pair(f"{english} and {_english(cents)} cents", f"{german} {_german(cents)}")
    return Pair(english, german)
