"""One step of a search as one value.

`Planner` makes a `StepPlan` with everything that the step needs. A stepper (`steppers.py`) carries it out.
B sentences have N slots each. The R rows of a step are the slots that take a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.beams import Beams
from nmt_cli.decoding.search.constraints import rules_for
from nmt_cli.decoding.search.expansion import random_draws
from nmt_cli.decoding.search.hypotheses import BatchItem, History
from nmt_cli.decoding.search.terms import NOTHING, TermsRule, largest, progress, word_parts
from nmt_cli.text.vocabulary import Vocabulary


class Forced(NamedTuple):
    """Tokens that must come next: the next token of a prefix, or the end token at the cap."""

    tokens_R: NDArray[np.int64]
    """The token of each row, or -1 if every token is possible."""

    certain_R: NDArray[np.bool_]
    """Whether the token's log-probability counts as 0."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that one step needs, except settings. None turns a rule off."""

    rows_R: Tensor
    """Numbers of the slots that take a token, ascending: slot n of sentence b has number b x N + n."""

    newest_R: Tensor
    """The newest token of each row. It is arbitrary for a hypothesis without tokens."""

    longest: int
    """Maximum number of tokens of a hypothesis after the step."""

    forced: Forced | None = None
    """Prefixes and caps."""

    too_early_R: NDArray[np.bool_] | None = None
    """True for rows that may not end yet."""

    history: History | None = None
    """Rules that depend on the tokens of a row."""

    terms: TermsRule | None = None
    """Terms that translations must contain. It applies after all other rules."""

    draws_R: NDArray[np.float32] | None = None
    """Sampling: for each row a random number in [0, 1). If None, the likeliest tokens are taken."""


class Planner:
    """Makes the plans of one search."""

    def __init__(self, config: SearchConfig, vocabulary: Vocabulary, everywhere: bool) -> None:
        """Make a planner. With `everywhere`, all slots are rows, so the host need not wait for the device."""
        self._config, self._vocabulary, self._everywhere = config, vocabulary, everywhere

    def plan(self, items: Sequence[BatchItem], beams: Beams) -> StepPlan:
        """Return the plan of the next step of `items`, the sentences of `beams`. At least one is not done."""
        config = self._config
        rows_R, newest_R = beams.rows(self._everywhere)
        # On a GPU, reading `rows_R` would wait for the device.
        slots_R = np.arange(len(rows_R)) if self._everywhere else rows_R.numpy(force=True)
        sentences_R = slots_R // config.slots
        # A language code is no text: otherwise min_length=1 would allow empty translations.
        early = [item.age < config.min_length + item.sentence.certain and not item.done for item in items]
        draws_R = None
        if config.sample:
            items_R = [items[number] for number in sentences_R.tolist()]
            keys, ages = [item.sentence.key for item in items_R], [item.age for item in items_R]
            draws_R = random_draws(config.seed, keys, slots_R % config.slots, ages)
        return StepPlan(
            rows_R=rows_R,
            newest_R=newest_R,
            longest=1 + max(item.age for item in items if not item.done),
            forced=self._forced(items, sentences_R),
            too_early_R=np.array(early)[sentences_R] if any(early) else None,
            history=self._history(items, beams, rows_R, sentences_R),
            terms=self._terms(items, beams, slots_R),
            draws_R=draws_R,
        )

    def _forced(self, items: Sequence[BatchItem], sentences_R: NDArray[np.int64]) -> Forced | None:
        """Return the forced token of each row, or -1. Return None if no sentence has a forced token."""
        tokens = [item.forced_token(self._vocabulary.end) for item in items]
        if all(token is None for token in tokens):
            return None
        tokens_B = np.array([-1 if token is None else token for token in tokens])
        certain_B = np.array([item.age < item.sentence.certain for item in items])
        return Forced(tokens_B[sentences_R], certain_B[sentences_R])

    def _history(
        self, items: Sequence[BatchItem], beams: Beams, rows_R: Tensor, sentences_R: NDArray[np.int64]
    ) -> History | None:
        """Return the tokens of each row and the rules about tokens, or None without rules."""
        if not (rules := rules_for(self._config, items)):
            return None
        tokens_RT = beams.tokens.flatten(0, 1)[rows_R]
        ages_R = beams.ages[rows_R // self._config.slots]
        return History(rules, tokens_RT, ages_R, [items[number] for number in sentences_R.tolist()])

    def _terms(
        self, items: Sequence[BatchItem], beams: Beams, slots_R: NDArray[np.int64]
    ) -> TermsRule | None:
        """Return the rule for sentences with terms whose next token is free, or None if there are none.

        A sentence whose live hypotheses have all terms safely is left out, also in later steps.
        """
        end, count = self._vocabulary.end, self._config.slots
        free = [bool(item.terms) and item.forced_token(end) is None and not item.done for item in items]
        if not any(free):
            return None
        totals_BN, tokens_BNT, totals_BNT = (
            x.numpy(force=True) for x in (beams.totals, beams.tokens, beams.token_totals)
        )
        live = np.array(free)[slots_R // count] & (totals_BN.flat[slots_R] > -np.inf)
        numbers_R = np.flatnonzero(live)
        if not len(numbers_R):
            return None
        sentences_R, slots = np.divmod(slots_R[numbers_R], count)
        own = [items[i] for i in sentences_R.tolist()]
        ages_R = np.array([item.age for item in own])
        columns_RT = ages_R[:, None] + np.arange(-ages_R.max() - 1, 0)
        cells = sentences_R[:, None], slots[:, None], columns_RT.clip(min=0)
        paths_RT = np.where(columns_RT < 0, NOTHING, tokens_BNT[cells])
        totals_RT = np.where(columns_RT < 0, 0, totals_BNT[cells])
        parts = word_parts(self._vocabulary.entries)
        state = progress(paths_RT, [item.terms for item in own], parts)
        unsafe = {*sentences_R[state.at_risk_R > 0].tolist()}
        for i in {*sentences_R.tolist()} - unsafe:
            items[i].leave_out_terms()
        if not unsafe:
            return None
        room_R = np.array([_room(item, path) for item, path in zip(own, paths_RT, strict=True)])
        tight_R = room_R <= state.at_risk_R
        return TermsRule(numbers_R, sentences_R, totals_RT, tight_R, state, parts, count)


def _room(item: BatchItem, path_T: NDArray[np.int64]) -> int:
    """Return how many tokens a hypothesis can still use for terms before its length limit.

    `path_T` has its tokens. For each placeholder that they do not contain yet, the room is smaller by the
    longest form of any term.
    """
    if not item.sentence.placeholders:
        return item.room
    # A placeholder may interrupt a form, which then starts again. So it reserves room for the longest form.
    missing = {*item.sentence.placeholders.wanted}.difference(path_T.tolist())
    return item.room - max(map(largest, item.sentence.terms)) * len(missing)
