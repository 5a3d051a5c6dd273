"""The search loop over a batch that is kept full: sentences that are done leave, others take their slots."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.runtime.devices import is_gpu
from nmt_cli.runtime.memory import LACKS, out_of_memory

ROWS_ON_CPU = 256
MOST_ROWS = 2048
LOOK_EVERY = 8
"""Steps on a GPU from one look at what is done to the next: each makes the host wait for the device."""

TOKENS = 16_384
"""Most source tokens of a batch, where each sentence counts as much as the longest."""

REFILL = 0.75
"""Others join once no more than this share of the slots is taken: joining copies the whole cache, which would
be slow for a few at a time."""


class Queue(Protocol):
    """Where the search takes sentences from."""

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """Remove up to `slots` sentences from the queue, to join a batch that holds those of `running`.

        The whole batch then has at most `tokens` source tokens, where each sentence counts as much as the
        longest, with its end mark; but a sentence of any length may be alone. The list is empty if none fits
        or none waits; never blocks.
        """

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Return sentences that were taken, since the batch did not fit into memory; they are taken again
        later."""


Found = tuple[Sentence, list[Hypothesis] | None]
"""A sentence and its hypotheses, best first; None where it does not fit into memory even alone."""


def translated(
    ensemble: Ensemble,
    config: SearchConfig,
    queue: Queue,
    gone: Callable[[Sequence[Sentence]], Collection[int]] = lambda running: (),
    ready: Callable[[int, Sequence[Sentence]], None] = lambda running, joining: None,
) -> Iterator[Found]:
    """Translate until batch and queue are empty; yields sentences as they are done, in any order.

    `gone` is called before each step with the sentences of the batch, and says by their places there which
    of them nobody wants any more; these leave. An exception in it ends the search. `ready` is called before
    the device is given work, with how many sentences are in the batch and those that join it.
    """
    on_gpu = is_gpu(ensemble.device)
    most, look_every = (MOST_ROWS, LOOK_EVERY) if on_gpu else (ROWS_ON_CPU, 1)
    slots = max(1, (config.rows or most) // config.places)
    search = Search(ensemble, config, look_every)
    while True:
        joining: list[Sentence] = []
        try:
            running = search.sentences
            if len(running) <= REFILL * slots:
                joining = queue.take(slots - len(running), TOKENS, running)
            ready(len(running), joining)
            if joining:
                search.join(joining)
                # From here on the search has them: after an error below, they are not to be put back twice.
                joining = []
            if not search.sentences:
                return
            if leaving := gone(search.sentences):
                search.drop(leaving)
                continue
            yield from search.step()
        except LACKS as error:
            if not out_of_memory(error):
                raise
            # All of them begin anew in smaller batches: the step may have failed halfway.
            batch = [*search.sentences, *joining]
            search = Search(ensemble, config, look_every)
            if len(batch) == 1:
                yield batch[0], None
            else:
                # And stays so: a batch as large as this would fail again.
                slots = max(1, len(batch) // 2)
                queue.put_back(batch)


class ListQueue:
    """A queue whose sentences are all given at the beginning; the longest are taken first."""

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self._sentences = sorted(sentences, key=lambda sentence: len(sentence.tokens))

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """See `Queue`."""
        return take_longest(self._sentences, slots, tokens, running)

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `Queue`."""
        self._sentences = sorted([*self._sentences, *sentences], key=lambda sentence: len(sentence.tokens))


def take_longest(
    ascending: list[Sentence], slots: int, tokens: int, running: Sequence[Sentence]
) -> list[Sentence]:
    """Remove as many of the longest sentences as `Queue.take` allows, from a list that ascends in length."""
    if not ascending:
        return []
    # The longest first: what joins later is shorter, and the batch is never padded any further.
    longest = max(len(sentence.tokens) + 1 for sentence in (ascending[-1], *running))
    # A sentence that would be alone is taken whatever its length, or it would wait forever.
    fitting = max(tokens // longest - len(running), 0 if running else 1)
    count = min(slots, fitting, len(ascending))
    chosen = ascending[len(ascending) - count :]
    del ascending[len(ascending) - count :]
    return chosen
