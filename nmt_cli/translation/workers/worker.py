"""The loop of a worker, in a thread or in a process: take a turn at the queue, translate, repeat."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
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
from nmt_cli.runtime.processes import SharedCount


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of the queue in shared memory, which worker processes read and the parent's threads change."""

    arrivals: SharedCount = field(default_factory=SharedCount)
    """Grows when sentences start to wait."""

    departures: SharedCount = field(default_factory=SharedCount)
    """Grows when a request with unfinished sentences is dropped, and when the queue is closed."""

    unfinished: SharedCount = field(default_factory=SharedCount)
    """Number of sentences that wait or are being translated."""


class Turn(Queue, Protocol):
    """A queue of sentences with the same search settings, for one worker until its batch is empty."""

    @property
    def search(self) -> SearchConfig:
        """The search settings of all sentences of the turn."""

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Hand over the hypotheses of a sentence, best first, or None if it did not fit into memory."""

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """Return the indices in `running` of sentences whose requests were closed. The search calls this
        method before a step after a departure. An exception ends the search."""


Load = Callable[[], Sequence[Transformer]]
"""Returns the models of a worker, an ensemble, ready to translate. Called by the worker itself."""

NextTurn = Callable[[], Turn | None]
"""Waits until a sentence waits, and returns a turn. Returns None once the queue is closed."""


def translate_turns(load: Load, next_turn: NextTurn, counts: Counts, threads: int = 1) -> None:
    """Translate turns with the models of `load`, on their device, until `next_turn` returns None. While
    `counts` has only few unfinished sentences, up to `threads` threads share the work of each step."""
    models = load()
    with current(models[0].device):
        while turn := next_turn():
            _translate(models, turn, counts, threads)


def _translate(models: Sequence[Transformer], turn: Turn, counts: Counts, threads: int) -> None:
    """Translate the sentences of `turn` until none is left."""
    ensemble, search, departures = Ensemble.of(models, turn.search), turn.search, counts.departures.value

    def gone(running: Sequence[Sentence]) -> Collection[int]:
        nonlocal departures
        if departures == counts.departures.value:
            return ()
        departures = counts.departures.value
        return turn.gone(running)

    set_threads = partial(_set_threads, models, search, counts, threads)
    before_step = set_threads if threads > 1 else lambda *_: None
    for sentence, hypotheses in translated(ensemble, search, turn, gone, before_step):
        turn.finish(sentence, hypotheses)


def _set_threads(
    models: Sequence[Transformer],
    search: SearchConfig,
    counts: Counts,
    threads: int,
    running: int,
    joining: Sequence[Sentence],
) -> None:
    """Set the number of threads of the step in which `joining` join a batch of `running` sentences. Use
    `threads` for at most `FEW_ROWS` rows while other workers are idle, else 1. The threads are those of the
    compiled kernels, or of PyTorch if these kernels cannot do the step."""
    sentences = running + len(joining)
    rows, longest = sentences * search.slots, max((len(one.tokens) + 1 for one in joining), default=0)
    few = rows <= FEW_ROWS and counts.unfinished.value == sentences
    standby.call(threads - 1 if few else 0)
    # PyTorch's own threads would compete with the standby threads.
    compiled = not search.coverage_penalty and all(
        model.few_rows
        and model.few_rows.fits(rows)
        and (not joining or model.few_rows.can_encode(len(joining), longest))
        for model in models
    )
    torch_threads = threads if few and not compiled else 1
    if torch.get_num_threads() != torch_threads:
        torch.set_num_threads(torch_threads)
