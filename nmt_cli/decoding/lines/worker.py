"""A worker's loop, in a thread or a process of its own: take a turn in the queue, translate it, take the
next."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import Queue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.machine.devices import current
from nmt_cli.machine.threads import set_own_threads
from nmt_cli.model.transformer import Transformer


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

    def lost(self, sentences: Sequence[Sentence], how: str) -> None:
        """Return sentences that were being translated by a process that died, in the way that `how` says."""


NextTurn = Callable[[], Turn | None]
"""Waits until there is something to translate, and returns a turn; None when there will be no more."""


def translate_turns(models: Sequence[Transformer], next_turn: NextTurn) -> None:
    """Translate until there are no more turns."""
    while turn := next_turn():
        ensemble = Ensemble.of(models, turn.search)
        for found in translated(ensemble, turn.search, turn, turn.gone):
            turn.finish(*found)


def translate_in_thread(models: Sequence[Transformer], next_turn: NextTurn) -> None:
    """`translate_turns` for a thread of this process, in which PyTorch then computes with a single thread."""
    set_own_threads(1)
    with current(models[0].device):
        translate_turns(models, next_turn)
