"""Divides a global batch: evenly by cost over the ranks, then into micro-batches that fit the device."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.batching.plan import Indices

TARGET_TOKEN = 1.75
"""The cost of a target token, in source tokens.

The matrix products of the paper's models with 37,000 vocabulary entries give 1.9 (base) and 1.4 (big).
Decoder layers have one more attention than encoder layers, and the output layer adds to it. Source tokens are
keys and values twice.
"""

TOKEN_PAIR = 1e-3
"""The cost of one query with one key, in source tokens.

Its operations alone give 1/3,600 (base), but attention runs at a lower rate than matrix products.
"""

Lengths = NDArray[np.integer[Any]]


def costs(source_lengths: Lengths, target_lengths: Lengths) -> NDArray[np.float64]:
    """Return the approximate cost of each pair in source tokens. Attention adds a quadratic part."""
    source, target = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    attention = source * source + source * target + target * target / 2
    return source + TARGET_TOKEN * target + TOKEN_PAIR * attention


def share(source_lengths: Lengths, target_lengths: Lengths, world: int) -> list[Indices]:
    """Divide pairs among `world` ranks at about equal cost. Return the row numbers of each rank's pairs,
    ascending.

    The result depends on the lengths only, so each rank computes the same one without asking the others. With
    fewer pairs than ranks, some ranks get none.
    """
    cost = costs(source_lengths, target_lengths)
    # Each pair goes to the rank with the lowest cost so far, expensive pairs first. This is nearly even.
    # All ranks compute this, so ties must be broken in the same way.
    order = np.argsort(-cost, kind="stable")
    loads = [(0.0, rank) for rank in range(world)]
    chosen = np.empty(len(order), dtype=np.int64)
    for pair, work in zip(order.tolist(), cost[order].tolist(), strict=True):
        load, rank = loads[0]
        heapq.heapreplace(loads, (load + work, rank))
        chosen[pair] = rank
    return [np.flatnonzero(chosen == rank) for rank in range(world)]


def micro_batches(source_lengths: Lengths, target_lengths: Lengths, max_tokens: int) -> list[Indices]:
    """Return the row numbers of each micro-batch, longest pairs first.

    A micro-batch has at most `max_tokens` source plus target tokens. A pair that is longer is alone in one.
    The others have about equal tokens, so that none is nearly empty.
    """
    tokens = source_lengths.astype(np.int64) + target_lengths
    order = np.argsort(-tokens, kind="stable")
    large = int((tokens > max_tokens).sum())
    return [order[i : i + 1] for i in range(large)] + _even_parts(
        order[large:], tokens[order[large:]], max_tokens
    )


def _even_parts(pairs: Indices, tokens: Indices, max_tokens: int) -> list[Indices]:
    """Cut `pairs` in order into few parts of about equal tokens, each with at most `max_tokens`.

    `tokens` has the tokens of each pair, of which none exceeds `max_tokens`. Without pairs, there are no
    parts.
    """
    if not len(pairs):
        return []
    ends = np.cumsum(tokens)
    total = int(ends[-1])
    count = -(-total // max_tokens)
    while True:
        part = (2 * ends - tokens) * count // (2 * total)  # by the position of each pair's middle
        if np.bincount(part, weights=tokens).max() <= max_tokens:
            return np.split(pairs, np.flatnonzero(np.diff(part)) + 1)
        # A pair at the border of two parts made one too large. One more part gives space.
        count += 1
