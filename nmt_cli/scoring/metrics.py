"""Scores of whole texts and of single sentences; every score carries the settings that produced it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import add
from typing import TYPE_CHECKING

from nmt_cli.errors import UserError
from nmt_cli.language import without_region
from nmt_cli.scoring.config import AnyMetric, Metric, ScoreConfig
from nmt_cli.scoring.paper import PaperProtocol

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Counter

TOKENIZER_OF = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""The languages that sacrebleu has its own tokeniser for."""

Lines = Collection[str]
"""Lines of text, such as can be gone through again and again; they need not be in memory."""

Counts = list[float]
"""What a metric is made of, summed up over lines: of BLEU, for one, how many n-grams of each length match."""

LINES_AT_ONCE = 1000
"""Lines whose n-grams are held at a time: those of a million would take gigabytes."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a text in one metric, with all that is needed to report it."""

    metric: AnyMetric
    name: str
    """What it is called, such as "chrF2"."""

    kind: str
    """What tells it from other scores of that name, such as "sacrebleu, detokenised, 13a"; may be empty."""

    value: float
    signature: str
    """The settings that somebody else needs to get the same number."""

    detail: str
    """What the number is made of, where it has parts."""

    @property
    def label(self) -> str:
        """Name and kind."""
        return f"{self.name} ({self.kind})" if self.kind else self.name


@dataclass(frozen=True, slots=True)
class SentenceScores:
    """One number for each sentence."""

    metric: AnyMetric
    name: str
    signature: str
    values: list[float]


def score(
    hypotheses: Lines,
    references: Sequence[Lines],
    metrics: Sequence[Metric] = ("bleu", "chrf"),
    config: ScoreConfig | None = None,
    lang: str = "",
) -> list[Score]:
    """The score of `hypotheses` in each of `metrics`.

    Each of `references` has a line for each hypothesis. `lang` is the target language; "paper-bleu" needs it.
    """
    return [Measure(metric, references, config or ScoreConfig(), lang)(hypotheses) for metric in metrics]


class Measure:
    """One metric and the references that it compares with, for any number of systems."""

    def __init__(self, metric: Metric, references: Sequence[Lines], config: ScoreConfig, lang: str) -> None:
        self.metric = metric
        self._references = references
        self._config = config
        self._lang = lang
        self._protocol = PaperProtocol(lang) if metric == "paper-bleu" else None
        self.counter = _counter(metric, config, lang, for_sentences=False)
        """sacrebleu's own object."""

    def __call__(self, hypotheses: Lines) -> Score:
        """The score of a whole text."""
        (found,) = self.scores([hypotheses])
        return found

    def scores(self, systems: Sequence[Lines]) -> list[Score]:
        """The score of each system, a whole text."""
        return self.scores_of(self.counts(systems))

    def scores_of(self, counts: Iterable[Sequence[Counts]]) -> list[Score]:
        """The scores of systems whose counts these are, line by line."""
        totals: list[Counts] = []
        for line in counts:
            totals = totals or [[0] * len(each) for each in line]
            # One after the other: sums of fractions, which TER has, depend on their order.
            totals = [list(map(add, *pair)) for pair in zip(totals, line, strict=True)]
        return [self._score(total) for total in totals]

    def counts(self, systems: Sequence[Lines]) -> Iterator[tuple[Counts, ...]]:
        """For each line the counts of each system."""
        for lines in _together([*self._references, *systems]):
            references, hypotheses = lines[: len(self._references)], lines[len(self._references) :]
            self.counter._ref_cache = self.counter._cache_references([*map(self._ready, references)])
            yield from zip(*(self._counted(block) for block in hypotheses), strict=True)

    def _counted(self, block: list[str]) -> list[Counts]:
        ready = [self._protocol.hypothesis(line) for line in block] if self._protocol else block
        found: list[Counts] = self.counter._extract_corpus_statistics(ready, None)
        return found

    def _score(self, total: Counts) -> Score:
        found = self.counter._compute_score_from_stats(total)
        # sacrebleu tells the parts of a score only in its text: what follows the number.
        detail = str(found.format(signature="").partition(" = ")[2].partition(" ")[2])
        return Score(self.metric, found.name, self._kind(), float(found.score), self.signature(), detail)

    def sentences(self, hypotheses: Lines) -> SentenceScores:
        """The score of each line by itself; BLEU then leaves out n-grams longer than the line."""
        # One of its own: BLEU counts single sentences otherwise, see `effective_order` below.
        counter = _counter(self.metric, self._config, self._lang, for_sentences=True)
        scores = [
            counter.sentence_score(hypothesis, references)
            for hypothesis, *references in zip(hypotheses, *self._references, strict=True)
        ]
        signature = str(counter.get_signature())
        return SentenceScores(self.metric, scores[0].name, signature, [float(s.score) for s in scores])

    def signature(self, found: object = None) -> str:
        """sacrebleu's signature, with the protocol's steps in it; `found`, or else that of the latest
        score."""
        text = str(found or self.counter.get_signature())
        if not self._protocol:
            return text
        steps = f"punct:replaced|tok:moses-{self._lang}|compounds:split|refquotes:straight"
        return text.replace("tok:none", steps)

    def _ready(self, reference: list[str]) -> list[str]:
        return [self._protocol.reference(line) for line in reference] if self._protocol else reference

    def _kind(self) -> str:
        if self._protocol:
            return "paper protocol: tokenised, compounds split"
        if self.metric != "bleu":
            return ""
        tokenizer = bleu_tokenizer(self._config, self._lang)
        text = "as tokenised in the files" if tokenizer == "none" else f"detokenised, {tokenizer}"
        return f"sacrebleu, {text}"


