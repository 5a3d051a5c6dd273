"""A worker's loop, in a thread or a process of its own: take a turn in the queue, translate it, take the
next."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

import torch

from nmt_cli.attention.dispatch import FEW_ROWS
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import Queue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import current
from nmt_cli.runtime.kernels import standby
from nmt_cli.runtime.threads import set_own_threads


class Turn(Queue, Protocol):
    """A queue of sentences with the same search settings, for one batch until it runs empty."""

    @property
    def search(self) -> SearchConfig:
        """The settings that all its sentences are searched with."""

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Hand over the hypotheses of a sentence, best first; None if it does not fit into memory."""

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """Called before each step of the batch: the places in `running` of those that nobody wants any more.

        An exception ends the work."""

    def alone(self, count: int) -> bool:
        """Whether `count` sentences are all there are: other workers have nothing to do."""

    def lost(self, sentences: Sequence[Sentence], how: str) -> None:
        """Return sentences that were being translated by a process that died, in the way that `how` says."""


NextTurn = Callable[[], Turn | None]
"""Waits until there is something to translate, and returns a turn; None when there will be no more."""


def translate_turns(models: Sequence[Transformer], next_turn: NextTurn, threads: int = 1) -> None:
    """Translate until there are no more turns, with `threads` threads where few sentences are all there
    are."""
    while turn := next_turn():
        ensemble = Ensemble.of(models, turn.search)
        helped = partial(_call_others, models, turn, threads) if threads > 1 else lambda *_: None
        for found in translated(ensemble, turn.search, turn, turn.gone, helped):
            turn.finish(*found)


def _call_others(
    models: Sequence[Transformer], turn: Turn, threads: int, running: int, joining: Sequence[Sentence]
) -> None:
    """Let threads for which there is nothing else to do help with few sentences, some of which join."""
    sentences = running + len(joining)
    rows, longest = sentences * turn.search.places, max((len(each.tokens) + 1 for each in joining), default=0)
    few = rows <= FEW_ROWS and turn.alone(sentences)
    standby.call(threads - 1 if few else 0)
    # PyTorch's own threads, which all else takes, would be in the way of these.
    suffices = not turn.search.coverage_penalty and all(
        model.few_rows
        and model.few_rows.fits(rows)
        and (not joining or model.few_rows.can_encode(len(joining), longest))
        for model in models
    )
    wanted = threads if few and not suffices else 1
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def translate_in_thread(models: Sequence[Transformer], next_turn: NextTurn) -> None:
    """`translate_turns` for a thread of this process, in which PyTorch then computes with a single thread."""
    set_own_threads(1)
    with current(models[0].device):
        translate_turns(models, next_turn)
