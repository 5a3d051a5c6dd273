"""A line on its way: cut into sentences, then joined to candidates, then a translation.

The types of a sentence, `Sentence` and `Hypothesis`, are those of the search. One hypothesis of each
sentence, joined, is a candidate: a translation of the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt_cli.decoding.search.hypotheses import Hypothesis, Scored, Sentence
from nmt_cli.errors import UserError
from nmt_cli.text.tag_placement import Shares
from nmt_cli.translation.checks.output_checks import Flag

MAX_PARTS = 1 << 20
"""Maximum number of sentences per line. The key of a sentence is `line number * MAX_PARTS + index`."""


def line_number(sentence: Sentence) -> int:
    """Return the number of the line, from 1, that `sentence` is part of."""
    return sentence.key // MAX_PARTS


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input, cut into the sentences to translate."""

    number: int
    """From 1."""

    raw: str
    sentences: Sequence[Sentence]
    """Empty for a line without words. Several if the line is too long or `input.sentences` is "split"."""

    pieces: int
    """Number of subword tokens of the complete line, without end tokens."""

    too_long: bool
    """Whether some sentence had more tokens than the model accepts, and was split, cut or skipped."""

    prefix_unknown: bool
    """Whether the required beginning of the translation contains an unknown token."""


FinishedLine = tuple[Line, Sequence[Sequence[Hypothesis] | None]]
"""A line and the hypotheses of each of its sentences. None means that a sentence did not fit into memory."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidate(Scored):
    """A translation of a complete line, joined from one hypothesis per sentence."""

    text: str
    score: float
    """The sum of the scores of `parts`. A score is the log-probability divided by the length penalty."""

    parts: Sequence[Hypothesis]
    """One hypothesis for each sentence of the line, in order."""

    def __repr__(self) -> str:
        return f"<Candidate {self.text!r}, score {self.score:.3f}>"

    @property
    def rank_score(self) -> float | None:
        """The mean of the scores that ranked `parts`, or None if `score` did."""
        scores = [part.rank_score for part in self.parts if part.rank_score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True, slots=True, repr=False)
class Translation:
    """A line, its translations, and signs that the best translation is wrong."""

    line: Line
    candidates: Sequence[Candidate]
    """Best first. Empty for a line without words and for a line that failed."""

    flags: Sequence[Flag]
    """Signs that the best candidate is wrong, such as "looping"."""

    failed: bool
    """Whether some sentence of the line did not fit into memory, even alone. Then there are no candidates."""

    shares: Shares = ()
    """The alignment of the best candidate, if requested."""

    confidence: float = 0.0
    """From 0 to 1: the probability that the best candidate is good, if the model is calibrated. Otherwise the
    geometric mean of its token probabilities. 1 for a line without words, 0 without a candidate."""

    def __repr__(self) -> str:
        signs = ", ".join(("failed", *self.flags) if self.failed else self.flags)
        return f"<Translation {self.text!r}, confidence {self.confidence:.2f}{signs and f', {signs}'}>"

    @property
    def repaired(self) -> bool:
        """Whether a part of the best candidate replaces one that looped or copied its source
        (`search.second_attempt`)."""
        return any(part.repaired for candidate in self.candidates[:1] for part in candidate.parts)

    @property
    def text(self) -> str:
        """The text of the best candidate, or "" if there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def checked_text(self) -> str:
        """The text of the best candidate, or "". Raise `UserError` if the line did not fit into memory."""
        if self.failed:
            raise UserError(
                f"line {self.line.number:,} ({self.line.pieces:,} tokens) does not fit into memory. "
                "Shorten it, or use a smaller beam."
            )
        return self.text
