"""A step of a search: the probabilities of the next tokens, the rules, the choice and the reordering."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.beams import Beams, LengthRule
from nmt_cli.decoding.search.expansion import best, drawn
from nmt_cli.decoding.search.plan import StepPlan
from nmt_cli.model.cache import DecodingCache

Caches = Sequence[DecodingCache]
"""The decoding cache of each model of the ensemble."""


class Stepper:
    """Extends the hypotheses of a batch by a token, as a sequence of PyTorch operations."""

    def __init__(self, ensemble: Ensemble, config: SearchConfig, waits: bool = True) -> None:
        """Make a stepper. If `waits` is false, the host does not wait for the device."""
        self._ensemble, self._config, self._waits = ensemble, config, waits
        self._length_rule = LengthRule(config.length_rule, config.length_penalty)
        vocabulary = ensemble.vocabulary
        self._end = vocabulary.end
        banned = {*vocabulary.never} if config.unknown else {*vocabulary.never, vocabulary.unknown}
        self._banned = torch.tensor(sorted(banned), dtype=torch.int64, device=ensemble.device)
        spaces = vocabulary.spaces if config.min_length else []
        self._spaces = torch.tensor(spaces, dtype=torch.int64, device=ensemble.device)

    def step(self, plan: StepPlan, beams: Beams, caches: Caches) -> None:
        """Carry out a plan: extend each hypothesis in `beams` by a token, and reorder the caches.

        Tokens are drawn, or are the best of each sentence. If they are not drawn, hypotheses that cannot win
        are dropped. With search.stop_early, a sentence with as many finished hypotheses as the beam is wide
        drops all others.
        """
        config, log_probs_RV = self._config, self._log_probs(plan, caches)
        if plan.draws_R is None:
            chosen = best(log_probs_RV, plan.rows_R, beams.totals, self._end)
        else:
            draws_R = _on(log_probs_RV.device, plan.draws_R)
            chosen = drawn(log_probs_RV, plan.rows_R, beams.totals, draws_R, config, self._end)
        beams.follow(chosen, self._length_rule, self._waits)
        if not config.sample:  # samples do not compete
            beams.give_up_hopeless(self._length_rule, config.reach)
            if config.stop_early:
                beams.give_up_where_enough_ended(config.beam)
        for cache in caches:
            cache.reorder(chosen.live_parents, beams.in_use)

    def _log_probs(self, plan: StepPlan, caches: Caches) -> Tensor:
        """Extend the caches, and return the log-probabilities of the next tokens, [R, V]. A forbidden token
        has -inf.

        - Forbidden are banned tokens, an end that is too early or, with a minimum length, follows a space,
          and what the rules of `history` forbid.
        - If the rules leave no token to a row, the row may end.
        - A row with a forced token may only take this one, even if it is banned.
        - A sentence with terms may only take the continuations that its beam takes.
        """
        x_RV = self._ensemble.step(plan.newest_R, plan.rows_R, caches, plan.longest)
        if plan.forced:
            rows = np.flatnonzero(plan.forced.tokens_R >= 0)
            chosen = rows, plan.forced.tokens_R[rows], plan.forced.certain_R[rows]
            rows_F, tokens_F, certain_F = (_on(x_RV.device, array) for array in chosen)
            # Read before tokens are banned: a prefix may have tokens that the settings forbid.
            forced_F = x_RV[rows_F, tokens_F] * ~certain_F
        x_RV.index_fill_(1, self._banned, -torch.inf)
        ends_R = x_RV[:, self._end].clone()
        if plan.too_early_R is not None:
            x_RV[:, self._end].masked_fill_(_on(x_RV.device, plan.too_early_R), -torch.inf)
        if len(self._spaces):
            x_RV[:, self._end].masked_fill_(torch.isin(plan.newest_R, self._spaces), -torch.inf)
        if plan.history:
            for rule in plan.history.rules:
                rule(x_RV, plan.history, self._end)
            # A hypothesis to which the rules leave no token ends, even if it is too early.
            nothing_left_R, new_ends_R = (x_RV == -torch.inf).all(1), x_RV[:, self._end]
            new_ends_R.copy_(torch.where(nothing_left_R, ends_R, new_ends_R))
        if plan.forced:
            x_RV.index_fill_(0, rows_F, -torch.inf).index_put_((rows_F, tokens_F), forced_F)
        if plan.terms:
            plan.terms.choose(x_RV, self._end)
        return x_RV


def _on(device: torch.device, array: np.ndarray) -> Tensor:
    """Copy an array to the device, and do not wait for the copy."""
    return torch.tensor(array).to(device, non_blocking=True)
