"""What a hypothesis may not write, or is to write less gladly, because of what it has written.

R rows, each a hypothesis of so many tokens (`ages_R`) in `tokens_RT`, and V entries of the vocabulary. All
functions change the log-probabilities of the next token, [R, V], in place; none touches the end mark.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Bans = Mapping[tuple[int, ...], Sequence[int]]
"""Ids that may not follow such a row of ids; behind the empty row, those that are never written."""


def bans_of(sequences: Sequence[Sequence[int]]) -> Bans:
    """What keeps `sequences` from being written as a whole."""
    bans: dict[tuple[int, ...], list[int]] = {}
    for *before, last in sequences:
        bans.setdefault(tuple(before), []).append(last)
    return bans


def ban_sequences(
    log_probs_RV: Tensor, tokens_RT: Tensor, ages_R: Tensor, bans_R: Sequence[Bans], end: int
) -> None:
    """Forbid what would complete a banned sequence."""
    rows: list[int] = []
    ids: list[int] = []
    for row, (tokens, age) in enumerate(zip(tokens_RT.tolist(), ages_R.tolist(), strict=True)):
        for length in {len(before) for before in bans_R[row]}:
            banned = bans_R[row].get(tuple(tokens[age - length : age]), ()) if length <= age else ()
            rows += [row] * len(banned)
            ids += banned
    # Were the end banned, a hypothesis would have to go on to its longest.
    ends_R = log_probs_RV[:, end].clone()
    log_probs_RV[rows, ids] = -torch.inf
    log_probs_RV[:, end] = ends_R


def ban_repeated(log_probs_RV: Tensor, tokens_RT: Tensor, ages_R: Tensor, size: int, end: int) -> None:
    """Forbid what would complete a row of `size` tokens that the hypothesis has already."""
    if tokens_RT.shape[1] < size:
        return
    rows_RWN = tokens_RT.unfold(1, size, 1)
    newest = ages_R[:, None] - size + 1 + torch.arange(size - 1, device=ages_R.device)
    last_RM = tokens_RT.gather(1, newest.clamp(min=0))
    starts_W = torch.arange(rows_RWN.shape[1], device=ages_R.device)
    written_RW = starts_W <= ages_R[:, None] - size
    again_RW = (rows_RWN[:, :, :-1] == last_RM[:, None]).all(-1) & written_RW
    banned_RV = torch.zeros_like(log_probs_RV, dtype=torch.bool)
    # Windows that do not match point at the end mark, which is allowed again below.
    banned_RV.scatter_(1, rows_RWN[:, :, -1].masked_fill(~again_RW, end), True)
    banned_RV[:, end] = False
    log_probs_RV.masked_fill_(banned_RV, -torch.inf)


def penalise_repeated(
    log_probs_RV: Tensor, tokens_RT: Tensor, ages_R: Tensor, penalty: float, end: int
) -> None:
    """Multiply the log-probabilities of what the hypothesis has already by `penalty`."""
    places_T = torch.arange(tokens_RT.shape[1], device=ages_R.device)
    written_RT = places_T < ages_R[:, None]
    # What is not written yet counts as the end mark, whose factor is 1.
    seen_RT = tokens_RT.masked_fill(~written_RT, end)
    factors_RT = torch.where(seen_RT == end, 1.0, penalty)
    # A token written twice is penalised once: both of its entries have the same value.
    log_probs_RV.scatter_(1, seen_RT, log_probs_RV.gather(1, seen_RT) * factors_RT)
