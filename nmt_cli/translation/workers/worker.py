"""The loop of a worker, in a thread or in a process: take a turn at the queue, translate, repeat."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nmt_cli.decoding.batch import Queue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.runtime.devices import current
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


Load = Callable[[], Decoder]
"""Returns the models of a worker, ready to translate. Called by the worker itself."""

NextTurn = Callable[[], Turn | None]
"""Waits until a sentence waits, and returns a turn. Returns None once the queue is closed."""


def translate_turns(load: Load, next_turn: NextTurn, counts: Counts, threads: int = 1) -> None:
    """Translate turns with the models of `load`, on their device, until `next_turn` returns None. While
    `counts` has only few unfinished sentences, up to `threads` threads share the work of each step."""
    decoder = load()
    with current(decoder.models[0].device):
        while turn := next_turn():
            _translate(decoder, turn, counts, threads)


def _translate(decoder: Decoder, turn: Turn, counts: Counts, threads: int) -> None:
    """Translate the sentences of `turn` until none is left."""
    departures = counts.departures.value

    def gone(running: Sequence[Sentence]) -> Collection[int]:
        nonlocal departures
        if departures == counts.departures.value:
            return ()
        departures = counts.departures.value
        return turn.gone(running)

    def threads_for(sentences: int) -> int:
        # Other workers have their own sentences, and need their cores.
        return threads if counts.unfinished.value == sentences else 1

    for sentence, hypotheses in decoder.translated(turn.search, turn, gone, threads_for):
        turn.finish(sentence, hypotheses)
