"""Which training pairs are left out, and why."""

from collections.abc import Callable

import regex

from nmt_cli.data.config import FilterConfig
from nmt_cli.errors import UserError

INVALID = "invalid UTF-8"
EMPTY = "empty side"
WORDS = "too many words"
RATIO = "word ratio"
IDENTICAL = "identical sides"
SCRIPT = "wrong script"
LETTERS = "too few letters"
DUPLICATE = "duplicate"
SUBWORDS = "too many subwords"
REASONS = (INVALID, EMPTY, WORDS, RATIO, IDENTICAL, SCRIPT, LETTERS, DUPLICATE, SUBWORDS)
"""In the order in which they are looked for; a pair is counted under the first that applies."""

Check = Callable[[str, str], bool]

LETTER = regex.compile(r"\p{L}")
LETTER_OR_MARK = regex.compile(r"[\p{L}\p{M}]")


class Filters:
    """The filters that look at one pair of prepared text."""

    def __init__(self, config: FilterConfig) -> None:
        self._config = config
        in_source_script = _script("source_script", config.source_script)
        in_target_script = _script("target_script", config.target_script)
        checks: list[tuple[bool, str, Check]] = [
            (True, EMPTY, lambda source, target: not (source and target)),
            (config.max_words > 0, WORDS, self._words),
            (config.max_ratio > 0, RATIO, self._ratio),
            (config.identical, IDENTICAL, lambda source, target: source == target),
            (config.source_script != "", SCRIPT, lambda source, target: not in_source_script(source)),
            (config.target_script != "", SCRIPT, lambda source, target: not in_target_script(target)),
            (config.min_letters > 0, LETTERS, self._letters),
        ]
        self._checks = [(reason, holds) for wanted, reason, holds in checks if wanted]

    def too_long(self, text: str) -> bool:
        """Whether a side has too many words, before or after punctuation is split off."""
        most = self._config.max_words
        # No text has more words than characters: most need not be split.
        return bool(most) and len(text) > most and len(text.split()) > most

    def reason(self, source: str, target: str) -> str | None:
        """Why the pair is left out; None keeps it."""
        return next((reason for reason, holds in self._checks if holds(source, target)), None)

    def _words(self, source: str, target: str) -> bool:
        return self.too_long(source) or self.too_long(target)

    def _ratio(self, source: str, target: str) -> bool:
        # Prepared text has single blanks between words; counting them is faster than splitting.
        fewer, more = sorted((source.count(" ") + 1, target.count(" ") + 1))
        return more > self._config.max_ratio * fewer

    def _letters(self, source: str, target: str) -> bool:
        return min(_letter_share(source), _letter_share(target)) < self._config.min_letters


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
