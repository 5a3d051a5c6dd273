"""Keeps a search full: sentences that are done leave at once, and waiting ones take their place."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

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
"""Most source tokens, filled up to the longest sentence, that are worked on at a time."""

REFILL = 0.75
"""Waiting sentences join when no more than this share of the batch is left: few at a time would be slow."""


class Waiting(Protocol):
    """Sentences that wait for their turn."""

    def take(self, most: int, tokens: int, beside: Sequence[Sentence]) -> list[Sentence]:
        """Up to `most` sentences that have at most `tokens` with those `beside` which they come, each as long
        as the longest of all; none of them if these have none. With nothing beside it is at least one: wait
        for it; nothing to wait for: an empty list."""

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """To be taken again."""


Found = tuple[Sentence, list[Hypothesis] | None]
"""A sentence and its translations; None where it does not fit into memory even alone."""


def translated(
    ensemble: Ensemble,
    config: SearchConfig,
    waiting: Waiting,
    before_step: Callable[[], None] = lambda: None,
) -> Iterator[Found]:
    """Translate until nothing waits any more, in no particular order."""
    rows = config.rows or (MOST_ROWS if is_gpu(ensemble.device) else ROWS_ON_CPU)
    most = max(1, rows // config.places)
    search = Search(ensemble, config)
    while True:
        joining: list[Sentence] = []
        try:
            if len(search.sentences) <= REFILL * most:
                beside = search.sentences
                joining = waiting.take(most - len(beside), TOKENS, beside)
                if joining:
                    search.join(joining)
                    joining = []
            if not search.sentences:
                return
            before_step()
            yield from search.step()
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            everything = [*search.sentences, *joining]
            search = Search(ensemble, config)
            if len(everything) == 1:
                yield everything[0], None
            else:
                most = max(1, len(everything) // 2)
                waiting.put_back(everything)


class Listed:
    """All sentences are there from the beginning; the longest go first."""

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self._sentences = sorted(sentences, key=lambda sentence: len(sentence.tokens))

    def take(self, most: int, tokens: int, beside: Sequence[Sentence]) -> list[Sentence]:
        """See `Waiting`."""
        return taken(self._sentences, most, tokens, beside)

    def put_back(self, sentences: Sequence[Sentence]) -> None:
        """See `Waiting`."""
        self._sentences = sorted([*self._sentences, *sentences], key=lambda sentence: len(sentence.tokens))


def taken(ascending: list[Sentence], most: int, tokens: int, beside: Sequence[Sentence]) -> list[Sentence]:
    """The longest of `ascending`, which leave it: as many as fit, see `Waiting`."""
    if not ascending:
        return []
    longest = max(len(sentence.tokens) + 1 for sentence in (ascending[-1], *beside))
    fitting = max(tokens // longest - len(beside), 0 if beside else 1)
    count = min(most, fitting, len(ascending))
    chosen = ascending[len(ascending) - count :]
    del ascending[len(ascending) - count :]
    return chosen


def translate_ids(
    models: Sequence[Transformer], sources: Sequence[Sequence[int]], config: SearchConfig
) -> list[list[Hypothesis]]:
    """The translations of each source, both without end marks."""
    sentences = [Sentence(key, tokens) for key, tokens in enumerate(sources)]
    found: dict[int, list[Hypothesis]] = {}
    for sentence, hypotheses in translated(Ensemble.of(models, config), config, Listed(sentences)):
        if hypotheses is None:
            raise MemoryError(f"a sentence of {len(sentence.tokens)} tokens does not fit into memory")
        found[sentence.key] = hypotheses
    return [found[key] for key in range(len(sentences))]
