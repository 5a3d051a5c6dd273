"""Which training pairs are left out, and why."""

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence

import regex

from nmt_cli.data.config import FilterConfig
from nmt_cli.errors import UserError
from nmt_cli.text.languages.identify import LanguageCheck
from nmt_cli.text.languages.sentences import sentences

INVALID = "invalid UTF-8"
HELD_OUT = "in a valid or test set"
SCORE = "score too low"
EMPTY = "empty side"
WORDS = "too many words"
RATIO = "word ratio"
IDENTICAL = "identical sides"
SCRIPT = "wrong script"
LETTERS = "too few letters"
MARKUP = "markup"
NUMBERS = "other numbers"
REPEATS = "repetition"
SENTENCES = "other number of sentences"
LANGUAGE = "other language"
DUPLICATE = "duplicate"
SAME_TARGET = "better source of its target"
SAME_SOURCE = "better target of its source"
SUBWORDS = "too many subwords"
REASONS = (
    *(INVALID, HELD_OUT, SCORE, EMPTY, WORDS, RATIO, IDENTICAL, SCRIPT, LETTERS),
    *(MARKUP, NUMBERS, REPEATS, SENTENCES, LANGUAGE),
    *(DUPLICATE, SAME_TARGET, SAME_SOURCE, SUBWORDS),
)
"""In the order in which they are looked for; a pair is counted under the first that applies."""

Check = Callable[[str, str], bool]

TAG = re.compile(
    r"</?[a-z][a-z0-9:]{0,20}(?:\s[^<>]{0,500})?/?>|&(?:[a-z]{2,10}|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE
)
NUMBER = re.compile(r"\d{1,3}(?:[.,' \xa0\u202f]\d{3})+(?!\d)|\d+")
"""Digits, with marks before thousands or without."""

SPELT_OUT = 12
"""Up to this a number may as well be written as a word, so it is not looked at."""

PHRASE = 4
"""Most words, or characters where there are no blanks, of what is repeated."""

LETTER = regex.compile(r"\p{L}")
LETTER_OR_MARK = regex.compile(r"[\p{L}\p{M}]")


class Filters:
    """The filters that look at one pair."""

    def __init__(self, config: FilterConfig, source_lang: str = "", target_lang: str = "") -> None:
        self._config = config
        self._most_words = config.max_words or sys.maxsize
        self._languages = source_lang, target_lang
        self._identified = list(map(LanguageCheck, self._languages)) if config.language else []
        in_source_script = _script("source_script", config.source_script)
        in_target_script = _script("target_script", config.target_script)
        checks: list[tuple[bool, str, Check]] = [
            (config.max_words > 0, WORDS, self.too_long),
            (config.max_ratio > 0, RATIO, self._ratio),
            (config.identical, IDENTICAL, lambda source, target: source == target),
            (config.source_script != "", SCRIPT, lambda source, target: not in_source_script(source)),
            (config.target_script != "", SCRIPT, lambda source, target: not in_target_script(target)),
            (config.min_letters > 0, LETTERS, self._letters),
        ]
        self._checks = _wanted(checks)
        self._raw_checks = _wanted(
            [
                # Each side is prepared by the rules of its language, so copies need not be equal any more.
                (config.identical, IDENTICAL, lambda source, target: source.strip() == target.strip()),
                (config.markup, MARKUP, lambda source, target: any(map(TAG.search, (source, target)))),
                (config.numbers, NUMBERS, lambda source, target: _numbers(source) != _numbers(target)),
                (config.max_repeats > 0, REPEATS, self._repeats),
                (config.sentences, SENTENCES, self._sentences),
                (config.language, LANGUAGE, self._language),
            ]
        )

    def too_long(self, source: str, target: str) -> bool:
        """Whether a side has too many words, before or after punctuation is split off."""
        most = self._most_words
        # No text has more words than characters: most need not be split.
        return (len(source) > most and len(source.split()) > most) or (
            len(target) > most and len(target.split()) > most
        )

    def too_low(self, score: float) -> bool:
        """Whether a pair of this score is left out; one without a number is not."""
        return self._config.min_score != 0 and score < self._config.min_score

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair of prepared text is left out; None keeps it."""
        if not (source and target):
            return EMPTY
        for reason, holds in self._checks:
            if holds(source, target):
                return reason
        return None

    def raw_reason(self, source: str, target: str) -> str | None:
        """`reason` of those filters that look at text as people write it."""
        for reason, holds in self._raw_checks:
            if holds(source, target):
                return reason
        return None

    def _repeats(self, source: str, target: str) -> bool:
        return any(_most_repeats(text) > self._config.max_repeats for text in (source, target))

    def _sentences(self, source: str, target: str) -> bool:
        counts = {
            len(sentences(text.strip(), lang))
            for text, lang in zip((source, target), self._languages, strict=True)
        }
        return len(counts) > 1

    def _language(self, source: str, target: str) -> bool:
        return any(check.wrong(text) for check, text in zip(self._identified, (source, target), strict=True))

    def _ratio(self, source: str, target: str) -> bool:
        # Prepared text has single blanks between words; counting them is faster than splitting.
        fewer, more = sorted((source.count(" ") + 1, target.count(" ") + 1))
        return more > self._config.max_ratio * fewer

    def _letters(self, source: str, target: str) -> bool:
        return min(_letter_share(source), _letter_share(target)) < self._config.min_letters


def _wanted(checks: Sequence[tuple[bool, str, Check]]) -> list[tuple[str, Check]]:
    return [(reason, holds) for wanted, reason, holds in checks if wanted]


def _numbers(text: str) -> list[str]:
    """The numbers in a text that nobody spells out, by size: 1,000.50 and 1.000,50 are the same."""
    found = []
    for match in NUMBER.finditer(text):
        digits = "".join(str(unicodedata.decimal(digit)) for digit in match[0] if digit.isdecimal()).lstrip(
            "0"
        )
        if len(digits) > 2 or int(digits or 0) > SPELT_OUT:
            found.append(digits)
    return sorted(found)


def _most_repeats(text: str) -> int:
    """How many times the same few words, or characters of a text without blanks, follow each other."""
    words: Sequence[str] = text.split()
    if len(words) == 1:
        words = text.strip()
    most = 1
    for length in range(1, PHRASE + 1):
        run = 0
        for word, before in zip(words[length:], words, strict=False):
            run = run + 1 if word == before else 0
            most = max(most, 1 + run // length)
    return most


def _letter_share(text: str) -> float:
    # Never divides by zero: empty sides were found before. Marks count, since scripts such as Devanagari
    # write vowels with them.
    return len(LETTER_OR_MARK.findall(text)) / len(text.replace(" ", ""))


def _script(setting: str, name: str) -> Callable[[str], bool]:
    """A check whether at least half of a text's letters are in the script `name`; `setting` is for the
    message."""
    if not name:
        return lambda text: True
    try:
        inside = regex.compile(rf"[\p{{L}}&&\p{{Script={name}}}]", regex.VERSION1)
    except regex.error as error:
        raise UserError(
            f"[filter]: {setting} is {name!r}, which is no Unicode script; take Latin, say."
        ) from error

    def in_script(text: str) -> bool:
        return bool(2 * len(inside.findall(text)) >= len(LETTER.findall(text)))

    return in_script
