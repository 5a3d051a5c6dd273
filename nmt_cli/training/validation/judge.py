"""Validates a model: computes its loss on the references and scores its translations."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from nmt_cli.data.batching.batch import assemble
from nmt_cli.data.batching.cut import micro_batches
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.dataset import Dataset, Split, raw_lines
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.errors import UserError
from nmt_cli.language import iso_code
from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.memory import release_unused
from nmt_cli.scoring.confidence import Calibration, calibrated
from nmt_cli.scoring.config import SMALLER_IS_BETTER, BleuConfig, BleuTokenizer, Metric, ScoreConfig
from nmt_cli.scoring.lengths import Length, by_length
from nmt_cli.scoring.measures import Measure, Score, characters_instead, perplexity
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.scoring.paper import LANGUAGES
from nmt_cli.scoring.scorers import ScorerMeasure
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.training.config import TrainConfig, ValidationConfig
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.translation.translator import TrainedOn, Translator

SAMPLES = 8
"""Number of sentences of a set whose translations are logged, to be compared over the run."""

LOGGED: tuple[Metric, ...] = ("bleu", "chrf")
"""Metrics that every validation computes, whatever validation.metric is."""

SHORT = 5
"""The most words of a short line."""

LENGTHS = (SHORT, 10, 20, 40)
"""The most words of each range of lengths that is scored apart. `nmt score --by-length` has a range of up to
2 words, too, but a validation set has few such lines."""

SHORT_LINES = 20
"""Minimum number of short lines whose scores are shown. Those of fewer vary too much."""

TAB = "\t"
"""The character between a source line and the start of its translation."""

MAX_TOKENS = 8192
"""Maximum source plus target tokens of a batch for the loss."""

Groups = Sequence[Sequence[int]]
"""The numbers of the lines of each group."""


class LengthScores(NamedTuple):
    """The scores of the lines whose references have a range of lengths, in words."""

    length: Length
    scores: Sequence[Score]


@dataclass(frozen=True, slots=True, repr=False)
class Judgement:
    """The results of a model on one validation set: its losses, its scores and its translations."""

    name: str
    nll: float
    """Mean loss per target token in nats, with end tokens, without label smoothing."""

    perplexity: float
    word_perplexity: float
    """Perplexity per word of the raw text, separated by spaces. The end of a sentence counts as a word."""

    scores: Sequence[Score]
    """Against the raw references."""

    translations: Sequence[str]
    subset: str = ""
    """The translated sentences, if not all: "300 of 1,014 sentences"."""

    references: Sequence[str] = ()
    probabilities: Sequence[float] = ()
    """The geometric mean of the token probabilities of each translation."""

    lengths: Sequence[LengthScores] = ()
    """`scores` of short and long lines apart."""

    def __repr__(self) -> str:
        scores = "".join(f", {score.name} {score.shown}" for score in self.scores)
        return f"<Judgement {self.name!r}{scores}, perplexity {self.perplexity:.3f}>"

    @property
    def calibration(self) -> Calibration | None:
        """The confidence of translations by their probabilities, if there are enough translations."""
        return calibrated(self.probabilities, self.translations, self.references)

    @property
    def short(self) -> LengthScores | None:
        """The scores of lines of up to `SHORT` words. None if there are fewer than `SHORT_LINES` of them, or
        no longer lines."""
        if len(self.lengths) < 2:
            return None
        first = self.lengths[0]
        return first if first.length.most == SHORT and first.length.lines >= SHORT_LINES else None

    @property
    def metrics(self) -> dict[str, float]:
        """The value of each metric, by its name."""
        losses = {"nll": self.nll, "perplexity": self.perplexity, "word-perplexity": self.word_perplexity}
        return losses | {score.metric: score.value for score in self.scores}

    def line(self) -> dict[str, Any]:
        """Return entries for the log: losses, scores, also by length, signatures, and up to `SAMPLES`
        translations by line."""
        samples = sample_lines(len(self.translations))
        scores = {score.metric: score.value for score in self.scores}
        subset = {"scored_on": self.subset} if self.subset else {}
        return {
            "nll": self.nll,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            **scores,
            "by_length": [
                {**asdict(length), **{score.metric: score.value for score in own}}
                for length, own in self.lengths
            ],
            "samples": {str(line): self.translations[line] for line in samples},
            **subset,
            "signatures": {score.metric: score.signature for score in self.scores},
        }


@dataclass(frozen=True, slots=True)
class Judge:
    """Computes losses and scores on validation sets. The ranks share the work, and each gets all results."""

    dataset: Dataset
    tokenizers: Tokenizers
    config: ValidationConfig
    translate: TranslateConfig
    group: Group
    precision: MixedPrecision
    comet: Comet | None = None
    """The model in validation.metric_model, if any. Only the first rank has it."""

    longest: int | None = None
    """Maximum number of tokens of training sentences, with the end token. None is the default of training."""

    tokenizer: BleuTokenizer = "auto"
    """The tokeniser of BLEU in earlier validations of the run: "char" if they counted characters."""

    def __post_init__(self) -> None:
        """Raise `UserError` if validation.metric can't be computed for the target language."""
        refuse_uncomputable(self.config.metric, self.tokenizers.recipe.target_lang)

    @property
    def first_set(self) -> str:
        """A hash of the first validation set, or "" without one."""
        sets, files = self.dataset.valid_sets, self.dataset.manifest["files"]
        own = [
            files[name]["sha256"] for name in sorted(files) if sets and name.startswith(f"{sets[0].name}.")
        ]
        return hashlib.sha256("".join(own).encode()).hexdigest()[:16] if own else ""

    @property
    def in_characters(self) -> str | None:
        """The reason why BLEU counts characters: a tokeniser that is not installed. Otherwise None."""
        config = ScoreConfig(bleu=BleuConfig(tokenizer=self.tokenizer))
        return characters_instead(config, self.tokenizers.recipe.target_lang)

    @property
    def bleu_tokenizer(self) -> BleuTokenizer:
        """The tokeniser of BLEU: "char" if that of the language is not installed, or was not
        when the run began. Otherwise "auto"."""
        return "char" if self.in_characters else self.tokenizer

    @torch.no_grad()
    def judge(self, model: Transformer, split: Split, only: Sequence[int] | None = None) -> Judgement:
        """Return the losses and scores of `model` on a validation set. All ranks call this, and share the
        work.

        The loss is that of all pairs. Translated and scored are the first validation.sentences pairs (0:
        all). With `only`, both are computed for the pairs with these indices.
        """
        training = model.training
        model.eval()
        lines = range(translated_lines(self.config, split)) if only is None else only
        pairs = np.arange(len(split)) if only is None else np.array(only, dtype=np.int64)
        batches = micro_batches(*split.lengths(pairs), MAX_TOKENS)
        process = self.group.process
        # Batches are sorted by length, so every N-th gives each rank long and short ones.
        losses = [self._loss(model, split, pairs[batch]) for batch in batches[process.rank :: process.world]]
        translations = self._translate(model, split, lines)
        model.train(training)
        self.group.meet("validating")  # one rank may need minutes more than another
        gathered = self.group.gather((losses, translations))
        nll, tokens = np.sum([loss for rank_losses, _ in gathered for loss in rank_losses], axis=0).tolist()
        # Each rank translated every N-th line, so the lines have to be put in order.
        by_line = {line: translation for _, own in gathered for line, translation in own.items()}
        return self._judgement(split, nll, int(tokens), {line: by_line[line] for line in lines})

    def _loss(self, model: Transformer, split: Split, pairs: Indices) -> tuple[float, int]:
        """Return the NLL of `pairs`, summed over their target tokens, and the number of these tokens."""
        part = assemble(split, pairs).to(self.group.device)
        with self.precision.autocast():
            decoded = model(part.source_tokens, part.target_tokens, part.source, part.target)
            projected = model.projected(decoded.to(self.precision.dtype))
            losses = cross_entropy(*projected, part.labels, smoothing=0.0)
        return float(losses.nll), part.real_target_tokens

    def _translate(
        self, model: Transformer, split: Split, lines: Sequence[int]
    ) -> dict[int, tuple[str, float]]:
        """Translate this rank's share of `lines` as `nmt translate` does. Return by line number the text and
        the geometric mean of its token probabilities."""
        process = self.group.process
        own_lines = lines[process.rank :: process.world]
        raw, references = (raw_lines(self.dataset, split, side) for side in SIDES)
        texts, translate = [raw[line] for line in own_lines], self.translate
        codes = [self._parted(references[line])[0] for line in own_lines]
        # The reference chooses among the target languages of a model such as NLLB.
        if any(codes):
            texts = [f"{text.replace(TAB, ' ')}{TAB}{code}" for text, code in zip(texts, codes, strict=True)]
            translate = replace(translate, input=replace(translate.input, prefix=True))
        translator = Translator(self.tokenizers, [model], translate, TrainedOn(self.longest))
        with self.precision.autocast():
            translations = translator.translate(Decoder.of([model]), texts)
        return {line: (one.text, one.confidence) for line, one in zip(own_lines, translations, strict=True)}

    def _parted(self, reference: str) -> tuple[str, str]:
        """Return the language code at the start of a raw target line, or "", and the text after it."""
        languages = self.tokenizers.recipe.own_languages
        code, _, text = reference.partition(" ")
        is_code = languages.target_symbols == "target" and code in languages.symbols
        return (code, text) if is_code else ("", reference)

    def _judgement(
        self, split: Split, nll: float, tokens: int, translated: Mapping[int, tuple[str, float]]
    ) -> Judgement:
        """Return losses, and scores of `translated`: texts and probabilities by line number. `nll` is the sum
        over `tokens`."""
        references = raw_lines(self.dataset, split, "target")
        translations = [text for text, _ in translated.values()]
        own_references = [self._parted(references[line])[1] for line in translated]
        count = len(translations)
        words = sum(len(line.split()) + 1 for line in references)  # does not depend on the vocabulary
        lang = iso_code(self.tokenizers.recipe.target_lang)
        config = ScoreConfig(bleu=BleuConfig(tokenizer=self.bleu_tokenizer))
        # validation.metric may also be nll or comet, which are computed elsewhere.
        metrics = [*dict.fromkeys((*LOGGED, *(one for one in get_args(Metric) if one == self.config.metric)))]
        measures = [Measure(metric, [own_references], config, lang) for metric in metrics]
        lengths = by_length(own_references, LENGTHS)
        groups = [own for _, own in lengths]
        by_metric = [scores_with_groups(measure, translations, groups) for measure in measures]
        by_metric += self._comet_scores(split, [*translated], translations, own_references, groups)
        scores, *apart = zip(*by_metric, strict=True)
        return Judgement(
            name=split.name,
            nll=nll / tokens,
            perplexity=perplexity(nll, tokens),
            word_perplexity=perplexity(nll, words),
            scores=scores,
            lengths=[LengthScores(length, own) for (length, _), own in zip(lengths, apart, strict=True)],
            translations=translations,
            references=own_references,
            probabilities=[probability for _, probability in translated.values()],
            subset=f"{count:,} of {len(split):,} sentences" if count < len(split) else "",
        )

    def _comet_scores(
        self,
        split: Split,
        lines: Sequence[int],
        translations: Sequence[str],
        references: Sequence[str],
        groups: Groups,
    ) -> list[list[Score]]:
        """Return the COMET scores of translations of `lines` as `scores_with_groups` does, in a list. The
        list is empty without validation.metric_model. The first rank computes them, since the model needs
        gigabytes."""
        if not self.config.metric_model:
            return []
        scores = list[list[Score]]()
        if self.comet:
            raw = raw_lines(self.dataset, split, "source")
            with self.comet.on(self.group.device):
                sources = [raw[line] for line in lines]
                measure = ScorerMeasure(self.comet, sources, [references], [translations])
                scores = [scores_with_groups(measure, translations, groups)]
            release_unused(self.group.device)
        self.group.meet("validating")
        return self.group.from_first(scores)


