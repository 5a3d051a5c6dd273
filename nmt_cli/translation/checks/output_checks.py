"""Signs that a translation is wrong: empty, a loop, a copy of its source, or of an implausible length."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Literal

import regex

from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.text.languages.sentence_splitting import sentences
from nmt_cli.text.placeholders import PLACEHOLDER
from nmt_cli.translation.checks.notes import Noted

Flag = Literal["empty", "looping", "copied", "length", "short", "markup", "terms"]

SIGNS: dict[Flag, tuple[str, str]] = {
    "empty": ("is empty", "are empty"),
    "looping": ("loops", "loop"),
    "copied": ("copies its source", "copy their source"),
    "length": ("is far longer or shorter than its source", "are far longer or shorter than their source"),
    "short": ("lacks sentences of its source", "lack sentences of their source"),
    "markup": (
        "lacks or repeats markup, placeholders or addresses of its source",
        "lack or repeat markup, placeholders or addresses of their source",
    ),
    "terms": (
        "has a glossary term that the model would not write, which may damage the sentence (check it)",
        "have a glossary term that the model would not write, which may damage the sentence (check them)",
    ),
}

LOOP_CHARACTERS, LOOP_TIMES = 30, 3
"""A loop has at least `LOOP_TIMES` equal parts in a row and repeats at least `LOOP_CHARACTERS` characters."""

MIN_WORDS, COPIED_SHARE = 4, 0.8
"""A translation copies a source of at least `MIN_WORDS` ordinary words if it has this fraction of them."""

MAX_RATIO, TINY = 3, 10
"""A length is implausible if one side has more than `MAX_RATIO` times the other's tokens, plus `TINY`."""

MIN_SHARE, FEW = 0.4, 2
"""A length is also implausible if the tokens of the translation plus `FEW` are less than this fraction of the
expected number. That is the number of source tokens times the length ratio in training. Of the 116,000
captions of Multi30k, in both directions and as SentencePiece tokens, two are shorter: "@@" for a sentence."""

SHORT = 0.7
"""A translation with fewer sentences than its source lacks some if it is also short. It then has at most this
fraction of the expected tokens. This detects nine of ten lost captions, and flags one of 29,000 complete
ones."""

UNLIKELY = log(0.001)
"""Maximum log-probability of a token that is written only because a glossary requires it. Of the sentences
of the demo, 162 of 163 that a term damaged had such a token, and none of 21 that had the term anyway."""

MARKUP = regex.compile(rf"</?[A-Za-z][^<>]*>|{PLACEHOLDER}")
"""Tags and placeholders."""

WORD_CHARACTER = regex.compile(r"[\p{L}\p{N}]")
WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|\p{L}[\p{L}\p{M}]*"
)
"""Words of letters. In scripts without spaces, single characters."""


def flags(
    source: str, translation: str, source_pieces: int, pieces: int, length_ratio: float = 1.0
) -> tuple[Flag, ...]:
    """Return the signs that a translation is wrong: some of "empty", "looping", "copied", "length", "short"
    and "markup", in this order.

    source, translation: raw texts.
    source_pieces, pieces: their numbers of tokens, without end tokens.
    length_ratio: the usual number of target tokens for a source token.

    An empty translation has only "empty", or no sign if the source has no words.
    """
    if not translation.strip():
        return ("empty",) if WORD_CHARACTER.search(source) else ()
    expected = length_ratio * source_pieces
    shorter, longer = sorted((source_pieces, pieces))
    implausible = longer > MAX_RATIO * shorter + TINY or pieces + FEW < MIN_SHARE * expected
    markup, kept = (Counter(MARKUP.findall(text)) for text in (source, translation))
    signs: list[tuple[Flag, bool]] = [
        # The correct translation of a loop is a loop.
        ("looping", loops(translation) and not loops(source)),
        ("copied", _copies(source, translation)),
        ("length", implausible),
        ("short", pieces <= SHORT * expected and _sentence_count(source) > _sentence_count(translation)),
        ("markup", any(kept[one] != count for one, count in markup.items())),
    ]
    return tuple(flag for flag, holds in signs if holds)


