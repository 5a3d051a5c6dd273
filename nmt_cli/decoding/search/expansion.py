"""How hypotheses go on: the best ways over all of a sentence's beam, or each by lot.

R rows, the places in use of B sentences with N places each, and V entries of the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.next_token.dispatch import top
from nmt_cli.decoding.search.beams import Choice


def best(log_probs_RV: Tensor, rows_R: Tensor, totals_BN: Tensor, end: int, diversity: float = 0.0) -> Choice:
    """See `best_of`; of all tokens."""
    ways = top(log_probs_RV, ways_on(totals_BN.shape[1], log_probs_RV.shape[1]))
    return best_of(*ways, rows_R, totals_BN, end, diversity)


def ways_on(places: int, entries: int) -> int:
    """How many of a row's likeliest tokens `best_of` must know: one of them may be its end."""
    return min(places + 1, entries)


def best_of(
    steps_RW: Tensor,
    tokens_RW: Tensor,
    rows_R: Tensor,
    totals_BN: Tensor,
    end: int,
    diversity: float = 0.0,
) -> Choice:
    """The likeliest ways on: N that go on, and those that end, with `end`, among the N likeliest.

    `steps_RW` are the highest log-probabilities of each row, and `tokens_RW` their tokens.

    A single hypothesis has ended when its end is the likeliest way: that is greedy search. With `diversity`,
    the second way on of each hypothesis is chosen as if its total were less by that, the third by twice
    that, and so on: so more hypotheses have children (Li et al. 2016).
    """
    (sentences, places), width = totals_BN.shape, steps_RW.shape[1]
    totals_RW = steps_RW + totals_BN.flatten()[rows_R, None]
    if len(rows_R) < sentences * places:
        nowhere = totals_RW.new_full((sentences * places, width), -torch.inf)
        totals_RW = nowhere.index_copy_(0, rows_R, totals_RW)
        tokens_RW = tokens_RW.new_zeros(sentences * places, width).index_copy_(0, rows_R, tokens_RW)
    totals_BW = totals_RW.view(sentences, -1)
    ranked_BW = totals_BW - diversity * _ranks(totals_BW, width) if diversity else totals_BW
    # Each of N hypotheses can end in one way only, so of 2N ways at least N go on.
    ranked, where = ranked_BW.topk(min(2 * places, places * width))
    totals = totals_BW.gather(1, where) if diversity else ranked
    tokens, parents = tokens_RW.view(sentences, -1).gather(1, where), where // width
    ends = tokens == end
    ended = totals[:, :places].masked_fill(~ends[:, :places], -torch.inf)
    live, order = ranked.masked_fill(ends, -torch.inf).topk(places)
    if diversity:
        live = totals.gather(1, order).masked_fill(live == -torch.inf, -torch.inf)
    if places == 1:
        live = live.masked_fill(ended > -torch.inf, -torch.inf)
    return Choice(ended, parents[:, :places], live, parents.gather(1, order), tokens.gather(1, order))


def _ranks(totals_BW: Tensor, width: int) -> Tensor:
    """Of each way among those of its hypothesis, from 0."""
    return torch.arange(totals_BW.shape[1], device=totals_BW.device) % width


def drawn(
    log_probs_RV: Tensor,
    rows_R: Tensor,
    totals_BN: Tensor,
    chances_R: Tensor,
    config: SearchConfig,
    end: int,
) -> Choice:
    """One way on for each hypothesis, drawn by a number from 0 to 1; totals are the model's own."""
    shaped = (log_probs_RV / config.temperature).softmax(-1)
    ordered, tokens = shaped.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    # By what stands before a token, so that the likeliest is always kept.
    keep = before < config.top_p
    if config.top_k:
        keep[:, config.top_k :] = False
    kept = ordered * keep
    upto = kept.cumsum(-1)
    place = (upto <= chances_R[:, None] * upto[:, -1:]).sum(-1, keepdim=True)
    # Rounding may put the lot behind the last token that is kept.
    last = (kept > 0).sum(-1, keepdim=True) - 1
    token_R1 = tokens.gather(1, place.minimum(last))
    total_R = log_probs_RV.gather(1, token_R1)[:, 0] + totals_BN.flatten()[rows_R]
    nowhere = torch.full_like(totals_BN, -torch.inf).flatten()
    totals = nowhere.index_copy(0, rows_R, total_R).view_as(totals_BN)
    chosen = torch.zeros_like(nowhere, dtype=torch.int64).index_copy_(0, rows_R, token_R1[:, 0])
    ends = chosen.view_as(totals_BN) == end
    parents = torch.arange(totals.shape[1], device=totals.device).expand_as(totals)
    ended, live = (totals.masked_fill(without, -torch.inf) for without in (~ends, ends))
    return Choice(ended, parents, live, parents, chosen.view_as(totals_BN))


def random_draws(
    seed: int, keys: Sequence[int], slots: NDArray[np.int64], ages: Sequence[int]
) -> NDArray[np.float32]:
    """Return a number from 0 to 1 for each row. It does not depend on what else is in the batch."""
    mixed = np.full(len(keys), seed, dtype=np.uint64)
    for part in (keys, slots, ages):
        mixed = _mixed(mixed ^ np.asarray(part, dtype=np.uint64))
    # The upper 24 bits: as many as the mantissa of an fp32 holds, so 1 is never reached.
    shares: NDArray[np.float32] = (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
    return shares


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
