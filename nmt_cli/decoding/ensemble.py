"""An ensemble of one or more models, which averages their predictions of the next token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat
from nmt_cli.text.vocabulary import Vocabulary


def limit_of(models: Sequence[Transformer]) -> int:
    """Return the `limit` of tokens of a sentence that suits every model, or 0 without a limit."""
    return min(filter(None, (model.config.limit for model in models)), default=0)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Models with the same vocabularies, each with the same weight."""

    models: Sequence[Transformer]

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return self.models[0].device

    @property
    def vocabulary(self) -> Vocabulary:
        """The target vocabulary, which all models share."""
        return self.models[0].target_vocabulary

    @property
    def longest(self) -> int:
        """Maximum source or target tokens, with the end token, that every model can take. 0 is no limit."""
        return limit_of(self.models)

    def start(self, sources: Sequence[Sequence[int]], slots: int) -> list[DecodingCache]:
        """Encode `sources`, ids without end tokens. Return each model's cache, with `slots` slots per
        sentence."""
        ended = self.models[0].source_vocabulary.ended
        source_S, source = flat([ended(tokens) for tokens in sources], self.device)
        source = grouped(source)
        return [model.begin(source_S, source, slots) for model in self.models]

    def step(self, tokens_R: Tensor, rows_R: Tensor, caches: Sequence[DecodingCache], longest: int) -> Tensor:
        """Return [R, V]: log-probabilities in fp32 of the token after each of `tokens_R`. Extend the caches.

        `rows_R` has the number of each token's slot, ascending. Each hypothesis in use has at most `longest`
        tokens after the step. Several models are averaged as in `mean`.
        """
        log_probs = [
            # The conversion to float32 is part of the operation: a copy would be as large as the result.
            model.logits(model.step(tokens_R, rows_R, cache, longest)).log_softmax(-1, dtype=torch.float32)
            for model, cache in zip(self.models, caches, strict=True)
        ]
        return log_probs[0] if len(log_probs) == 1 else self.mean(torch.stack(log_probs))

    def mean(self, log_probs_MRV: Tensor) -> Tensor:
        """Return log-probabilities [R, V]: the logarithms of the mean of M models' probabilities."""
        weight = torch.tensor(1 / len(self.models)).to(log_probs_MRV, non_blocking=True)
        # The mean of probabilities in the log domain: small probabilities would underflow.
        return (log_probs_MRV + weight.log()).logsumexp(0)
