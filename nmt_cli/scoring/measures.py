"""Scores of texts and of single sentences by the metrics of sacrebleu. Each score carries the settings that
produced it.

A metric counts something in each line, such as n-grams and matches. The counts are summed over all lines, and
a score is computed from the sums. So significance tests can resample lines without counting again.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any, get_args

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code
from nmt_cli.scoring.config import Metric, ScoreConfig
from nmt_cli.scoring.paper import PaperProtocol
from nmt_cli.setting_values import check_section

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Counter

TOKENIZER_OF = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""The tokenisers of sacrebleu that are for one language."""

Lines = Collection[str]
"""Lines of text that can be iterated repeatedly. They need not be in memory."""

Counts = list[float]
"""The statistics of one line that a metric sums over lines. For BLEU: numbers of n-grams and matches, and
lengths."""

LINES_AT_ONCE = 1000
"""The number of lines whose n-grams are in memory at a time. Those of a million lines would take
gigabytes."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a text in one metric, with all that a report needs."""

    metric: str
    name: str
    """The name of the metric, such as "chrF2"."""

    kind: str
    """A description that tells scores of equal name apart, such as "sacrebleu, detokenised, 13a". May be
    empty."""

    value: float
    signature: str
    """The settings that are needed to reproduce the score."""

    detail: str
    """The parts of the score, such as precisions. Empty if it has none."""

    digits: int = 2
    """The number of decimal places to show."""

    @property
    def label(self) -> str:
        """Name and kind, such as "BLEU (sacrebleu, detokenised, 13a)"."""
        return f"{self.name} ({self.kind})" if self.kind else self.name

    @property
    def shown(self) -> str:
        """The value with `digits` decimal places."""
        return f"{self.value:.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class SentenceScores:
    """A score for each sentence, in one metric."""

    metric: str
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
    """Return the score of `hypotheses` in each of `metrics`, in order.

    - `references`: one or more texts, each with a line per hypothesis.
    - `config`: the settings of the metrics, or None for the defaults.
    - `lang`: the target language. "bleu" chooses its tokeniser by it, and "paper-bleu" needs it.

    Raise `UserError` for an unknown metric, or a text that has another number of lines. Raise `TypeError` if
    a text is a str instead of a list of lines.
    """
    check_section("config", config, ScoreConfig)
    if not references:
        raise UserError("There are no references. Give at least one list of lines.")
    named = {f"references[{number}]": lines for number, lines in enumerate(references)}
    for name, lines in {"hypotheses": hypotheses, **named}.items():
        if isinstance(lines, str):
            raise TypeError(f"{name} must be a list of lines, not one text. Use [text].")
        if len(lines) != len(hypotheses):
            raise UserError(f"{name} has {len(lines)} lines, but there are {len(hypotheses)} hypotheses.")
    if unknown := [metric for metric in metrics if metric not in get_args(Metric)]:
        *first, last = get_args(Metric)
        raise UserError(f"{unknown[0]!r} is not a metric. Use {', '.join(first)} or {last}.")
    measures = [Measure(metric, references, config or ScoreConfig(), lang) for metric in metrics]
    return [result for measure in measures for result in measure.scores([hypotheses])]


