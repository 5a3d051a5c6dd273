"""The filters of training pairs: which pairs are dropped, and for what reason.

Some filters judge prepared text, which is normalised and split into words. Others judge raw text.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable

import regex

from nmt_cli.data.config import FilterConfig
from nmt_cli.errors import UserError
from nmt_cli.text.languages.identify import LanguageCheck
from nmt_cli.text.languages.sentence_splitting import sentences

INVALID = "invalid UTF-8"
HELD_OUT = "in a valid or test set"
SCORE = "score too low"
EMPTY = "empty side"
WORDS = "too many words"
RATIO = "word ratio"
IDENTICAL = "identical sides"
SCRIPT = "wrong script"
MARKUP = "markup"
NUMBERS = "other numbers"
SENTENCES = "other number of sentences"
LANGUAGE = "other language"
DUPLICATE = "duplicate"
SAME_TARGET = "better source of its target"
SUBWORDS = "too many subwords"
ORDER = (
    INVALID,
    HELD_OUT,
    SCORE,
    EMPTY,
    WORDS,
    RATIO,
    IDENTICAL,
    SCRIPT,
    MARKUP,
    NUMBERS,
    SENTENCES,
    LANGUAGE,
    SUBWORDS,
    DUPLICATE,
    SAME_TARGET,
)
"""All reasons, in the order of the checks. A pair counts for the first reason that applies."""

Check = Callable[[str, str], bool]

TAG = re.compile(
    r"</?[a-z][a-z0-9:]{0,20}(?:\s[^<>]{0,500})?/?>|&(?:[a-z]{2,10}|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE
)
NUMBER = re.compile(r"\d{1,3}(?:[.,' \xa0\u202f]\d{3})+(?!\d)|\d+")
"""Digits, with or without separators of thousands."""

SPELLED_OUT = 12
"""Numbers up to this one are often written as words, so they are not compared."""

SCRIPT_NAME = re.compile(r"[A-Za-z][A-Za-z_ -]*")
"""The form of a Unicode script's name. Other characters would be a part of the pattern."""

LETTER = regex.compile(r"\p{L}")


def in_order(reasons: Iterable[str]) -> list[str]:
    """Return each of `reasons` once, in the order of the checks. Reasons that `ORDER` lacks come last."""
    # From what was counted, so that no reason can be missing in a report.
    places = {reason: place for place, reason in enumerate(ORDER)}
    return sorted({*reasons}, key=lambda reason: (places.get(reason, len(ORDER)), reason))


class Filters:
    """The filters that look at each pair alone. Filters that the settings turn off are left out."""

    def __init__(self, config: FilterConfig, source_lang: str = "", target_lang: str = "") -> None:
        """Choose the filters. The two languages are needed by the filters of sentences and languages.

        Raise `UserError` for an unknown script, or if the filter of languages is on and py3langid is not
        installed.
        """
        self._config = config
        self._max_words = config.max_words or sys.maxsize
        languages = source_lang, target_lang
        identified = [*map(LanguageCheck, languages)] if config.language else []
        in_source_script = _script("source_script", config.source_script)
        in_target_script = _script("target_script", config.target_script)
        checks: list[tuple[object, str, Check]] = [
            (config.max_words, WORDS, self.too_long),
            (config.max_ratio, RATIO, self._unequal_lengths),
            (config.identical, IDENTICAL, lambda source, target: source == target),
            (config.source_script, SCRIPT, lambda source, target: not in_source_script(source)),
            (config.target_script, SCRIPT, lambda source, target: not in_target_script(target)),
        ]
        raw_checks: list[tuple[object, str, Check]] = [
            # Preparation follows the language of each side, so it can make copies differ.
            (config.identical, IDENTICAL, lambda source, target: source.strip() == target.strip()),
            (config.markup, MARKUP, lambda *pair: any(map(TAG.search, pair))),
            (config.numbers, NUMBERS, lambda source, target: _numbers(source) != _numbers(target)),
            (config.sentences, SENTENCES, lambda *pair: len({*map(_sentence_count, pair, languages)}) > 1),
            # Short text and unsupported languages pass.
            (config.language, LANGUAGE, lambda *pair: any(map(LanguageCheck.wrong, identified, pair))),
        ]
        self._checks = [(reason, holds) for setting, reason, holds in checks if setting]
        self._raw_checks = [(reason, holds) for setting, reason, holds in raw_checks if setting]

    def too_long(self, source: str, target: str) -> bool:
        """Return whether one of the sides has more than `max_words` words. The text may be raw or
        prepared."""
        limit = self._max_words
        # No text has more words than characters, so few texts need to be split.
        return any(len(text) > limit and len(text.split()) > limit for text in (source, target))

    def too_low(self, score: float) -> bool:
        """Return whether a score is below `min_score`. A missing score is not, nor is any if `min_score` is
        0."""
        return self._config.min_score != 0 and score < self._config.min_score

    def reason(self, source: str, target: str) -> str | None:
        """Return the first reason to drop a pair of prepared text, or None."""
        if not (source and target):
            return EMPTY
        return next((reason for reason, holds in self._checks if holds(source, target)), None)

    def raw_reason(self, source: str, target: str) -> str | None:
        """Return the first reason to drop a pair of raw text, or None."""
        return next((reason for reason, holds in self._raw_checks if holds(source, target)), None)

    def _unequal_lengths(self, source: str, target: str) -> bool:
        """Return whether one side has more than `max_ratio` times the words of the other."""
        # Prepared text has single spaces between words. Counting them is faster than splitting.
        fewer, more = sorted((source.count(" ") + 1, target.count(" ") + 1))
        return more > self._config.max_ratio * fewer


def _sentence_count(text: str, lang: str) -> int:
    return len(sentences(text.strip(), lang))


def _numbers(text: str) -> list[str]:
    """Return the numbers in `text` above `SPELLED_OUT`, as texts in ASCII digits, sorted.

    Separators of thousands and leading zeros are left out. A decimal point ends a number.
    """
    numbers = []
    for match in NUMBER.finditer(text):
        digits = "".join(str(unicodedata.decimal(digit)) for digit in match[0] if digit.isdecimal()).lstrip(
            "0"
        )
        # By their number first, because `int` raises an error for thousands of digits.
        if len(digits) > 2 or int(digits or 0) > SPELLED_OUT:
            numbers.append(digits)
    return sorted(numbers)


def _script(setting: str, name: str) -> Callable[[str], bool]:
    """Return a check whether at least half of a text's letters are in the script `name`. A text without
    letters passes.

    If `name` is "", every text passes. Raise `UserError`, which names `setting`, for an unknown script.
    """
    if not name:
        return lambda text: True
    try:
        if not SCRIPT_NAME.fullmatch(name):
            raise regex.error("not a plain name")
        # An intersection of sets (&&) needs version 1 of its syntax.
        inside = regex.compile(rf"[\p{{L}}&&\p{{Script={name}}}]", regex.VERSION1)
    except regex.error as error:
        raise UserError(
            f"filter.{setting} is {name!r}, which is not a Unicode script. Use one name, such as Latin."
        ) from error

    return lambda text: bool(2 * len(inside.findall(text)) >= len(LETTER.findall(text)))
