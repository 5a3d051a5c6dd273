"""Forced decoding: the log-probability of each token of given translations."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout, flat

Pair = tuple[Sequence[int], Sequence[int]]
"""Source and target as ids, without end marks."""

TOKENS = 2048
"""Most source plus target tokens of a batch: their log-probabilities over the whole vocabulary are held."""


@torch.inference_mode()
def token_scores(ensemble: Ensemble, pairs: Sequence[Pair]) -> list[list[float]]:
    """For each pair the log-probability of each target token, and of the end mark."""
    found: dict[int, list[float]] = {}
    for part in _batches(pairs):
        some = [pairs[number] for number in part]
        model = ensemble.models[0]
        vocabularies = model.source_vocabulary, model.target_vocabulary
        (source_S, source), (target_T, target) = (
            flat([vocabulary.ended(pair[side]) for pair in some], ensemble.device)
            for side, vocabulary in enumerate(vocabularies)
        )
        source, target = grouped(source), grouped(target, source)
        # All models of an ensemble share their vocabularies, so the ids serve each of them.
        each = [_log_probs(model, source_S, target_T, source, target) for model in ensemble.models]
        log_probs_TV = each[0] if len(each) == 1 else ensemble.mean(torch.stack(each))
        scores_T = log_probs_TV.gather(1, target_T[:, None])[:, 0].tolist()
        for number, tokens in zip(part, target.slices(), strict=True):
            found[number] = scores_T[tokens]
    return [found[number] for number in range(len(pairs))]


def _log_probs(
    model: Transformer, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout
) -> Tensor:
    """[T, V], fp32."""
    decoded_TD = model(source_S, target_T, source, target)
    return model.logits(decoded_TD).float().log_softmax(-1)  # in fp32, as a search has them


def _batches(pairs: Sequence[Pair]) -> Iterator[list[int]]:
    """Numbers of pairs of like length, at least one pair at a time."""
    batch: list[int] = []
    tokens = 0
    for number in sorted(range(len(pairs)), key=lambda i: len(pairs[i][1])):
        more = len(pairs[number][0]) + len(pairs[number][1]) + 2
        if batch and tokens + more > TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += more
    if batch:
        yield batch
