"""Numbers, years, ordinals, clock times and prices as British English and German write them in words."""


def _words(line: str) -> list[str]:
    return line.split()


ENGLISH_SMALL = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
ENGLISH_TENS = _words("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
ENGLISH_UNITS = ((1_000_000, "million"), (1000, "thousand"), (100, "hundred"))
GERMAN_SMALL = _words(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
)
GERMAN_TENS = _words("null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
ENGLISH_ORDINAL = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ENGLISH_ORDINAL |= {"nine": "ninth", "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}
GERMAN_ORDINAL = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
LIMIT = 100_000_000


def english_cardinal(number: int) -> str:
    """The number in words, 0 <= number < LIMIT: 247 is "two hundred and forty-seven"."""
    _check(number)
    if number < 100:
        return _english_below_hundred(number)
    size, unit = next((s, u) for s, u in ENGLISH_UNITS if number >= s)
    count, rest = divmod(number, size)
    words = f"{english_cardinal(count)} {unit}"
    if not rest:
        return words
    return f"{words} {'and ' if rest < 100 else ''}{english_cardinal(rest)}"  # British


def _check(number: int) -> None:
    if not 0 <= number < LIMIT:
        raise ValueError(f"{number} cannot be put into words; this grammar counts from 0 to {LIMIT - 1}")


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return ENGLISH_SMALL[number]
    tens, ones = divmod(number, 10)
    return f"{ENGLISH_TENS[tens]}-{ENGLISH_SMALL[ones]}" if ones else ENGLISH_TENS[tens]


def german_cardinal(number: int) -> str:
    """The number as one counts, 0 <= number < LIMIT: 1 is "eins", 101 "einhunderteins"."""
    _check(number)
    if number < 1_000_000:
        return _german_below_million(number)
    millions, rest = divmod(number, 1_000_000)
    words = "eine Million" if millions == 1 else f"{german_before_noun(millions)} Millionen"
    return f"{words} {german_cardinal(rest)}" if rest else words


def german_before_noun(number: int) -> str:
    """The number before a plural noun or within a longer numeral; "eins" at the end has no place there.

    Numbers from 101 on that end in 01 are left out: Germans themselves disagree on "einhunderteins Bücher".
    """
    if number == 1 or (number > 100 and number % 100 == 1):
        raise ValueError(f"{number} has no settled German form before a plural noun")
    return german_cardinal(number)


def _german_below_million(number: int) -> str:
    if number < 100:
        return _german_below_hundred(number)
    size, unit = (1000, "tausend") if number >= 1000 else (100, "hundert")
    count, rest = divmod(number, size)
    # Inside a word "eins" loses its s: einhundert, einhunderteintausend.
    head = _german_below_million(count)
    head = head.removesuffix("s") if head.endswith("eins") else head
    return f"{head}{unit}" + (_german_below_million(rest) if rest else "")


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return GERMAN_SMALL[number]
    tens, ones = divmod(number, 10)
    head = "ein" if ones == 1 else GERMAN_SMALL[ones]  # einundzwanzig, not einsundzwanzig
    return f"{head}und{GERMAN_TENS[tens]}" if ones else GERMAN_TENS[tens]


def english_year(year: int) -> str:
    """A year from 1100 to 2099: "nineteen oh five", "two thousand and seven", "twenty fourteen"."""
    century, rest = divmod(year, 100)
    if 2000 <= year < 2010:  # nobody says "twenty oh seven"
        return english_cardinal(year)
    tail = "hundred" if rest == 0 else f"oh {english_cardinal(rest)}" if rest < 10 else english_cardinal(rest)
    return f"{english_cardinal(century)} {tail}"


def german_year(year: int) -> str:
    """A year from 1100 to 2099; Germans count the hundreds up to 1999 and the thousands from 2000."""
    if year >= 2000:
        return "zweitausend" + (german_cardinal(year - 2000) if year > 2000 else "")
    century, rest = divmod(year, 100)
    return f"{german_cardinal(century)}hundert" + (german_cardinal(rest) if rest else "")


def english_ordinal(day: int) -> str:
    """A day of the month: "third", "twenty-first"."""
    head, dash, last = english_cardinal(day).rpartition("-")
    return head + dash + ENGLISH_ORDINAL.get(last, f"{last}th")


def german_ordinal(day: int) -> str:
    """A day of the month with the ending -e; add -n for the dative: "dritte", "einundzwanzigste"."""
    return GERMAN_ORDINAL.get(day, german_cardinal(day) + ("te" if day < 20 else "ste"))


def english_clock(hour: int, minute: int) -> str:
    """A time on the twelve-hour clock, 1 <= hour <= 12: (7, 30) is "half past seven"."""
    now, following = english_cardinal(hour), english_cardinal(_next_hour(hour))
    if minute == 0:
        return f"{now} o'clock"
    if minute % 5:
        return f"{now} {english_cardinal(minute)}" if minute > 9 else f"{now} oh {english_cardinal(minute)}"
    names = {15: "a quarter", 30: "half"}
    if minute > 30:
        return f"{names.get(60 - minute) or english_cardinal(60 - minute)} to {following}"
    return f"{names.get(minute) or english_cardinal(minute)} past {now}"


def german_clock(hour: int, minute: int) -> str:
    """The same time in German, where half past seven is "halb acht" and 7.25 is "fünf vor halb acht"."""
    now, following = german_cardinal(hour), german_cardinal(_next_hour(hour))
    if minute == 0 or minute % 5:
        spoken_hour = "ein" if hour == 1 else now  # "ein Uhr", though one counts "eins"
        return f"{spoken_hour} Uhr" + (f" {german_cardinal(minute)}" if minute else "")
    # The five minutes before and after a half hour are counted from it.
    around_half = {25: "fünf vor halb", 30: "halb", 35: "fünf nach halb"}
    if minute in around_half:
        return f"{around_half[minute]} {following}"
    distance = min(minute, 60 - minute)
    name = "Viertel" if distance == 15 else german_cardinal(distance)
    return f"{name} nach {now}" if minute < 30 else f"{name} vor {following}"


def _next_hour(hour: int) -> int:
    return hour % 12 + 1


def english_price(euros: int, cents: int) -> str:
    """A price of at least one euro: "two euros and fifty cents"."""
    words = f"{english_cardinal(euros)} {'euro' if euros == 1 else 'euros'}"
    return f"{words} and {english_cardinal(cents)} cents" if cents else words


def german_price(euros: int, cents: int) -> str:
    """The same price in the accusative, after "kosten" or "für": "zwei Euro fünfzig", "einen Euro"."""
    words = f"{'einen' if euros == 1 else german_before_noun(euros)} Euro"
    return f"{words} {german_cardinal(cents)}" if cents else words