def terms_flag(token_scores: Sequence[float]) -> tuple[Flag, ...]:
    """Return the flag "terms" if a token was written only because a glossary requires it: its log-probability
    is at most `UNLIKELY`. `token_scores` has the log-probabilities of a sentence with terms."""
    return ("terms",) if min(token_scores, default=0.0) <= UNLIKELY else ()


def check_finite(number: int, finite: bool, in_fp16: bool) -> None:
    """Raise `UserError` if the log-probabilities of line `number` are not `finite` in fp16."""
    if in_fp16 and not finite:
        raise UserError(
            f"line {number:,}: its log-probabilities are not finite with --precision fp16, because values of "
            "the model exceed 65,504. Use --precision bf16 or fp32."
        )


def loops(text: str) -> bool:
    """Return whether a part of `text` is repeated: at least `LOOP_TIMES` times in a row, without a gap.

    Count the characters of all repetitions after the first occurrence. With fewer than `LOOP_CHARACTERS` of
    them, as in "ha ha ha", the result is False. The parts need not be words. The time is linear in the length
    of `text`.
    """
    seen: dict[str, int] = {}
    period = repeated = 0
    for position in range(len(text) - LOOP_CHARACTERS + 1):
        window = text[position : position + LOOP_CHARACTERS]
        # In a loop of period p, each window last occurred p characters before.
        distance = position - seen.get(window, position)
        seen[window] = position
        repeated = repeated + 1 if distance == period else LOOP_CHARACTERS
        period = distance
        if period and repeated >= (LOOP_TIMES - 1) * period:
            return True
    return False


def _copies(source: str, translation: str) -> bool:
    """Return whether the translation is a copy: it has at least `COPIED_SHARE` of the distinct words of the
    source.

    Capitalised words do not count, since names are equal in many languages, and neither do tags, placeholders
    and addresses. A source with fewer than `MIN_WORDS` other words has no copy.
    Neither has one whose translation has over 1.25 times as many words.
    """
    words, translated = (WORD.findall(MARKUP.sub(" ", text)) for text in (source, translation))
    ordinary = {word.casefold() for word in words if not word[0].isupper()}
    if len(ordinary) < MIN_WORDS or COPIED_SHARE * len(translated) > len(words):
        return False
    shared = ordinary.intersection(word.casefold() for word in translated)
    return len(shared) >= COPIED_SHARE * len(ordinary)


def _sentence_count(text: str) -> int:
    return sum(1 for sentence, _ in sentences(text) if sentence)


def _remedy(flag: Flag, config: TranslateConfig) -> str:
    """Return a setting against a flag in parentheses, or "" if there is none or it is set already."""
    if flag == "empty" and not config.search.min_length:
        return " (search.min_length=1 prevents this)"
    if flag in ("looping", "copied") and not config.search.second_attempt:
        return " (search.second_attempt=true tries again)"
    if flag == "short" and config.input.sentences == "keep":
        return " (input.sentences=split translates each)"
    return ""


@dataclass(slots=True)
class Degenerate:
    """Counts of translations and of their flags, for a report at the end of a run."""

    config: TranslateConfig
    """The settings of the run, so that the report suggests no setting that it has."""

    translations: int = 0
    repaired: Noted = field(default_factory=Noted)
    """Translations that replace one that looped or copied its source."""

    noted: dict[Flag, Noted] = field(default_factory=lambda: {flag: Noted() for flag in SIGNS})

    def add(self, number: int, raised: Iterable[Flag], repaired: bool = False) -> None:
        """Count the translation of line `number`. `raised` has its flags."""
        self.translations += 1
        if repaired:
            self.repaired.add(number)
        for flag in raised:
            self.noted[flag].add(number)

    def report(self) -> list[str]:
        """Return one line per flag that occurred: "3 of 1,000 translations loop: lines 17, 40, 512".

        The last line is about repaired translations, if there are any.
        """
        noted = [
            (SIGNS[flag][lines.count > 1] + _remedy(flag, self.config), lines)
            for flag, lines in self.noted.items()
        ]
        noted.append(("looped or copied at first and were replaced", self.repaired))
        return [
            f"{lines.count:,} of {self.translations:,} translations {what}: {lines}"
            for what, lines in noted
            if lines.count
        ]
