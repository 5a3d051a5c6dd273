"""Judging a model on validation sets: loss on the references, and scores of its own translations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt_cli.data.batch import assemble
from nmt_cli.data.cut import micro_batches
from nmt_cli.data.dataset import Dataset, Split, raw_lines
from nmt_cli.data.plan import Indices
from nmt_cli.decoding.greedy import greedy
from nmt_cli.loss.dispatch import cross_entropy
from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.metrics import Score, score
from nmt_cli.text.subwords import UNKNOWN
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.distributed import Group
from nmt_cli.training.step import Precision


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


@dataclass(frozen=True, slots=True)
class Judge:
    """Knows the validation sets; the work is shared among the ranks, and each learns the result."""

    dataset: Dataset
    tokenizers: Tokenizers
    config: ValidationConfig
    group: Group
    precision: Precision

    @property
    def sets(self) -> list[Split]:
        """The validation sets, in the order in which they were given."""
        return [split for split in self.dataset.splits.values() if split.role == "valid"]

    @torch.no_grad()
    def judge(self, model: Transformer, split: Split) -> Judgement:
        """Loss on all pairs of a set, and scores of the translations."""
        training = model.training
        model.eval()
        losses: list[tuple[float, int]] = []
        translations: dict[int, str] = {}
        count = min(self.config.sentences or len(split), len(split))
        for part in self._share(split):
            losses.append(self._loss(model, split, part))
            translations |= self._translate(model, split, part[part < count])
        model.train(training)
        gathered = self.group.gather((losses, translations))
        nll, tokens = np.sum([loss for theirs, _ in gathered for loss in theirs], axis=0).tolist()
        everything = {line: text for _, theirs in gathered for line, text in theirs.items()}
        return self._judgement(split, nll, int(tokens), [everything[line] for line in range(count)])

    def _share(self, split: Split) -> list[Indices]:
        lengths = [np.diff(side.offsets) for side in (split.source, split.target)]
        parts = micro_batches(lengths[0], lengths[1], self.config.max_tokens)
        return parts[self.group.place.rank :: self.group.place.world]

    def _loss(self, model: Transformer, split: Split, pairs: Indices) -> tuple[float, int]:
        part = assemble(split, pairs).to(self.group.device)
        with self.precision.autocast():
            decoded = model(part.source_tokens, part.target_tokens.roll(1), part.source, part.target)
            losses = cross_entropy(
                decoded.to(self.precision.dtype), model.output_matrix, part.labels, smoothing=0.0
            )
        return float(losses.nll), part.real_target_tokens

    def _translate(self, model: Transformer, split: Split, pairs: Indices) -> dict[int, str]:
        if not len(pairs):
            return {}
        part = assemble(split, pairs).to(self.group.device)
        entries = self.tokenizers.target.entries
        never = [UNKNOWN, *(i for i, entry in enumerate(entries) if not entry)]
        with self.precision.autocast():
            banned = torch.tensor(never, device=self.group.device)
            found = greedy(model, part.source_tokens, part.source, banned)
        target = self.tokenizers.target
        texts = [target.restore(target.decode(ids)) for ids in found]
        return dict(zip(pairs.tolist(), texts, strict=True))

    def _judgement(self, split: Split, nll: float, tokens: int, translations: list[str]) -> Judgement:
        references = raw_lines(self.dataset, split, "target")
        words = sum(len(line.split()) + 1 for line in references)
        scores = score(translations, [references[: len(translations)]])
        return Judgement(
            name=split.name,
            nll=nll / tokens,
            perplexity=_exp(nll / tokens),
            word_perplexity=_exp(nll / words),
            scores=scores,
            translations=translations,
        )


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
