"""The loop of a worker, in a thread or in a process: wait for a sentence, translate, repeat.

A turn is the work of a worker from one empty batch to the next. Its sentences have the same search settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from nmt_cli.decoding.batch import Queue
from nmt_cli.decoding.config import SearchConfig
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


Load = Callable[[], Decoder]
"""Returns the models of a worker, ready to translate. Called by the worker itself."""

NextSearch = Callable[[], SearchConfig | None]
"""Waits until a sentence waits, and returns the settings of a turn. Returns None once the queue is closed."""


def translate_turns(
    load: Load, next_search: NextSearch, queue: Queue, counts: Counts, threads: int = 1
) -> None:
    """Load the models, and translate sentences of `queue` until `next_search` returns None.

    Results go to `queue.finish`. The sentences of a turn share the settings that `next_search` returned for
    it.

    load: returns the models, which are used on their own device.
    next_search: waits for a sentence, and returns the settings of its search.
    counts: the counters of the queue. Here only the number of unfinished sentences is read.
    threads: the threads for a step if this worker has all unfinished sentences. Otherwise a step has one
        thread, since other workers need the cores.
    """
    decoder = load()

    def threads_for(sentences: int) -> int:
        # Other workers have their own sentences, and need their cores.
        return threads if counts.unfinished.value == sentences else 1

    with current(decoder.models[0].device):
        while search := next_search():
            for sentence, hypotheses in decoder.translated(search, queue, threads_for):
                queue.finish(sentence, hypotheses)
