"""Signs that a translation went wrong: it is empty, loops, copies its source, or has an absurd length."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import regex

from nmt_cli.text.languages.sentences import sentences
from nmt_cli.text.placeholders import PLACEHOLDER
from nmt_cli.translation.checks.notes import Noted

Flag = Literal["empty", "looping", "copied", "length", "short", "markup"]

TELLING: dict[Flag, tuple[str, str]] = {
    "empty": ("is empty", "are empty"),
    "looping": ("loops", "loop"),
    "copied": ("copies its source", "copy their source"),
    "length": ("is far longer or shorter than its source", "are far longer or shorter than their source"),
    "short": (
        "lacks sentences of its source (input.sentences=split translates each)",
        "lack sentences of their source (input.sentences=split translates each)",
    ),
    "markup": (
        "lacks or repeats markup, placeholders or addresses of its source",
        "lack or repeat markup, placeholders or addresses of their source",
    ),
}

LOOP_CHARACTERS, LOOP_TIMES = 30, 3
"""In a loop a part occurs at least `LOOP_TIMES` in a row, and at least `LOOP_CHARACTERS` characters
repeat."""

FEWEST_WORDS, COPIED_SHARE = 4, 0.8
"""A translation copies a source of at least `FEWEST_WORDS` ordinary words if it has this share of them."""

LONGEST_RATIO, TINY = 3, 10
"""A length is absurd if one side has more than `LONGEST_RATIO` times the pieces of the other, plus `TINY`."""

SHORTEST_SHARE, FEW = 0.4, 2
"""A length is absurd too if a translation and `FEW` more have less than this share of the pieces to expect:
as many as the source, times the ratio of both languages in training. Of 116,000 captions of Multi30k, either
way and in pieces of SentencePiece, two are shorter: "@@" for a whole sentence."""

SHORT = 0.7
"""A translation with fewer sentences than its source has lost some if it has at most such a share of the
pieces to expect. Where one of two captions is lost, that is seen nine times in ten; of 29,000 that are whole
one is flagged."""

MARKUP = regex.compile(rf"</?[A-Za-z][^<>]*>|{PLACEHOLDER}")
"""Tags, and what may be masked."""

WORD_CHARACTER = regex.compile(r"[\p{L}\p{N}]")
WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|\p{L}[\p{L}\p{M}]*"
)
"""Words of letters; in scripts without blanks, single characters."""


def flags(
    source: str, translation: str, source_pieces: int, pieces: int, length_ratio: float = 1.0
) -> tuple[Flag, ...]:
    """What is wrong with a translation; both texts are as the user sees them, pieces are without end marks.

    `length_ratio` is how many target pieces there are for each of the source, as a rule.
    """
    if not translation.strip():
        return ("empty",) if WORD_CHARACTER.search(source) else ()
    expected = length_ratio * source_pieces
    found: list[tuple[Flag, bool]] = [
        # A source that loops is translated rightly by a loop.
        ("looping", loops(translation) and not loops(source)),
        ("copied", _copies(source, translation)),
        (
            "length",
            _absurd(source_pieces, pieces) or pieces + FEW < SHORTEST_SHARE * expected,
        ),
        ("short", pieces <= SHORT * expected and _loses_sentences(source, translation)),
        ("markup", _changes_markup(source, translation)),
    ]
    return tuple(flag for flag, holds in found if holds)


def loops(text: str) -> bool:
    """Whether some part of `text` is repeated again and again, with nothing in between; linear in its
    length."""
    seen: dict[str, int] = {}
    period = repeated = 0
    for place in range(len(text) - LOOP_CHARACTERS + 1):
        some = text[place : place + LOOP_CHARACTERS]
        # In a loop of period p each window was last seen p characters before.
        distance = place - seen.get(some, place)
        seen[some] = place
        repeated = repeated + 1 if distance == period else LOOP_CHARACTERS
        period = distance
        if period and repeated >= (LOOP_TIMES - 1) * period:
            return True
    return False


def _copies(source: str, translation: str) -> bool:
    """Whether nearly all ordinary words of the source, not numbers nor names, are in the translation."""
    words, translated = WORD.findall(source), WORD.findall(translation)
    # Names and numbers are the same in many languages, so they tell nothing.
    ordinary = {word.casefold() for word in words if not word[0].isupper()}
    if len(ordinary) < FEWEST_WORDS or COPIED_SHARE * len(translated) > len(words):
        return False
    shared = ordinary.intersection(word.casefold() for word in translated)
    return len(shared) >= COPIED_SHARE * len(ordinary)


def _changes_markup(source: str, translation: str) -> bool:
    """Whether a translation has something in the source that must survive less or more often."""
    before, after = (Counter(MARKUP.findall(text)) for text in (source, translation))
    return any(after[one] != count for one, count in before.items())


def _loses_sentences(source: str, translation: str) -> bool:
    before, after = (sum(1 for one, _ in sentences(text) if one) for text in (source, translation))
    return before > after


def _absurd(source_pieces: int, pieces: int) -> bool:
    shorter, longer = sorted((source_pieces, pieces))
    return longer > LONGEST_RATIO * shorter + TINY


@dataclass(slots=True)
class Degenerate:
    """Counts flagged translations, for the end of a run."""

    translations: int = 0
    noted: dict[Flag, Noted] = field(default_factory=lambda: {flag: Noted() for flag in TELLING})

    def add(self, number: int, found: Iterable[Flag]) -> None:
        """Count the translation of line `number`, with the flags `found`, which may be none."""
        self.translations += 1
        for flag in found:
            self.noted[flag].add(number)

    def report(self) -> list[str]:
        """A line for each flag that was raised, such as "3 of 1,000 translations loop: lines 17, 40, 512"."""
        return [
            f"{noted.count:,} of {self.translations:,} translations {TELLING[flag][noted.count > 1]}: {noted}"
            for flag, noted in self.noted.items()
            if noted.count
        ]
