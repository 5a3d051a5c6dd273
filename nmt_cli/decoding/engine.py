"""Keeps a batch full: sentences that are done leave at once, and others from a queue take their slots."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search import Search
from nmt_cli.machine.devices import is_gpu
from nmt_cli.machine.memory import out_of_memory
from nmt_cli.model.transformer import Transformer

ROWS_ON_CPU = 256
MOST_ROWS = 2048
TOKENS = 16_384
"""Most source tokens of a batch, filled up to its longest sentence."""

REFILL = 0.75
"""Sentences join when no more than this share of the slots is taken: a few at a time would be slow."""


class Queue(Protocol):
    """Sentences that are to be translated."""

    def take(self, slots: int, tokens: int, running: Sequence[Sentence]) -> list[Sentence]:
        """Remove up to `slots` sentences from the queue, to join a batch in which those of `running` are.

        Of the whole batch, filled up to its longest sentence, no more than `tokens` source tokens, end marks
        counted; a sentence that would be alone is taken at any length. An empty list: none fits, or none is
        left. Does not wait.
        """

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Return sentences that were taken, for a later batch: this one did not fit into memory."""


Found = tuple[Sentence, list[Hypothesis] | None]
"""A sentence and its hypotheses, best first; None where it does not fit into memory even alone."""


def translated(
    ensemble: Ensemble,
    config: SearchConfig,
    queue: Queue,
    before_step: Callable[[], None] = lambda: None,
) -> Iterator[Found]:
    """Translate until batch and queue are empty; sentences come out as they are done, in no order.

    `before_step` is called before each step of the batch; what it raises
    ends the work.
    """
    rows = config.rows or (MOST_ROWS if is_gpu(ensemble.device) else ROWS_ON_CPU)
    slots = max(1, rows // config.places)
    search = Search(ensemble, config)
    while True:
        joining: list[Sentence] = []
        try:
            running = search.sentences
            if len(running) <= REFILL * slots:
                joining = queue.take(slots - len(running), TOKENS, running)
                if joining:
                    search.join(joining)
                    joining = []
            if not search.sentences:
                return
            before_step()
            yield from search.step()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            batch = [*search.sentences, *joining]
            search = Search(ensemble, config)
            if len(batch) == 1:
                yield batch[0], None
            else:
                slots = max(1, len(batch) // 2)
                queue.put_back(batch)


class ListQueue:
    """A queue whose sentences are all there from the beginning; the longest are taken first."""

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
    """Remove as many of the longest of `ascending` as `Queue.take` allows; they are from short to long."""
    if not ascending:
        return []
    longest = max(len(sentence.tokens) + 1 for sentence in (ascending[-1], *running))
    fitting = max(tokens // longest - len(running), 0 if running else 1)
    count = min(slots, fitting, len(ascending))
    chosen = ascending[len(ascending) - count :]
    del ascending[len(ascending) - count :]
    return chosen


def translate_ids(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The translations of each source, both without end marks."""
    queue = ListQueue([Sentence(key, tokens) for key, tokens in enumerate(sources)])
    found: dict[int, list[Hypothesis]] = {}
    for sentence, hypotheses in translated(Ensemble.of(models, config), config, queue):
        if hypotheses is None:
            raise MemoryError(f"a sentence of {len(sentence.tokens)} tokens does not fit into memory")
        found[sentence.key] = hypotheses
    return [found[key] for key in range(len(sources))]
