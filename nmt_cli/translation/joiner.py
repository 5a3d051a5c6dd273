"""From the hypotheses of the sentences of a line to its translation: joined, aligned, checked and rated."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.text.placeholders import restored
from nmt_cli.text.tag_placement import Shares
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.checks.output_checks import Flag, check_finite, flags, terms_flag
from nmt_cli.translation.lines import Candidate, Line, Translation
from nmt_cli.translation.text.long_lines import joined
from nmt_cli.translation.text.lost_placeholders import with_placeholders
from nmt_cli.translation.text.unit_shares import unit_shares

LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""Characters that some programs treat as the end of a line."""


@dataclass(frozen=True, slots=True)
class Joiner:
    """Joins the hypotheses of sentences to translations of lines."""

    tokenizers: Tokenizers
    in_fp16: bool
    """Whether the models compute in fp16, so that their log-probabilities may overflow."""

    length_ratio: float = 1.0
    """The mean number of target tokens per source token in training."""

    calibration: Calibration | None = None
    """Turns probabilities into confidence, if known."""

    def joined(self, translations: Sequence[str], spaces: Sequence[str]) -> str:
        """Join translations of sentences. `spaces` is the whitespace after each source sentence."""
        return joined(translations, spaces, self.tokenizers.recipe.target_lang)

    def text(self, sentence: Sentence, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, with the placeholders of its sentence."""
        target = self.tokenizers.target
        return restored(target.restore(target.decode(hypothesis.tokens)), sentence.values)

    def translation(self, line: Line, hypotheses: Sequence[Sequence[Hypothesis] | None]) -> Translation:
        """Return the translation of `line`.

        `hypotheses` has a list per sentence, best first, or None if the sentence did not fit into memory.
        With a None, the line fails: its translation has neither candidates nor flags. Raise `UserError` if
        log-probabilities overflow in fp16.
        """
        found = [part for part in hypotheses if part is not None]
        check_finite(line.number, all(found), self.in_fp16)  # a search drops hypotheses that are not finite
        if len(found) < len(hypotheses):
            return Translation(line, [], (), failed=True)
        # Candidate n of a line consists of hypothesis n of each part. Some parts may have fewer hypotheses.
        best = zip(*found, strict=False) if found else ()
        candidates = [self._candidate(line, parts) for parts in best]
        shares: Shares = ()
        if candidates and line.sentences[0].aligned:
            candidates, shares = self._aligned(line, candidates)
        raised, confidence = self._flags(line, candidates), self._confidence(line, candidates)
        return Translation(line, candidates, raised, False, shares, confidence)

    def _candidate(self, line: Line, parts: Sequence[Hypothesis]) -> Candidate:
        """Join one hypothesis of each sentence. Restore placeholders, and replace line ends by spaces."""
        target = self.tokenizers.target
        ended, entries = target.vocabulary.ended, target.vocabulary.entries
        pairs = zip(line.sentences, parts, strict=True)
        texts = [(self.text(sentence, part), sentence.spaces) for sentence, part in pairs]
        written = [(text, spaces) for text, spaces in texts if text]
        spaces = [spaces for _, spaces in written[:-1]] + [""] * bool(written)
        # A model may have learnt to write line ends, but the translation of a line must be one line.
        text = LINE_ENDS.sub(" ", self.joined([text for text, _ in written], spaces))
        return Candidate(
            text=text,
            score=sum(part.score for part in parts),
            parts=parts,
            tokens=[entries[i] for part in parts for i in ended(part.tokens)],
            token_scores=[score for part in parts for score in part.token_scores],
        )

    def _aligned(self, line: Line, candidates: Sequence[Candidate]) -> tuple[list[Candidate], Shares]:
        """Return the candidates with lost placeholders put back, and the alignment of the best candidate.

        A model with symbols for placeholders loses none.
        """
        repairs = not self.tokenizers.recipe.placeholders
        results: list[Candidate] = []
        shares_of: list[Shares] = []
        for one in candidates:
            shares = unit_shares(self.tokenizers, line.raw, line.sentences, one.text, one.parts)
            if repairs:
                text, shares = with_placeholders(line.raw, one.text, shares)
                one = replace(one, text=text)
            results.append(one)
            shares_of.append(shares)
        return results, shares_of[0]

    def _confidence(self, line: Line, candidates: Sequence[Candidate]) -> float:
        if not candidates:
            return float(not line.sentences)  # a line without words is certain
        probability = candidates[0].probability
        return self.calibration(probability) if self.calibration else probability

    def _flags(self, line: Line, candidates: Sequence[Candidate]) -> Sequence[Flag]:
        """Return the signs that the best of `candidates` is wrong, or that there is none."""
        raised: list[Flag] = []
        if line.sentences:
            text, parts = (candidates[0].text, candidates[0].parts) if candidates else ("", ())
            pieces = sum(len(part.tokens) for part in parts)
            source_pieces = sum(len(sentence.tokens) for sentence in line.sentences)
            raised += flags(line.raw, text, source_pieces, pieces, self.length_ratio)
            pairs = zip(line.sentences, parts, strict=False)
            forced = [score for sentence, part in pairs if sentence.terms for score in part.token_scores]
            raised += terms_flag(forced)
        return (*raised,)
