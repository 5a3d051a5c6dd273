"""The choice of continuations: the best of a sentence's beam, or one random draw per hypothesis.

A continuation is a parent slot and a token. R rows are the slots in use of B sentences with N slots each. W
candidates of a row, V entries of the vocabulary. A total is a sum of log-probabilities.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.beams import Continuations


def best(log_probs_RV: Tensor, rows_R: Tensor, totals_BN: Tensor, end: int) -> Continuations:
    """Choose the best continuations of each sentence: N that stay live, and those that finish.

    log_probs_RV: log-probabilities of the next token.
    rows_R: the numbers of the slots in use.
    totals_BN: the totals of all slots.
    end: the end token. A continuation by it finishes if it is among the N best of the sentence, and is left
        out otherwise.

    With one slot, nothing stays live if `end` is likeliest.
    """
    sentences, slots = totals_BN.shape
    width = min(slots + 1, log_probs_RV.shape[1])  # one candidate per slot, and an end token
    steps_RW, tokens_RW = log_probs_RV.topk(width)
    totals_RW = steps_RW + totals_BN.flatten()[rows_R, None]
    if len(rows_R) < sentences * slots:
        unused = totals_RW.new_full((sentences * slots, width), -torch.inf)
        totals_RW = unused.index_copy_(0, rows_R, totals_RW)
        tokens_RW = tokens_RW.new_zeros(sentences * slots, width).index_copy_(0, rows_R, tokens_RW)
    totals_BW = totals_RW.view(sentences, -1)
    # A hypothesis has only one continuation that ends, so at least N of 2N continuations do not.
    totals, indices = totals_BW.topk(min(2 * slots, slots * width))
    tokens, parents = tokens_RW.view(sentences, -1).gather(1, indices), indices // width
    ends = tokens == end
    ended = totals[:, :slots].masked_fill(~ends[:, :slots], -torch.inf)
    live, order = totals.masked_fill(ends, -torch.inf).topk(slots)
    if slots == 1:
        live = live.masked_fill(ended > -torch.inf, -torch.inf)
    return Continuations(ended, parents[:, :slots], live, parents.gather(1, order), tokens.gather(1, order))


def drawn(
    log_probs_RV: Tensor, rows_R: Tensor, totals_BN: Tensor, draws_R: Tensor, config: SearchConfig, end: int
) -> Continuations:
    """Draw one continuation of each hypothesis at random. The token `end` finishes it.

    draws_R: the random number of each row, in [0, 1).
    config: `top_k` limits the draw to the likeliest tokens. Totals add the unchanged log-probabilities.
    totals_BN: the totals of all slots.
    """
    ordered, tokens = log_probs_RV.softmax(-1).sort(-1, descending=True)
    if config.top_k:
        ordered[:, config.top_k :] = 0
    cumulative = ordered.cumsum(-1)
    drawn_R1 = (cumulative <= draws_R[:, None] * cumulative[:, -1:]).sum(-1, keepdim=True)
    # Rounding may draw an index after the last allowed token.
    last = (ordered > 0).sum(-1, keepdim=True) - 1
    token_R1 = tokens.gather(1, drawn_R1.minimum(last))
    total_R = log_probs_RV.gather(1, token_R1)[:, 0] + totals_BN.flatten()[rows_R]
    unused = torch.full_like(totals_BN, -torch.inf).flatten()
    totals = unused.index_copy(0, rows_R, total_R).view_as(totals_BN)
    chosen = torch.zeros_like(unused, dtype=torch.int64).index_copy_(0, rows_R, token_R1[:, 0])
    ends = chosen.view_as(totals_BN) == end
    parents = torch.arange(totals.shape[1], device=totals.device).expand_as(totals)
    ended, live = (totals.masked_fill(excluded, -torch.inf) for excluded in (~ends, ends))
    return Continuations(ended, parents, live, parents, chosen.view_as(totals_BN))


def random_draws(
    seed: int, keys: Sequence[int], slots: NDArray[np.int64], ages: Sequence[int]
) -> NDArray[np.float32]:
    """Return for each row a random number in [0, 1): a hash of `seed`, the row's key, slot and age."""
    mixed = np.full(len(keys), seed, dtype=np.uint64)
    for part in (keys, slots, ages):
        # The finaliser of splitmix64.
        mixed = (mixed ^ np.asarray(part, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    # An fp32 mantissa holds the upper 24 bits exactly, so the result never rounds to 1.
    draws: NDArray[np.float32] = (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
    return draws
