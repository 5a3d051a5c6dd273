"""Forced decoding: the log-probability of each token of given translations."""

from collections.abc import Iterator, Sequence

import torch

from nmt_cli.attention.groups import grouped
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.ragged import flat

Pair = tuple[Sequence[int], Sequence[int]]
"""Source and target as ids, without end tokens."""

TOKENS = 2048
"""Maximum source plus target tokens of a batch. Log-probabilities of all vocabulary entries are in memory."""


@torch.inference_mode()
def token_scores(ensemble: Ensemble, pairs: Sequence[Pair]) -> list[list[float]]:
    """Return for each pair the log-probabilities of its target tokens, then that of the end token."""
    results: dict[int, list[float]] = {}
    for numbers in _batches(pairs):
        batch = [pairs[number] for number in numbers]
        model = ensemble.models[0]
        vocabularies = model.source_vocabulary, model.target_vocabulary
        (source_S, source), (target_T, target) = (
            flat([vocabulary.ended(pair[side]) for pair in batch], ensemble.device)
            for side, vocabulary in enumerate(vocabularies)
        )
        source, target = grouped(source), grouped(target, source)
        # All models of an ensemble share their vocabularies, so the ids suit each of them.
        log_probs = [
            model.logits(model(source_S, target_T, source, target)).float().log_softmax(-1)  # as in a search
            for model in ensemble.models
        ]
        log_probs_TV = log_probs[0] if len(log_probs) == 1 else ensemble.mean(torch.stack(log_probs))
        scores_T = log_probs_TV.gather(1, target_T[:, None])[:, 0].tolist()
        for number, tokens in zip(numbers, target.slices(), strict=True):
            results[number] = scores_T[tokens]
    return [results[number] for number in range(len(pairs))]


def _batches(pairs: Sequence[Pair]) -> Iterator[list[int]]:
    """Yield the indices of pairs in batches, by ascending target length.

    A batch has at most `TOKENS` source and target tokens together, with end tokens. A longer pair is a batch
    alone.
    """
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
