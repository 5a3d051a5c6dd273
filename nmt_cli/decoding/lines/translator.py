"""From raw lines to sentences of ids, and from their translations to text: one line for each line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.decoding.engine import Listed, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.lines.degenerate import Flag, flags
from nmt_cli.decoding.lines.long_lines import joined, longest_source, shortened
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizers import Tokenizers

PARTS = 1 << 20
"""More than a line may have."""

LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""What somebody might take for the end of a line."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One translation of a line."""

    text: str
    score: float
    """Log-probability divided by the length penalty; of a line in parts, the sum."""

    parts: Sequence[Hypothesis]
    """What was found for each of the line's sentences."""

    tokens: Sequence[str]
    """The pieces, end marks among them."""

    token_scores: Sequence[float]

    @property
    def log_probability(self) -> float:
        """Of all pieces."""
        return sum(self.token_scores)


@dataclass(frozen=True, slots=True)
class Line:
    """A line on its way."""

    number: int
    """From 1."""

    raw: str
    sentences: Sequence[Sentence]
    """None for a line without words; several for a line that is too long."""

    pieces: int
    too_long: bool
    prefix_unknown: bool
    """How its translation shall begin has something that the vocabulary lacks."""


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of a line."""

    line: Line
    candidates: Sequence[Candidate]
    """Best first; none for a line without words, or one that failed."""

    flags: Sequence[Flag]
    failed: bool
    """It did not fit into memory."""

    @property
    def text(self) -> str:
        """The best one."""
        return self.candidates[0].text if self.candidates else ""


class Translator:
    """Knows what comes before and after a search with models that share their tokenisers."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        models: Sequence[Transformer],
        config: TranslateConfig,
        trained: int | None = None,
    ) -> None:
        """`trained` is the most tokens of a sentence in training, end mark counted, where that is known."""
        self.tokenizers, self.config = tokenizers, config
        self.longest = min(longest_source(config.input, model.config, trained) for model in models)

    def line(self, number: int, raw: str) -> Line:
        """Line `number`, ready for the search."""
        source, _, prefix = raw.partition("\t") if self.config.input.prefix else (raw, "", "")
        tokenizer, target = self.tokenizers.source, self.tokenizers.target
        text = tokenizer.prepare(source)
        ids = tokenizer.encode(text)
        too_long = len(ids) > self.longest
        texts = shortened(text, self.longest, self.config.input.too_long, tokenizer) if too_long else [text]
        begins = target.encode(target.prepare(prefix)) if prefix else []
        sentences = [
            Sentence(
                number * PARTS + part, tokenizer.encode(each) if too_long else ids, () if part else begins
            )
            for part, each in enumerate(texts)
            if each
        ]
        return Line(number, source, sentences, len(ids), too_long, target.vocabulary.unknown in begins)

    def translation(self, line: Line, found: Sequence[Sequence[Hypothesis] | None]) -> Translation:
        """`line` with what was found for each of its sentences."""
        known = [hypotheses for hypotheses in found if hypotheses is not None]
        failed = len(known) < len(found)
        best = [] if failed or not known else list(zip(*known, strict=False))
        candidates = [self._candidate(parts) for parts in best]
        odd: Sequence[Flag] = ()
        if found and not failed:
            text = candidates[0].text if candidates else ""
            pieces = sum(len(hypothesis.tokens) for hypothesis in best[0]) if best else 0
            source_pieces = sum(len(sentence.tokens) for sentence in line.sentences)
            odd = flags(line.raw, text, source_pieces, pieces)
        return Translation(line, candidates, odd, failed)

    def translate(self, models: Sequence[Transformer], lines: Sequence[str]) -> list[Translation]:
        """All of `lines`, when they are there already."""
        ready = [self.line(number, raw) for number, raw in enumerate(lines, start=1)]
        waiting = Listed([sentence for line in ready for sentence in line.sentences])
        ensemble = Ensemble.of(models, self.config.search)
        every = translated(ensemble, self.config.search, waiting)
        found = {sentence.key: hypotheses for sentence, hypotheses in every}
        return [self.translation(line, [found[one.key] for one in line.sentences]) for line in ready]

    def _candidate(self, parts: Sequence[Hypothesis]) -> Candidate:
        target = self.tokenizers.target
        ended, entries = target.vocabulary.ended, target.vocabulary.entries
        texts = [target.restore(target.decode(part.tokens)) for part in parts]
        text = joined([LINE_ENDS.sub(" ", one) for one in texts], self.tokenizers.recipe.target_lang)
        return Candidate(
            text=text,
            score=sum(part.score for part in parts),
            parts=parts,
            tokens=[entries[i] for part in parts for i in ended(part.tokens)],
            token_scores=[score for part in parts for score in part.token_scores],
        )
