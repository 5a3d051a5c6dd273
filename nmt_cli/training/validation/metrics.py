"""Judging a model on validation sets: loss on the references, and scores of its own translations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from nmt_cli.data.batching.batch import assemble
from nmt_cli.data.batching.cut import micro_batches
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.dataset import Dataset, Sentences, Split, raw_lines
from nmt_cli.decoding.config import InputConfig, OutputConfig, SearchConfig, TranslateConfig
from nmt_cli.loss.dispatch import cross_entropy
from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.config import BleuConfig, ScoreConfig
from nmt_cli.scoring.metrics import Score, characters_instead, score
from nmt_cli.scoring.perplexity import perplexity
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.training.config import TrainConfig, ValidationConfig
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.translation.translator import Translator

SAMPLES = 8
"""Sentences of a set whose translations are kept, to be compared over the run."""


MAX_TOKENS = 8192
"""Source plus target tokens whose loss is computed at a time."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one validation set says of the model."""

    name: str
    nll: float
    """Of a target token, end marks counted, without smoothing."""

    perplexity: float
    word_perplexity: float
    """The same loss, for each word between blanks of the raw text, and for each end of a sentence."""

    scores: Sequence[Score]
    """Against the raw references."""

    translations: Sequence[str]
    subset: str = ""
    """The sentences that were translated, if not all: "300 of 1,014 sentences"."""

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric, by the name that `validation.watched` knows."""
        losses = {"nll": self.nll, "perplexity": self.perplexity, "word-perplexity": self.word_perplexity}
        return losses | {score.metric: score.value for score in self.scores}

    def line(self) -> dict[str, Any]:
        """What the log keeps of it besides the step and the name of the set."""
        samples = sample_lines(len(self.translations))
        return {
            "nll": self.nll,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            **{score.metric: score.value for score in self.scores},
            "samples": {str(line): self.translations[line] for line in samples},
            **({"scored_on": self.subset} if self.subset else {}),
            "signatures": {score.metric: score.signature for score in self.scores},
        }


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges a model on validation sets; the ranks share the work, and each of them has the whole result."""

    dataset: Dataset
    tokenizers: Tokenizers
    config: ValidationConfig
    translate: TranslateConfig
    group: Group
    precision: MixedPrecision

    @property
    def sets(self) -> list[Split]:
        """The validation sets, in the order in which they were given."""
        return [split for split in self.dataset.splits.values() if split.role == "valid"]

    @property
    def in_characters(self) -> str | None:
        """Why BLEU counts characters though nobody asked for it; None where it does not."""
        config = ScoreConfig(bleu=BleuConfig(tokenizer=self.config.bleu_tokenizer))
        return characters_instead(config, self.tokenizers.recipe.target_lang)

    @torch.no_grad()
    def judge(self, model: Transformer, split: Split, only: Sequence[int] | None = None) -> Judgement:
        """Loss on all pairs of a set, and scores of the translations; or on those pairs `only`."""
        training = model.training
        model.eval()
        losses: list[tuple[float, int]] = []
        lines = range(translated_lines(self.config, split)) if only is None else only
        pairs = split if only is None else picked(split, only)
        for part in self._share(pairs):
            losses.append(self._loss(model, pairs, part))
        translations = self._translate(model, split, lines)
        model.train(training)
        self.group.meet("validating")  # sentences of one rank may take minutes more than another's
        gathered = self.group.gather((losses, translations))
        nll, tokens = np.sum([loss for theirs, _ in gathered for loss in theirs], axis=0).tolist()
        # Each rank took every so-many-th line, so they have to be put in order again.
        everything = {line: text for _, theirs in gathered for line, text in theirs.items()}
        return self._judgement(split, nll, int(tokens), {line: everything[line] for line in lines})

    def _share(self, split: Split) -> list[Indices]:
        lengths = [np.diff(side.offsets) for side in (split.source, split.target)]
        parts = micro_batches(lengths[0], lengths[1], MAX_TOKENS)
        return parts[self.group.process.rank :: self.group.process.world]

    def _loss(self, model: Transformer, split: Split, pairs: Indices) -> tuple[float, int]:
        part = assemble(split, pairs).to(self.group.device)
        with self.precision.autocast():
            decoded = model(part.source_tokens, part.target_tokens, part.source, part.target)
            projected = model.projected(decoded.to(self.precision.dtype))
            losses = cross_entropy(*projected, part.labels, smoothing=0.0)
        return float(losses.nll), part.real_target_tokens

    def _translate(self, model: Transformer, split: Split, lines: Sequence[int]) -> dict[int, str]:
        """Of these lines those of this rank, as `nmt translate` does it."""
        process = self.group.process
        mine = lines[process.rank :: process.world]
        raw = raw_lines(self.dataset, split, "source")
        translator = Translator(self.tokenizers, [model], self.translate)
        with self.precision.autocast():
            found = translator.translate([model], [raw[line] for line in mine])
        return {line: translation.text for line, translation in zip(mine, found, strict=True)}

    def _judgement(self, split: Split, nll: float, tokens: int, translated: Mapping[int, str]) -> Judgement:
        references, translations = raw_lines(self.dataset, split, "target"), [*translated.values()]
        words = sum(len(line.split()) + 1 for line in references)  # comparable whatever the vocabulary
        lang = self.tokenizers.recipe.target_lang
        bleu = BleuConfig(tokenizer="char" if self.in_characters else self.config.bleu_tokenizer)
        config = ScoreConfig(bleu=bleu)
        scores = score(translations, [[references[line] for line in translated]], config=config, lang=lang)
        return Judgement(
            name=split.name,
            nll=nll / tokens,
            perplexity=perplexity(nll, tokens),
            word_perplexity=perplexity(nll, words),
            scores=scores,
            translations=translations,
            subset=f"{len(translations):,} of {len(split):,} sentences"
            if len(translations) < len(split)
            else "",
        )


