"""The search loop over a batch with continuous refilling: new sentences replace those that are done."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from nmt_cli.decoding.attention_maps import source_attention
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Done, Hypothesis, Sentence
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import is_gpu
from nmt_cli.runtime.memory import MEMORY_ERRORS, out_of_memory

# With 32 to 128 rows, files took 0.92 to 1.05 of the time, so no rule for the number is worth its line. See
# engine/README.md.
ROWS_ON_CPU = 256
ROWS_ON_GPU = 2048
LOOK_EVERY = 8
"""Steps between two checks for finished sentences on a GPU. Each check makes the host wait for the device."""

TOKENS = 16_384
"""Maximum source tokens of a batch. Each sentence counts as long as the longest."""

REFILL = 0.75
"""New sentences join once at most this share of the slots is taken. Joining copies the whole cache, which
would be slow for a few sentences at a time."""


ALIGNED_AT_ONCE = 16
"""Maximum number of finished sentences that wait until their attention is computed together."""


class Queue(Protocol):
    """Sentences that wait for a search. The search takes them and returns their hypotheses.

    There are two. `ListQueue` has the sentences of one call, `RequestQueue` those of all callers of a model.
    """

    def take(
        self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """Remove and return sentences to search with the settings `config`. Never wait.

        Return up to `slots` sentences, to join the batch of `running`. The batch then has at most `tokens`
        source tokens. Each sentence counts as long as the longest, with its end token. Only a batch of one
        sentence may be longer. Return [] if no sentence fits or waits.
        """

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Put sentences back into the queue: the batch did not fit into memory."""

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """Return the indices of sentences in the batch `running` to drop without a result.

        The search calls this method before each step. An exception ends the search.
        """

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Hand over the hypotheses of a taken sentence. None means that it did not fit into memory."""


class Searching(Protocol):
    """A search for a batch of sentences, such as `search.Search`."""

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences that are not done."""

    def join(self, sentences: Sequence[Sentence]) -> None:
        """Add `sentences` to the batch."""

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel the sentences with the indices `numbers` in `self.sentences`."""

    def step(self) -> list[Done]:
        """Extend the hypotheses. Return the sentences that are done, with their hypotheses."""


Found = tuple[Sentence, list[Hypothesis] | None]
"""A sentence and its hypotheses, best first. None means that the sentence alone does not fit into memory."""


def translated(
    ensemble: Ensemble,
    config: SearchConfig,
    queue: Queue,
    new_search: Callable[[int], Searching],
) -> Iterator[Found]:
    """Translate until the batch and the queue are empty. Yield each sentence when it is done, in any order.

    new_search: makes an empty search. Its argument is the number of steps after which the host looks for
        finished sentences.

    If memory runs out, the batch is put back into the queue, and the next batch may have half of its
    sentences. A sentence that does not fit alone is yielded with None. The caller gives what is yielded to
    `queue.finish`.
    """
    on_gpu = is_gpu(ensemble.device)
    max_rows, look_every = (ROWS_ON_GPU, LOOK_EVERY) if on_gpu else (ROWS_ON_CPU, 1)
    slots = max(1, (config.rows or max_rows) // config.slots)
    search, waiting = new_search(look_every), list[Done]()
    while True:
        joining: list[Sentence] = []
        try:
            running = search.sentences
            if len(running) <= REFILL * slots:
                joining = queue.take(config, slots - len(running), TOKENS, running)
            if joining:
                search.join(joining)
                # They belong to the search now. An error below must not put them back twice.
                joining = []
            if not search.sentences:
                yield from _aligned(ensemble.models[0], waiting, (), ())
                return
            if leaving := queue.gone(search.sentences):
                search.drop(leaving)
                continue
            yield from _aligned(ensemble.models[0], waiting, search.step(), search.sentences)
        except MEMORY_ERRORS as error:
            if not out_of_memory(error):
                raise
            # All of them restart in smaller batches: the step may have failed halfway.
            batch = [*search.sentences, *joining]
            search = new_search(look_every)
            if len(batch) == 1:
                yield batch[0], None
            else:
                # The limit stays: another batch of this size would fail again.
                slots = max(1, len(batch) // 2)
                queue.put_back(batch)


def _aligned(
    model: Transformer, waiting: list[Done], finished: Iterable[Done], running: Sequence[Sentence]
) -> Iterator[Found]:
    """Yield the `finished` sentences of a step. A sentence to align waits in `waiting` for the next ones,
    because attention is computed for several at a time.

    It is computed once `ALIGNED_AT_ONCE` are waiting, or if none to align is `running`. If memory is too
    small for it, they are yielded without attention.
    """
    for sentence, hypotheses in finished:
        if sentence.aligned and hypotheses:
            waiting.append((sentence, hypotheses))
        else:
            yield sentence, hypotheses
    # If the running sentences leave, as clients do, those that are waiting must still be yielded.
    if not waiting or (len(waiting) < ALIGNED_AT_ONCE and any(one.aligned for one in running)):
        return
    ready = [*waiting]
    waiting.clear()
    try:
        pairs = [(one.tokens, best.tokens) for one, found in ready for best in found]
        attention = iter(source_attention(model, pairs))
    except MEMORY_ERRORS as error:
        if not out_of_memory(error):
            raise
        yield from ready
        return
    for sentence, found in ready:
        yield sentence, [replace(one, attention_TS=next(attention)) for one in found]


class ListQueue:
    """A `Queue` of given sentences, all for the same settings. The longest are taken first."""

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self._sentences = sorted(sentences, key=lambda sentence: len(sentence.tokens))
        self.hypotheses: dict[int, list[Hypothesis] | None] = {}
        """The hypotheses of each finished sentence, by its key. None if it did not fit into memory."""

    def take(
        self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """Remove and return the longest sentences that fit, with the limits of `Queue.take`."""
        return take_longest(self._sentences, slots, tokens, running)

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """Put sentences back into the queue, sorted by length."""
        self._sentences = sorted([*self._sentences, *sentences], key=lambda sentence: len(sentence.tokens))

    def gone(self, running: Sequence[Sentence]) -> Collection[int]:
        """Return (), since no sentence leaves."""
        return ()

    def finish(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> None:
        """Store the hypotheses of a sentence."""
        self.hypotheses[sentence.key] = hypotheses


def take_longest(
    ascending: list[Sentence], slots: int, tokens: int, running: Sequence[Sentence]
) -> list[Sentence]:
    """Remove the longest sentences from `ascending`, which is sorted by length, and return them. Limits are
    those of `Queue.take`."""
    if not ascending:
        return []
    # The longest first: sentences that join later are shorter and never increase the padding.
    longest = max(len(sentence.tokens) + 1 for sentence in (ascending[-1], *running))
    # An empty batch accepts one sentence of any length, or that would wait forever.
    fitting = max(tokens // longest - len(running), 0 if running else 1)
    count = min(slots, fitting, len(ascending))
    chosen = ascending[len(ascending) - count :]
    del ascending[len(ascending) - count :]
    return chosen
