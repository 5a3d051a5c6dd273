"""One or more models whose predictions of each next token are averaged."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.next_token.dispatch import log_softmax
from nmt_cli.errors import UserError
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat
from nmt_cli.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Models with the same vocabularies, each with its weight; the weights sum to 1."""

    models: Sequence[Transformer]
    weights: Sequence[float]
    combine: str
    """Whether the mean is of "probability" or of "log-probability"."""

    @staticmethod
    def of(models: Sequence[Transformer], config: SearchConfig) -> "Ensemble":
        """The models with the settings' weights; `UserError` where the settings do not suit them."""
        weights = config.weights or (1.0,) * len(models)
        if len(weights) != len(models):
            raise UserError(
                f"search.weights has {len(weights)} numbers for {len(models)} models; give one for each."
            )
        if len(models) == 1 and config.combine != "probability":
            raise UserError("search.combine has no effect on one model; leave it out, or name several.")
        return Ensemble(models, [weight / sum(weights) for weight in weights], config.combine)

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return self.models[0].device

    @property
    def vocabulary(self) -> Vocabulary:
        """The target vocabulary that all of them share."""
        return self.models[0].target_vocabulary

    @property
    def longest(self) -> int:
        """The most tokens that a sentence may have on either side, end mark counted; 0 for no limit."""
        return min(filter(None, (model.config.limit for model in self.models)), default=0)

    def start(self, sources: Sequence[Sequence[int]], places: int) -> list[DecodingCache]:
        """Encode `sources`, ids without end marks; returns each model's cache, with `places` places a
        sentence."""
        ended = self.models[0].source_vocabulary.ended
        source_S, source = flat([ended(tokens) for tokens in sources], self.device)
        source = grouped(source)
        return [model.begin(source_S, source, places) for model in self.models]

    def step(self, tokens_R: Tensor, rows_R: Tensor, caches: Sequence[DecodingCache], longest: int) -> Tensor:
        """[R, V]: the log-probability of each token that may follow `tokens_R` at the places `rows_R`, in
        fp32.

        `longest` is the length of the longest hypothesis with its next token.
        """
        each = [
            log_softmax(model.logits(model.step(tokens_R, rows_R, cache, longest)))
            for model, cache in zip(self.models, caches, strict=True)
        ]
        return each[0] if len(each) == 1 else self.mean(torch.stack(each))

    def logits(
        self, tokens_R: Tensor, rows_R: Tensor, caches: Sequence[DecodingCache], longest: int
    ) -> Tensor:
        """As `step`, of a single model, before the softmax, and in the model's numbers."""
        (model,), (cache,) = self.models, caches
        return model.logits(model.step(tokens_R, rows_R, cache, longest))

    def mean(self, each_MRV: Tensor) -> Tensor:
        """[R, V]: the weighted mean of the log-probabilities `each_MRV` of M models, itself
        log-probabilities."""
        weights = torch.tensor(self.weights).to(each_MRV, non_blocking=True)[:, None, None]
        if self.combine == "log-probability":
            return (each_MRV * weights).sum(0)
        # The mean of probabilities without leaving logarithms, where small ones would become 0.
        return (each_MRV + weights.log()).logsumexp(0)
