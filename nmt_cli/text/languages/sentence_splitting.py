"""Sentence splitting by rules, without a model.

A rule looks at end punctuation, at the text before it, such as an abbreviation, and at the text after it.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from nmt_cli.language import iso_code

CLOSING = "\"'”’“»«›‹)\\]}」』）】》〉〟"
"""Quotes and brackets that may follow end punctuation. Some of them open in one language and close in
others."""

MARKS = ".!?;…‥؟۔।॥։።\u037e\u17d4\u17d5"
DENSE_MARKS = "。！？｡।॥"
"""Punctuation that ends a sentence even if no space follows."""

BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""Line breaks of all programs. They always end a sentence."""

BOUNDARY = re.compile(
    rf"(?P<marks>[{MARKS}{DENSE_MARKS}](?:(?<![{DENSE_MARKS}”’」])[“‘]|(?![“‘])[{MARKS}{DENSE_MARKS}{CLOSING}])*+)"
    rf"(?:[ \xa0\u202f][»›](?=\s|$))?|[{BREAKS}]"
)
"""A possible end of a sentence: a line break, or end punctuation with closing characters.

The quantifiers are possessive, so that matching takes linear time. French has a space before a closing quote.
After a Chinese full stop, “ opens a quotation.
"""

SPACES = re.compile(r"\s*+")
NO_BREAK_SPACES = re.compile("[\xa0\u202f\u2007]+$")
"""Spaces that join the words around them."""

OPENING = re.compile(r"[\s\"'“„”’‘‚«»‹›(\[{¿¡—–\-•*「『（【《〈]*+")
CONTINUES = re.compile(
    "[」』”’〟](?:と|って|[\u4e00-\u9fff]{0,8}?(?:[说說问問喊叫答想]|(?<!知)道)[道着著]?[。，：！？])"
)
"""A clause after a quotation that names the speaker. In Chinese, it ends in a verb of speech."""

CONTEXT = 32
"""The number of characters before end punctuation that the rules look at."""

WORD = re.compile(r"[^\s\"'“„”’‘‚«»‹›(\[{—–/]*$")
WITH_STOPS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
ENDING = ("a.m", "p.m")
"""Abbreviations that often end a sentence. They do, unless a lower-case letter follows."""

UNIT = re.compile(r"\d\s?[^\W\d_]$")
DOUBLED = re.compile(r"([^\W\d_])\1$")
DOUBLED_NEXT = re.compile(r"([^\W\d_])\1\.")
"""Spanish doubles the letters of plurals: EE. UU., JJ. OO."""

I_AFTER_A_WORD = re.compile(r"[a-z] I$")

NUMBERED = re.compile(r"([^\W\d_]+)\.?\s\d+$")
ROMAN = re.compile("[IVX]{2,}")
WITH_ORDINALS = frozenset("bs cs da de et fi gsw hr hu is lb lv nb nn no pl sk sl sr sv tr".split())
"""Languages in which "3." may mean "third"."""

ABBREVIATIONS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "bg": "ул бул проф гр инж",
        "ca": "sr sra srta dr dra prof av",
        "cs": "ing mgr bc mudr judr phdr doc prof dr sv ul nám tj tzv např mj resp tzn",
        "da": "hr fr dr prof st nr f.eks ca jf kl tlf pga mht inkl evt",
        "de": "hr fr dr prof dipl nr st hl bzw ca vgl ggf evtl inkl exkl abs abb hrsg geb gest ehem sog zb "
        "mio mrd tel str ev frl bspw zzgl jh dt engl frz lat",
        "el": "κα κος δρ καθ αγ σελ αρ",
        "en": "mr mrs ms mx messrs dr prof rev fr hon pres gov sen rep gen col maj capt cmdr lt sgt cpl pvt "
        "mt st vs approx cf viz",
        "es": "sr sra sres srta dr dra prof dña lic ing av avda núm pág p.ej ej sto sta ud uds gral",
        "et": "hr pr dr prof nt nr lk",
        "fi": "hra rva tri prof toim esim ts ks nro puh",
        "fr": "mm mme mmes mlle mlles dr pr me mgr st ste av cf env tél p.ex",
        "hi": "डॉ श्री प्रो",
        "hr": "gosp dr prof sv ul br npr tj tzv",
        "hu": "dr prof id ifj özv st pl ún ill kb tel",
        "it": "sig sigg sigra sig.ra sig.na dott dott.ssa prof prof.ssa ing avv arch geom on cfr es tel",
        "lt": "dr prof gyv pvz pan tel nr",
        "lv": "dr prof kgs kdze piem tml nr",
        "nl": "dhr mevr mw dr drs prof ir ing mr st nr blz bijv ca incl excl resp tel vgl",
        "no": "hr fr dr prof st nr f.eks ca jf kl tlf pga mht inkl ev",
        "pl": "prof dr hab inż mgr lek ks św ul al pl nr np tzw tzn ww im godz tel zob red",
        "pt": "sr sra srs srta dr dra prof profa eng av núm pág p.ex sto sta exmo exma tel",
        "ro": "dl dna d-na dr prof ing str nr sf",
        "ru": "ул пр пл просп корп проф акад доц им тов гр ср напр тел обл",
        "sk": "ing mgr bc mudr judr phdr doc prof dr sv ul nám tj tzv napr resp",
        "sl": "ga dr prof mag inž sv ul npr tj oz",
        "sv": "hr fr dr prof st nr bl.a t.ex ca jfr kl tel resp inkl exkl",
        "tr": "dr prof doç av sn mah cad sok bkz vb örn",
        "uk": "вул просп пл буд проф акад доц ім гр див напр обл",
    }.items()
}
"""By language, abbreviations that a name or a noun may follow. Abbreviations that often end a sentence, such
as "etc.", are not included: if a lower-case letter follows, the sentence continues anyway."""

