"""Cutting a global batch: evenly by cost over the ranks, then into micro-batches that fit the device."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.batching.plan import Indices

TARGET_TOKEN = 1.75
"""How much work a target token is, measured in source tokens.

By matrix products of the paper's models, with 37,000 entries: 1.9 (base), 1.4 (big). Decoder layers have one
attention more than the encoder's, and then comes the vocabulary; but source tokens are keys and values twice.
"""

TOKEN_PAIR = 1e-3
"""How much work one query with one key is, measured in source tokens.

By its operations it would be 1/3,600 (base), but attention does fewer of them a second than matrix products.
"""

Lengths = NDArray[np.integer[Any]]


def costs(source_lengths: Lengths, target_lengths: Lengths) -> NDArray[np.float64]:
    """About how much work each pair is, measured in source tokens."""
    source, target = source_lengths.astype(np.float64), target_lengths.astype(np.float64)
    attention = source * source + source * target + target * target / 2
    return source + TARGET_TOKEN * target + TOKEN_PAIR * attention


def share(source_lengths: Lengths, target_lengths: Lengths, world: int) -> list[Indices]:
    """Which pairs each of `world` ranks works on; where pairs are few, the last ranks get none."""
    cost = costs(source_lengths, target_lengths)
    # The costliest pair first, each to the rank with the least work so far: that leaves them nearly even.
    # Every rank computes this for itself, so ties must be broken alike.
    order = np.argsort(-cost, kind="stable")
    loads = [(0.0, rank) for rank in range(world)]
    chosen = np.empty(len(order), dtype=np.int64)
    for pair, work in zip(order.tolist(), cost[order].tolist(), strict=True):
        load, rank = loads[0]
        heapq.heapreplace(loads, (load + work, rank))
        chosen[pair] = rank
    return [np.flatnonzero(chosen == rank) for rank in range(world)]


def micro_batches(source_lengths: Lengths, target_lengths: Lengths, max_tokens: int) -> list[Indices]:
    """Cut pairs into parts of at most `max_tokens` source plus target tokens, long pairs in the first ones.

    The parts are of about equal size. A pair that alone has more tokens is a part of its own.
    """
    tokens = source_lengths.astype(np.int64) + target_lengths
    order = np.argsort(-tokens, kind="stable")
    large = int((tokens > max_tokens).sum())
    return [order[i : i + 1] for i in range(large)] + _even_parts(
        order[large:], tokens[order[large:]], max_tokens
    )


def _even_parts(pairs: Indices, tokens: Indices, max_tokens: int) -> list[Indices]:
    """Cut `pairs` into runs of about equal tokens, as few as will do; no single pair has more than
    `max_tokens`."""
    if not len(pairs):
        return []
    ends = np.cumsum(tokens)
    total = int(ends[-1])
    count = -(-total // max_tokens)
    while True:
        part = (2 * ends - tokens) * count // (2 * total)  # by where the middle of a pair lies in the whole
        if np.bincount(part, weights=tokens).max() <= max_tokens:
            return np.split(pairs, np.flatnonzero(np.diff(part)) + 1)
        # A pair across the border of two parts made one too large: with one part more there is room.
        count += 1
