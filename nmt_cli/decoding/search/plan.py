"""One step of a search as one value.

`Planner` makes a `StepPlan` with everything that the step needs. A stepper (`steppers.py`) carries it out, or
declines it. B sentences have N slots each. The R rows of a step are the slots that take a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.beams import Beams
from nmt_cli.decoding.search.constraints import (
    BannedSequences,
    History,
    NoRepeatedNgrams,
    RepetitionPenalty,
    RequiredPlaceholders,
    Rule,
)
from nmt_cli.decoding.search.expansion import random_draws
from nmt_cli.decoding.search.hypotheses import BatchItem


class Forced(NamedTuple):
    """Tokens that must come next: the next token of a prefix, or the end mark at the cap."""

    tokens_R: NDArray[np.int64]
    """The token of each row, or -1 if every token is possible."""

    certain_R: NDArray[np.bool_]
    """Whether the token's log-probability counts as 0."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that one step needs. Fields with the default None are rules, and None turns a rule off.

    A stepper lists the rules that it applies. It declines a plan with any other rule in force.
    """

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

    draws_R: NDArray[np.float32] | None = None
    """Sampling: for each row a random number in [0, 1). If None, the likeliest tokens are taken."""

    diversity: float | None = None
    """`SearchConfig.diversity`: the penalty for each better continuation of the same hypothesis."""

    coverage_penalty: float | None = None
    """Weight of the penalty for source tokens that got little attention."""

    @property
    def in_force(self) -> frozenset[str]:
        """Names of the rules that are not None."""
        return frozenset([name for name in RULES if getattr(self, name) is not None])


RULES = tuple(field.name for field in fields(StepPlan) if field.default is None)
"""Names of all rules that a plan can have."""


class Planner:
    """Makes the plans of one search."""

    def __init__(self, config: SearchConfig, end: int, everywhere: bool) -> None:
        """Make a planner. With `everywhere`, all slots are rows, so the host need not wait for the device."""
        self._config, self._end, self._everywhere = config, end, everywhere

    def plan(self, items: Sequence[BatchItem], beams: Beams) -> StepPlan:
        """Return the plan of the next step of `items`, the sentences of `beams`. At least one is not done."""
        config = self._config
        rows_R, newest_R = beams.rows(self._everywhere)
        # On a GPU, reading `rows_R` would wait for the device.
        slots_R = np.arange(len(rows_R)) if self._everywhere else rows_R.numpy(force=True)
        sentences_R = slots_R // config.slots
        return StepPlan(
            rows_R=rows_R,
            newest_R=newest_R,
            longest=1 + max(item.age for item in items if not item.done),
            forced=self._forced(items, sentences_R),
            too_early_R=self._too_early(items, sentences_R),
            history=self._history(items, beams, rows_R, sentences_R),
            draws_R=self._draws(items, slots_R, sentences_R) if config.sample else None,
            diversity=config.diversity or None,
            coverage_penalty=config.coverage_penalty or None,
        )

    def _forced(self, items: Sequence[BatchItem], sentences_R: NDArray[np.int64]) -> Forced | None:
        """Return the forced token of each row, or -1. Return None if no sentence has a forced token."""
        tokens = [item.forced_token(self._end) for item in items]
        if all(token is None for token in tokens):
            return None
        tokens_B = np.array([-1 if token is None else token for token in tokens])
        certain_B = np.array([item.age < item.sentence.certain for item in items])
        return Forced(tokens_B[sentences_R], certain_B[sentences_R])

    def _too_early(
        self, items: Sequence[BatchItem], sentences_R: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        """Return [R]: whether a row has too few tokens to end, by `min_length`. Return None if no row has."""
        early = [item.age < self._config.min_length and not item.done for item in items]
        return np.array(early)[sentences_R] if any(early) else None

    def _history(
        self, items: Sequence[BatchItem], beams: Beams, rows_R: Tensor, sentences_R: NDArray[np.int64]
    ) -> History | None:
        """Return the tokens of each row and the rules about tokens, or None without rules.

        The rules are the penalty for repetition, no repeated n-grams, banned sequences and placeholders.
        """
        config, rules = self._config, list[Rule]()
        if config.repetition_penalty > 1:
            rules.append(RepetitionPenalty(config.repetition_penalty))
        if config.no_repeat_ngram:
            rules.append(NoRepeatedNgrams(config.no_repeat_ngram))
        if any(item.bans for item in items):
            rules.append(BannedSequences())
        if any(item.sentence.placeholders for item in items):
            rules.append(RequiredPlaceholders())
        if not rules:
            return None
        tokens_RT = beams.tokens.flatten(0, 1)[rows_R]
        ages_R = beams.ages[rows_R // config.slots]
        return History(rules, tokens_RT, ages_R, [items[number] for number in sentences_R.tolist()])

    def _draws(
        self, items: Sequence[BatchItem], slots_R: NDArray[np.int64], sentences_R: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        items_R = [items[number] for number in sentences_R.tolist()]
        keys, ages = [item.sentence.key for item in items_R], [item.age for item in items_R]
        return random_draws(self._config.seed, keys, slots_R % self._config.slots, ages)