def bleu_tokenizer(config: ScoreConfig, lang: str) -> str:
    """The tokeniser that sacrebleu's BLEU uses for this language under these settings."""
    chosen = config.bleu.tokenizer
    return TOKENIZER_OF.get(without_region(lang), "13a") if chosen == "auto" else chosen


def characters_instead(config: ScoreConfig, lang: str) -> str | None:
    """Why BLEU of this language should be counted in characters; None where its own tokeniser is there.

    It is asked for "auto" only: who names a tokeniser wants no other.
    """
    if config.bleu.tokenizer != "auto":
        return None
    try:
        _bleu("bleu", config, lang, for_sentences=True)
    except UserError:
        extra = without_region(lang)
        return (
            f"{bleu_tokenizer(config, lang)}, the tokeniser that BLEU has for {lang}, is not installed, so "
            f"validation counts characters (tok:char); pip install '.[{extra}]' for words."
        )
    return None


def _together(texts: Sequence[Lines]) -> Iterator[list[list[str]]]:
    """The same lines of all texts, a block at a time."""
    each = [iter(text) for text in texts]
    while any(blocks := [list(islice(lines, LINES_AT_ONCE)) for lines in each]):
        yield blocks


def _counter(metric: Metric, config: ScoreConfig, lang: str, *, for_sentences: bool) -> "Counter":
    """sacrebleu's object for a metric, for a whole text or for single sentences."""
    from sacrebleu import CHRF, TER

    match metric:
        case "bleu" | "paper-bleu":
            return _bleu(metric, config, lang, for_sentences=for_sentences)
        case "chrf" | "chrf++":
            order = 2 if metric == "chrf++" else 0  # the ++ are words and pairs of words
            return CHRF(word_order=order)
        case "ter":
            return TER()


def _bleu(metric: Metric, config: ScoreConfig, lang: str, *, for_sentences: bool) -> "Counter":
    from sacrebleu import BLEU

    if metric == "paper-bleu":
        # `force` here and below: sacrebleu would warn of tokenised text, which `evaluate` does itself.
        return BLEU(tokenize="none", smooth_method="none", force=True)
    tokenizer = bleu_tokenizer(config, lang)
    try:
        return BLEU(
            lowercase=config.bleu.lowercase,
            tokenize=tokenizer,
            smooth_method=config.bleu.smoothing,
            effective_order=for_sentences,
            force=True,
        )
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()).removesuffix(".")
        raise UserError(
            f"BLEU's tokeniser {tokenizer} can't be used: {reason}. Or choose another one, such as "
            "--set bleu.tokenizer=char; in training it is validation.bleu_tokenizer."
        ) from error
