"""Where the sentences of a text end, by rules: marks, what stands before them, and what follows."""

import re
from collections.abc import Iterator
from itertools import pairwise

from nmt_cli.language import without_region

CLOSING = "\"'”’“»«›‹)\\]}」』）】》〉〟"
"""Quotes and brackets; some open in one language and close in another, and right behind a mark they close."""

MARKS = ".!?;…‥؟۔।॥։።\u037e\u17d4\u17d5"
DENSE_MARKS = "。！？｡।॥"
"""Those that end a sentence also where no blank follows."""

BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""What some program takes for the end of a line: it always ends a sentence."""

PLACE = re.compile(
    rf"(?P<marks>[{MARKS}{DENSE_MARKS}](?:(?<![{DENSE_MARKS}”’」])[“‘]|(?![“‘])[{MARKS}{DENSE_MARKS}{CLOSING}])*+)"
    rf"(?:[ \xa0\u202f][»›](?=\s|$))?|[{BREAKS}]"
)
"""Where a sentence may end: a run of marks with all that closes, or a break. Runs are matched whole, so that
no character is looked at more than a few times. French has a blank before the quote that closes, and after a
Chinese full stop “ opens a quotation."""

BLANKS = re.compile(r"\s*+")
FIXED_BLANKS = re.compile("[\xa0\u202f\u2007]+$")
"""They join what stands around them."""

OPENING = re.compile(r"[\s\"'“„”’‘‚«»‹›(\[{¿¡—–\-•*「『（【《〈]*+")
GOES_ON = re.compile(
    "[」』”’〟](?:と|って|[\u4e00-\u9fff]{0,8}?(?:[说說问問喊叫答想]|(?<!知)道)[道着著]?[。，：！？])"
)
"""Japanese and Chinese name the speaker after the quotation. A Chinese clause of up to 9 characters that ends
in a verb of speech does so."""

BEFORE = 32
"""Characters before the marks that may decide whether they end a sentence."""

WORD = re.compile(r"[^\s\"'“„”’‘‚«»‹›(\[{—–/]*$")
WITH_STOPS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
ENDING = ("a.m", "p.m")
"""They end a sentence as often as not, and then no small letter follows."""

UNIT = re.compile(r"\d\s?[^\W\d_]$")
DOUBLED = re.compile(r"([^\W\d_])\1$")
DOUBLED_NEXT = re.compile(r"([^\W\d_])\1\.")
"""Spanish doubles the letters of plurals: EE. UU., JJ. OO."""

I_AFTER_A_WORD = re.compile(r"[a-z] I$")

NUMBERED = re.compile(r"([^\W\d_]+)\.?\s\d+$")
ROMAN = re.compile("[IVX]{2,}")
WITH_ORDINALS = frozenset("bs cs da de et fi gsw hr hu is lb lv nb nn no pl sk sl sr sv tr".split())
"""Languages in which "3." may be "third"."""

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
"""By language, words that a full stop shortens and that a name or a noun may follow. What ends a sentence as
often as not, such as "etc.", is not among them: a small letter that follows it tells enough."""

ANYWHERE = ABBREVIATIONS["en"] | frozenset(
    "hr sr sra srta dra dott mme mlle bzw ca vgl nr ing mgr ул им".split()
)
"""Those of languages without a list, and of texts in nobody knows which."""

BEFORE_NUMBERS = frozenset(
    "no nos nr núm nro art arts abs fig figs abb sec ch chap kap cap vol bd pp pag pg pág str op tel jan feb "
    "mar apr jun jul aug sep sept oct okt nov dec dez eq § рис стр табл гл".split()
)
"""In any language, words that a full stop shortens where a number follows."""


def sentences(text: str, language: str = "") -> list[tuple[str, str]]:
    """The sentences of `text`, each with the blanks behind it; joined they are `text` again.

    Blanks at the start of the text are behind an empty sentence. A line break ends a sentence. `language` is
    a code such as "de" or "de_AT"; time is linear in the length.

    >>> sentences("Dr. Wu is in.  He said: (No.)\\nThen he left.")
    [('Dr. Wu is in.', '  '), ('He said: (No.)', '\\n'), ('Then he left.', '')]
    """
    places = [0, *_starts(text, without_region(language)), len(text)]
    found = []
    for start, end in pairwise(places):
        if start < end:
            sentence = text[start:end].rstrip()
            found.append((sentence, text[start + len(sentence) : end]))
    return found


def _starts(text: str, language: str) -> Iterator[int]:
    """Where all sentences but the first start."""
    start = _behind_blanks(text, 0)
    if start:
        yield start
    place = start
    for match in PLACE.finditer(text):
        if match.start() < place:
            continue  # a break among blanks that are behind a sentence already
        following = _behind_blanks(text, match.end())
        if match["marks"] and not _ends(text, start, match, following, language):
            continue
        yield following
        start = place = following


def _behind_blanks(text: str, place: int) -> int:
    match = BLANKS.match(text, place)
    return match.end() if match else place


def _ends(text: str, start: int, match: re.Match[str], following: int, language: str) -> bool:
    """Return whether the sentence from `start` ends with these marks; the next would begin at `following`."""
    marks = match["marks"]
    dense = any(mark in DENSE_MARKS for mark in marks)
    greek = language == "el"  # whose question mark is a semicolon
    if (";" in marks and not greek) or GOES_ON.match(marks[-1:] + text[following : following + 12]):
        return False
    if following == match.end() and not dense:
        return following == len(text)
    if FIXED_BLANKS.fullmatch(text, match.end(), following):
        return False
    if not any(map(str.isalnum, text[max(start, match.start() - BEFORE) : match.start()])):
        return False
    opening = OPENING.match(text, following)
    behind = opening.end() if opening else following
    ahead = text[behind : behind + 1]
    if not ahead or ahead in MARKS or ahead.islower():
        return False
    before = text[max(start, match.start() - BEFORE) : match.start()].rstrip()
    doubled = DOUBLED.search(before) and DOUBLED_NEXT.match(text, behind)
    return marks != "." or not (doubled or _shortens(before, ahead, language))


def _shortens(before: str, ahead: str, language: str) -> bool:
    """Whether a full stop behind `before`, all there is of the sentence or the end of it, is no end of it.

    `ahead` is the first letter or digit of what follows.
    """
    match = WORD.search(before)
    word = match.group() if match else ""
    if word.isdecimal():
        what = NUMBERED.search(before)
        counts = not what or not _wants_number(what[1])
        return len(word) <= 2 and counts and (not language or language in WITH_ORDINALS or word == before)
    if len(word) == 1 and word.lower() != word.upper():
        return not UNIT.search(before) and not I_AFTER_A_WORD.search(before)
    if WITH_STOPS.fullmatch(word):
        return word.casefold() not in ENDING
    if ROMAN.fullmatch(word):
        return language in WITH_ORDINALS
    if ahead.isdigit() and _wants_number(word):
        return True
    return word.casefold() in ABBREVIATIONS.get(language, ANYWHERE)


def _wants_number(word: str) -> bool:
    return word.casefold() in BEFORE_NUMBERS or word.endswith("str")