def translating(config: TrainConfig) -> TranslateConfig:
    """How `nmt translate` would treat the lines, with the model of such a run."""
    search = SearchConfig(**asdict(config.search))
    return TranslateConfig(
        search=search,
        # That setting counts pieces alone, without end mark.
        input=InputConfig(longest=longest_sentence(config) - 1),
        output=OutputConfig(trees="linearised"),  # as the references are
    )


def longest_sentence(config: TrainConfig) -> int:
    """The most tokens of a sentence that is trained on, end mark counted."""
    return min(config.batch.longest, config.batch.tokens)


def validation_score(judgement: Judgement, metric: str) -> float:
    """What the best checkpoint is best at, larger ones better."""
    if metric == "nll":
        return -judgement.nll
    return next(score.value for score in judgement.scores if score.metric == metric)


def translated_lines(config: ValidationConfig, split: Split) -> int:
    """How many sentences of a set, from its first on, are translated."""
    return min(config.sentences or len(split), len(split))


def longest_lines(split: Split, count: int, among: int) -> list[int]:
    """So many of the first lines of a set, those with most tokens on both sides, in order."""
    tokens = np.diff(split.source.offsets[: among + 1]) + np.diff(split.target.offsets[: among + 1])
    return sorted(np.argsort(-tokens, kind="stable")[:count].tolist())


def picked(split: Split, lines: Sequence[int]) -> Split:
    """These lines of a set, as a set of its own."""
    sides = []
    for side in (split.source, split.target):
        parts = [side.tokens[side.offsets[line] : side.offsets[line + 1]] for line in lines]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        sides.append(Sentences(np.concatenate(parts), offsets))
    return Split(split.name, split.role, *sides)


def sample_lines(count: int) -> list[int]:
    """The lines, of so many translated ones, whose translations are kept: always the same, far apart."""
    return sorted({(2 * i + 1) * count // (2 * SAMPLES) for i in range(SAMPLES)}) if count else []