def scores_with_groups(measure: Measure, translations: Sequence[str], groups: Groups) -> list[Score]:
    """Return the score of all `translations` in one metric, followed by that of the lines of each group."""
    counts = list(measure.counts([translations]))  # kept, so that each line is counted only once
    apart = [measure.scores_of(counts[line] for line in group) for group in groups]
    return [score for scores in (measure.scores_of(counts), *apart) for score in scores]


def refuse_uncomputable(metric: str, lang: str) -> None:
    """Raise `UserError` if validation.metric can't be computed for the target language `lang`."""
    if metric == "paper-bleu" and iso_code(lang) not in LANGUAGES:
        reason = f"the Moses tokeniser can't split {lang} into words"
        raise UserError(f"validation.metric=paper-bleu can't be computed: {reason}. Use bleu.")


def load_comet(config: ValidationConfig) -> Comet | None:
    """Load the model in validation.metric_model into main memory, or return None without one. Raise
    `UserError` if the folder has no model that can be read."""
    if not config.metric_model:
        return None
    try:
        return Comet(Path(config.metric_model), "cpu")
    except UserError as error:
        raise UserError(*(f"validation.metric_model: {message}" for message in error.args)) from error


def translating(config: TrainConfig) -> TranslateConfig:
    """Return settings for `nmt translate` with the search in `config`."""
    return TranslateConfig(search=SearchConfig(**asdict(config.search)))


def validation_score(judgement: Judgement, metric: str) -> float:
    """Return the value of a `ValidationMetric`. Negate some, so that larger is better."""
    value = judgement.metrics[metric]
    return -value if metric in SMALLER_IS_BETTER else value


def translated_lines(config: ValidationConfig, split: Split) -> int:
    """Return the number of first sentences to translate: validation.sentences, at most all, or all for 0."""
    return min(config.sentences or len(split), len(split))


def longest_lines(split: Split, count: int, among: int) -> list[int]:
    """Return ascending indices of the `count` longest of the first `among` pairs, by tokens of both sides."""
    source, target = split.lengths(np.arange(among))
    return sorted(np.argsort(-(source + target), kind="stable")[:count].tolist())


def sample_lines(count: int) -> list[int]:
    """Return up to `SAMPLES` line numbers below `count`, evenly spread and ascending, [] for 0."""
    return sorted({(2 * i + 1) * count // (2 * SAMPLES) for i in range(SAMPLES)}) if count else []