ANYWHERE = ABBREVIATIONS["en"] | frozenset(
    "hr sr sra srta dra dott mme mlle bzw ca vgl nr ing mgr ул им".split()
)
"""Abbreviations for languages without a list, and for texts in an unknown language."""

BEFORE_NUMBERS = frozenset(
    "no nos nr núm nro art arts abs fig figs abb sec ch chap kap cap vol bd pp pag pg pág str op tel jan feb "
    "mar apr jun jul aug sep sept oct okt nov dec dez eq § рис стр табл гл".split()
)
"""Abbreviations of all languages that a number may follow."""


def sentences(text: str, language: str = "") -> list[tuple[str, str]]:
    """Split `text` into sentences, each with the whitespace after it. All parts joined are `text` again.

    If `text` begins with whitespace, the first sentence is empty. A line break always ends a sentence.
    `language` is a code such as "de" or "de_AT", or "" if unknown. The time is linear in the length.

        >>> sentences("Dr. Wu is in.  He said: (No.)\\nThen he left.")
        [('Dr. Wu is in.', '  '), ('He said: (No.)', '\\n'), ('Then he left.', '')]
    """
    starts = [0, *_starts(text, iso_code(language)), len(text)]
    result = []
    for start, end in pairwise(starts):
        if start < end:
            sentence = text[start:end].rstrip()
            result.append((sentence, text[start + len(sentence) : end]))
    return result


def _starts(text: str, language: str) -> Iterator[int]:
    """Yield the offset at which each sentence begins, except the first. If `text` begins with whitespace, its
    first sentence is empty, so the offset after the whitespace is yielded too."""
    start = _after_spaces(text, 0)
    if start:
        yield start
    for match in BOUNDARY.finditer(text):
        if match.start() < start:
            continue  # a line break in the whitespace after a sentence
        following = _after_spaces(text, match.end())
        if match["marks"] and not _ends(text, start, match, following, language):
            continue
        yield following
        start = following


def _after_spaces(text: str, position: int) -> int:
    """Return the offset after the whitespace at `position`, which is `position` if there is none."""
    match = SPACES.match(text, position)
    return match.end() if match else position


def _ends(text: str, start: int, match: re.Match[str], following: int, language: str) -> bool:
    """Return whether end punctuation really ends a sentence.

    - `start`: the offset at which the sentence begins.
    - `match`: the match of `BOUNDARY`.
    - `following`: the offset of the text after the punctuation and whitespace.

    It does not if any of these holds:

    - No space follows, except after `DENSE_MARKS` and at the end of the text.
    - A no-break space, a lower-case letter or further end punctuation follows.
    - A clause that names the speaker follows.
    - It is a semicolon, except in Greek, where this is the question mark.
    - No letter or digit is before it.
    - It is the full stop of an abbreviation.
    """
    marks = match["marks"]
    dense = any(mark in DENSE_MARKS for mark in marks)
    greek = language == "el"  # its question mark is a semicolon
    if (";" in marks and not greek) or CONTINUES.match(marks[-1:] + text[following : following + 12]):
        return False
    if following == match.end() and not dense:
        return following == len(text)
    if NO_BREAK_SPACES.fullmatch(text, match.end(), following):
        return False
    # Only `CONTEXT` characters are read, so that the time stays linear in the length of a sentence.
    if not any(map(str.isalnum, text[max(start, match.start() - CONTEXT) : match.start()])):
        return False
    opening = OPENING.match(text, following)
    next_start = opening.end() if opening else following
    ahead = text[next_start : next_start + 1]
    if not ahead or ahead in MARKS or ahead.islower():
        return False
    before = text[max(start, match.start() - CONTEXT) : match.start()].rstrip()
    doubled = DOUBLED.search(before) and DOUBLED_NEXT.match(text, next_start)
    return marks != "." or not (doubled or _abbreviates(before, ahead, language))


def _abbreviates(before: str, ahead: str, language: str) -> bool:
    """Return whether a full stop belongs to an abbreviation, ordinal, Roman numeral or initial.

    `before` is the sentence up to the full stop, without it. `ahead` is the next letter or digit.
    """
    match = WORD.search(before)
    word = match.group() if match else ""
    if word.isdecimal():
        numbered = NUMBERED.search(before)
        ordinal = not numbered or not _precedes_number(numbered[1])
        return len(word) <= 2 and ordinal and (not language or language in WITH_ORDINALS or word == before)
    if len(word) == 1 and word.lower() != word.upper():
        # A single letter is an initial, as in "J. Smith". Exceptions are a unit after a number, as in "5 m.",
        # and the English word "I".
        return not UNIT.search(before) and not I_AFTER_A_WORD.search(before)
    if WITH_STOPS.fullmatch(word):
        return word.casefold() not in ENDING
    if ROMAN.fullmatch(word):
        return language in WITH_ORDINALS
    if ahead.isdigit() and _precedes_number(word):
        return True
    return word.casefold() in ABBREVIATIONS.get(language, ANYWHERE)


def _precedes_number(word: str) -> bool:
    """Return whether a number may follow the abbreviation `word`, such as "no", or a word that ends in
    "str"."""
    return word.casefold() in BEFORE_NUMBERS or word.endswith("str")