class Measure:
    """A metric with its references. It scores any number of systems, whose lines match those of the
    references."""

    digits = 2
    """The number of decimal places of scores to show."""

    def __init__(self, metric: Metric, references: Sequence[Lines], config: ScoreConfig, lang: str) -> None:
        """Create sacrebleu's object for `metric`. The target language `lang` chooses BLEU's tokeniser. Raise
        `UserError` if that tokeniser cannot be used."""
        self.metric: str = metric
        self._references = references
        self._config = config
        self._lang = lang
        self._protocol = PaperProtocol(lang) if metric == "paper-bleu" else None
        self._counter = partial(_counter, metric, config, lang)
        self.counter: Any = self._counter(for_sentences=False)
        """The metric object of sacrebleu."""

    def scores(self, systems: Sequence[Lines]) -> list[Score]:
        """Return the score of each system, in the same order."""
        return self.scores_of(self.counts(systems))

    def scores_of(self, counts: Iterable[Sequence[Counts]]) -> list[Score]:
        """Return the score of each system, given its counts. Each item of `counts` belongs to one line, and
        has the counts of all systems. Without lines, return []."""
        totals: list[Counts] = []
        for line in counts:
            totals = totals or [[0] * len(system_counts) for system_counts in line]
            # In the order of the lines, because sums of fractions (TER) depend on their order.
            totals = [list(map(add, *pair)) for pair in zip(totals, line, strict=True)]
        return [self._score(total) for total in totals]

    def counts(self, systems: Sequence[Lines]) -> Iterator[tuple[Counts, ...]]:
        """Yield for each line the counts of all systems, for `scores_of`. Texts are read in blocks of
        `LINES_AT_ONCE` lines."""
        iterators = [iter(text) for text in (*self._references, *systems)]
        while any(lines := [list(islice(text, LINES_AT_ONCE)) for text in iterators]):
            references, hypotheses = lines[: len(self._references)], lines[len(self._references) :]
            if self._protocol:
                references = [[self._protocol.reference(line) for line in block] for block in references]
                hypotheses = [[self._protocol.hypothesis(line) for line in block] for block in hypotheses]
            # sacrebleu would count all references at once and keep their n-grams, which took 663 MB for
            # 100,000 lines.
            self.counter._ref_cache = self.counter._cache_references(references)
            counted = (self.counter._extract_corpus_statistics(block, None) for block in hypotheses)
            yield from zip(*counted, strict=True)

    def _score(self, total: Counts) -> Score:
        result = self.counter._compute_score_from_stats(total)
        # sacrebleu prints the parts of a score after the number, and has no attribute for them.
        detail = str(result.format(signature="").partition(" = ")[2].partition(" ")[2])
        return Score(
            self.metric, result.name, self._kind(), float(result.score), self.signature(), detail, self.digits
        )

    def sentences(self, hypotheses: Lines) -> SentenceScores:
        """Return the score of each line. BLEU leaves out n-grams that are longer than a line. There must be
        at least one line."""
        # BLEU of single sentences needs another object, see `effective_order` below.
        counter = self._counter(for_sentences=True)
        scores = [
            counter.sentence_score(hypothesis, references)
            for hypothesis, *references in zip(hypotheses, *self._references, strict=True)
        ]
        signature = str(counter.get_signature())
        return SentenceScores(self.metric, scores[0].name, signature, [float(s.score) for s in scores])

    def signature(self, signature: object = None) -> str:
        """Return a signature of sacrebleu as text. `signature` is that of a test, or None for that of the
        latest score.

        For paper-bleu, the steps of the paper's protocol replace "tok:none".
        """
        text = str(signature or self.counter.get_signature())
        if not self._protocol:
            return text
        steps = f"punct:replaced|tok:moses-{self._lang}|compounds:split|refquotes:straight"
        return text.replace("tok:none", steps)

    def _kind(self) -> str:
        """Return the value of `Score.kind`. It describes the preparation of text for "bleu" and "paper-bleu",
        and is "" for other metrics."""
        if self._protocol:
            return "paper protocol: tokenised, compounds split"
        if self.metric != "bleu":
            return ""
        tokenizer = bleu_tokenizer(self._config, self._lang)
        text = "as tokenised in the files" if tokenizer == "none" else f"detokenised, {tokenizer}"
        return f"sacrebleu, {text}"


def bleu_tokenizer(config: ScoreConfig, lang: str) -> str:
    """Return the name of BLEU's tokeniser. "auto" in the settings means that of `lang`, or "13a" if sacrebleu
    has none for it."""
    chosen = config.bleu.tokenizer
    return TOKENIZER_OF.get(iso_code(lang), "13a") if chosen == "auto" else chosen


def characters_instead(config: ScoreConfig, lang: str) -> str | None:
    """Return a warning that BLEU counts characters, or None if it counts words.

    It counts characters if the settings choose the tokeniser by language, and that of `lang` is not
    installed.
    """
    if config.bleu.tokenizer != "auto":
        return None
    try:
        _counter("bleu", config, lang, for_sentences=True)
    except UserError:
        extra = iso_code(lang)
        return (
            f"{bleu_tokenizer(config, lang)}, the tokeniser that BLEU has for {lang}, is not installed, so "
            f"validation counts characters (tok:char). For words, run pip install '.[{extra}]'."
        )
    return None


def perplexity(nll: float, units: int) -> float:
    """Return exp(`nll` / `units`), where `nll` is a loss summed over tokens or words. It is infinite for
    means from 700."""
    # math.exp raises from about 710 on.
    mean = nll / units
    return math.exp(mean) if mean < 700 else math.inf


def _counter(metric: Metric, config: ScoreConfig, lang: str, *, for_sentences: bool) -> "Counter":
    """Return sacrebleu's object for `metric`. With `for_sentences`, BLEU leaves out n-grams that are longer
    than a line.

    "paper-bleu" expects text that is already tokenised. Raise `UserError` if the tokeniser of "bleu" cannot
    be used.
    """
    from sacrebleu import BLEU, CHRF, TER
    from sacrebleu.utils import SACREBLEU_DIR

    match metric:
        case "chrf" | "chrf++":
            order = 2 if metric == "chrf++" else 0  # ++ adds words and pairs of words
            return CHRF(word_order=order)
        case "ter":
            return TER()
        case "paper-bleu":
            # `force` turns off sacrebleu's warning about tokenised text. `evaluate` has its own.
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
        if tokenizer.startswith("flores"):
            reason += f". sacrebleu downloads it once. Copy {SACREBLEU_DIR}/models from where that works"
        raise UserError(
            f"BLEU's tokeniser {tokenizer} can't be used: {reason}. Or choose another one, such as "
            "--set bleu.tokenizer=char."
        ) from error
