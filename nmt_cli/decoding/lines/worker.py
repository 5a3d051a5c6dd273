"""What a worker does, in a thread or a process of its own: translate what a queue holds, turn after turn."""

from collections.abc import Callable, Sequence
from typing import Protocol

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import Queue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.machine.devices import current
from nmt_cli.machine.threads import set_own_threads
from nmt_cli.model.transformer import Transformer


class Turn(Queue, Protocol):
    """Sentences to translate with the same settings, in a batch that others join until there are no more."""

    @property
    def search(self) -> SearchConfig:
        """The settings."""

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Hand over what was found for a sentence; None if it does not fit into memory."""

    def before_step(self) -> None:
        """Called before each step of the batch; an exception ends the work."""


NextTurn = Callable[[], Turn | None]
"""Waits for something to do; None when there will be no more."""


def translate_turns(models: Sequence[Transformer], next_turn: NextTurn) -> None:
    """Translate until there are no more turns."""
    while turn := next_turn():
        ensemble = Ensemble.of(models, turn.search)
        for found in translated(ensemble, turn.search, turn, turn.before_step):
            turn.finish(*found)


def translate_in_thread(models: Sequence[Transformer], next_turn: NextTurn) -> None:
    """As `translate_turns`, in a thread of Python that computes in one of the machine's."""
    set_own_threads(1)
    with current(models[0].device):
        translate_turns(models, next_turn)
