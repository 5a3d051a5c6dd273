"""Language names: "de", or "de-AT" with a region, or "zh_Hant_TW" with a script. ISO 639-3 has "deu"."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

THREE_LETTERS = dict(
    pair.split(":")
    for pair in (
        "aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel "
        "bg:bul bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces cu:chu "
        "cv:chv cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas "
        "ff:ful fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb "
        "hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido "
        "is:isl it:ita iu:iku ja:jpn jv:jav ka:kat kg:kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor "
        "kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir la:lat lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub "
        "lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya na:nau nb:nob nd:nde "
        "ne:nep ng:ndo nl:nld nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:oji om:orm or:ori os:oss pa:pan "
        "pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus rw:kin sa:san sc:srd sd:snd se:sme "
        "sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp ss:ssw st:sot su:sun sv:swe sw:swa "
        "ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah "
        "ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid yo:yor za:zha zh:zho "
        "zu:zul"
    ).split()
)
"""ISO 639-3 codes by the two-letter code of the same language."""

TWO_LETTERS = {three: two for two, three in THREE_LETTERS.items()}
TWO_LETTERS |= dict(
    pair.split(":")
    for pair in (
        "als:sq arb:ar ayr:ay azj:az ekk:et gaz:om khk:mn kmr:ku lvs:lv npi:ne ory:or pbt:ps pes:fa plt:mg "
        "quy:qu swh:sw uzn:uz ydd:yi zsm:ms"
    ).split()
)
"""Two-letter codes by the ISO 639-3 code of the same language, or of its main variety, as in NLLB: "arb"
is Standard Arabic."""


NAMES = dict(
    entry.split(" ", 1)
    for entry in (
        "af Afrikaans, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca "
        "Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es "
        "Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, ga Irish, gl Galician, gu "
        "Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, hy Armenian, id Indonesian, is "
        "Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, la "
        "Latin, lo Lao, lt Lithuanian, lv Latvian, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, "
        "ms Malay, mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali, nl Dutch, nn Norwegian "
        "Nynorsk, no Norwegian, pa Punjabi, pl Polish, ps Pashto, pt Portuguese, ro Romanian, ru Russian, "
        "si Sinhala, sk Slovak, sl Slovenian, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, "
        "te Telugu, th Thai, tl Tagalog, tr Turkish, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, xh "
        "Xhosa, yi Yiddish, zh Chinese, zu Zulu"
    ).split(", ")
)
"""The English name of each language by its two-letter code."""


SCRIPTS = {"cn": "hans", "sg": "hans", "hk": "hant", "mo": "hant", "tw": "hant"}
"""The script of Chinese in each region."""


def without_region(lang: str) -> str:
    """Return the language of `lang` in lower case, without region and script: "zh" for "zh_Hant_TW"."""
    return re.split("[-_]", lang.lower())[0]


def iso_code(lang: str) -> str:
    """Return `lang` in lower case without region, as a two-letter code if there is one: "de" for "deu-AT"."""
    code = without_region(lang)
    return TWO_LETTERS.get(code, code)


def fits(label: str, lang: str) -> bool:
    """Return whether text labelled `label` can be used as language `lang`. Two regions must agree, and case
    does not matter: "de" and "deu" fit "de_AT" and vice versa, but "de-DE" does not fit "de_AT"."""
    parts = (name.lower().replace("_", "-").partition("-") for name in (label, lang))
    label, lang = (iso_code(language) + dash + region for language, dash, region in parts)
    return label in (lang, without_region(lang)) or without_region(label) == lang


def name_of(language: str) -> str:
    """Return the English name of a language without its region, or `language` itself if no name is known."""
    return NAMES.get(iso_code(language), language)


def language_in(names: Iterable[str], wanted: str) -> str | None:
    """Return the name in `names` that means the language `wanted`, or None.

    A name that is equal but for case and "_" comes first. Otherwise it is a name of the language, with any
    region or script: "en" for "EN-US", and "deu_Latn" for "de". Of several, that with the same script or
    region is preferred ("zho_Hant" for "zh-TW"), then one without either, then the first.
    """
    spelt = {name.lower().replace("_", "-"): name for name in names}
    written = wanted.lower().replace("_", "-")
    same = [name for name in spelt if iso_code(name) == iso_code(wanted)]
    # The earliest of several best ones.
    nearest = max(
        same, key=lambda name: (len(_variants(name) & _variants(written)), "-" not in name), default=None
    )
    return spelt.get(written) or (spelt[nearest] if nearest else None)


def _variants(name: str) -> set[str]:
    """Return the scripts and regions in the name of a language, in lower case with "-"."""
    _, *variants = name.split("-")
    return {*variants, *(SCRIPTS[region] for region in variants if region in SCRIPTS)}


def nearest_language(wanted: str, names: Iterable[str]) -> str:
    """Return "did you mean X?" with the name in `names` most similar to `wanted`, which may be an English
    name. Return "" if none is similar."""
    spelt = {name.lower(): name for name in names}
    choices = spelt | {name_of(name).lower(): name for name in spelt.values()}
    similar = get_close_matches(wanted.lower(), choices, n=1, cutoff=0.7)
    # Of short codes, a wrong letter makes half of the name.
    similar += [name for name in spelt if wanted and name[:2] == wanted.lower()[:2]]
    return f"did you mean {choices[similar[0]]}?" if similar else ""
