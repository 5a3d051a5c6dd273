"""A search whose steps are compiled functions. It has the methods of `decoding.search.Search`, and finds the
same hypotheses up to rounding."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Done, Sentence
from nmt_cli.engine.packing import LOGITS, Packed
from nmt_cli.engine.state import FINISHED, LIVE, ROWS, State
from nmt_cli.text.shortlist import Shortlist

ROWS_AT_ONCE = 256
"""Source tokens that are encoded together. Their values stay in the processor's caches."""

STEPS = 16
"""Maximum number of steps of a call. Until it ends, no sentence joins and no request is cancelled."""

BROKEN = -(1 << 62)
"""At the start of a team's array, it is no phase, so nobody takes a unit (`kernels/team.py`)."""

HELPERS = 64
"""Maximum number of threads of a process that help in teams. They start when they are needed."""


class EngineSearch:
    """Searches for the translations of a batch of sentences, with the rules of `decoder.SETTINGS`."""

    def __init__(
        self,
        packed: Packed,
        config: SearchConfig,
        threads: Callable[[int], int] = lambda sentences: 1,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Begin with an empty batch.

        threads: gives the number of threads for so many sentences.
        shortlist: restricts the vocabulary of each sentence. `packed` must be made for it.
        """
        self._packed, self._config, self._threads = packed, config, threads
        self._shortlist = shortlist
        self._sentences: list[Sentence | None] = []
        self._state = State(packed, config.slots, config.results)
        self._work = self._new_work(0, 0)
        vocabulary = packed.model.target_vocabulary
        banned = {*vocabulary.never} if config.unknown else {*vocabulary.never, vocabulary.unknown}
        self._rules = packed.kernels.Rules(
            banned=np.array(sorted(banned), np.int64),
            symbols=np.empty(0, np.int64),
            spaces=np.array(vocabulary.spaces if config.min_length else [], np.int64),
            end=vocabulary.end,
            early=config.min_length,
            gnmt=config.length_rule == "gnmt",
            exponent=np.float32(config.length_penalty),
            reach=np.float32(config.reach),
            enough=config.beam if config.stop_early else np.iinfo(np.int64).max,
        )

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences that are not done."""
        return [sentence for sentence in self._sentences if sentence]

    def join(self, sentences: Sequence[Sentence]) -> None:
        """Encode `sentences`, and add them to the batch."""
        if not self.sentences:  # a long sentence of before must not make these as long
            self._sentences, self._state = [], State(self._packed, self._config.slots, self._config.results)
        model, state = self._packed.model, self._state
        sources = [model.source_vocabulary.ended(sentence.tokens) for sentence in sentences]
        caps = self._config.caps([len(sentence.tokens) for sentence in sentences], model.config.limit)
        # A prefix must fit, even if the settings allow fewer tokens.
        caps = [max(cap, one.least_tokens) for cap, one in zip(caps, sentences, strict=True)]
        self._packed.inputs[1].refuse_longer(max(caps) + 1)  # with an end token
        free = [place for place, sentence in enumerate(self._sentences) if not sentence]
        places = [*free, *range(len(self._sentences), len(self._sentences) + len(sentences))][
            : len(sentences)
        ]
        longest, prefix = max(map(len, sources)), max(len(sentence.prefix) for sentence in sentences)
        listed = [self._listed(*both) for both in zip(sentences, sources, strict=True)]
        state.make_room(max(places) + 1, source=longest, prefix=prefix, listed=max(map(len, listed)))
        first = 0
        while first < len(sources):
            end, rows = first + 1, len(sources[first])
            while end < len(sources) and rows + len(sources[end]) <= ROWS_AT_ONCE:
                rows += len(sources[end])
                end += 1
            threads = self._threads(len(self.sentences) + len(sentences))
            self._encode(sources[first:end], places[first:end], threads)
            first = end
        self._sentences += [None] * (max(places) + 1 - len(self._sentences))
        for place, sentence, source, cap, own in zip(places, sentences, sources, caps, listed, strict=True):
            if sentence.placeholders:  # all sentences of a model have the same symbols
                joins = [] if sentence.placeholders.join is None else [sentence.placeholders.join]
                symbols = np.array([*sentence.placeholders.symbols, *joins], np.int64)
                self._rules = self._rules._replace(symbols=symbols)
            state.begin(place, sentence, cap, len(source), own)
            self._sentences[place] = sentence

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel the sentences with the indices `numbers` in `self.sentences`."""
        places = [place for place, sentence in enumerate(self._sentences) if sentence]
        for number in numbers:
            self._state.drop(places[number])
            self._sentences[places[number]] = None

    def step(self) -> list[Done]:
        """Extend the hypotheses until a sentence is done, by at most `STEPS` tokens. Return sentences that
        are done with their hypotheses."""
        state, packed = self._state, self._packed
        rows = int(state.live.sum()) * self._config.slots
        # A large batch takes so long for a step that a call costs nothing, and needs many nodes for it.
        steps = max(1, min(STEPS, ROWS_AT_ONCE // rows))
        longest = int(state["ages"][state.live].max()) + steps + 1
        state.make_room(0, tokens=longest)
        state.make_nodes(rows * steps)
        self._make_room(rows, logits=rows)
        state["counts"][FINISHED] = 0
        # With one step for each call, a line of a student takes 1.8 times as long.
        self._run(packed.extending(longest, steps), self._threads(len(self.sentences)))
        done = []
        for place in np.flatnonzero(state["live"] != LIVE).tolist() if state["counts"][FINISHED] else ():
            if sentence := self._sentences[place]:
                done.append((sentence, state.finished(place)))
                self._sentences[place] = None
        return done

    def _listed(self, sentence: Sentence, source: Sequence[int]) -> NDArray[np.int32]:
        """Return the tokens that the translation of a sentence may have, or none if it may have all.

        `source` has the source tokens with the end token.
        """
        if not self._shortlist:
            return np.empty(0, np.int32)
        model = self._packed.model
        vocabulary = model.target_vocabulary
        unknown = [vocabulary.unknown] if self._config.unknown else []
        others = [vocabulary.end, *unknown, *sentence.prefix]
        # Some models have no end token in the source, but it has a list.
        tokens = [*source, model.source_vocabulary.end]
        return self._shortlist.of(tokens, others, len(vocabulary))

    def _encode(self, sources: Sequence[Sequence[int]], places: Sequence[int], threads: int) -> None:
        """Write the keys and values of whole sentences to their places."""
        lengths = np.array([len(source) for source in sources])
        count = int(lengths.sum())
        self._make_room(count)
        work = self._work
        work.tokens_R[:count] = np.concatenate(sources)
        work.positions_R[:count] = np.concatenate([np.arange(length) for length in lengths])
        work.sentences_R[:count], work.lengths_R[:count] = np.repeat([places, lengths], lengths, axis=1)
        self._state["counts"][ROWS] = count
        self._run(self._packed.encoding(int(lengths.max())), threads)

    def _run(self, task: Any, threads: int) -> None:
        """Carry out a task in this thread and in helping threads at the same time."""
        packed, state = self._packed, self._state.of_kernels
        team = np.zeros(packed.kernels.SIZE, np.int64)

        def help_team() -> None:
            packed.kernels.run(team, task, packed.weights, self._work, self._rules, state)

        in_team(team, help_team, threads)

    def _make_room(self, rows: int, logits: int = 0) -> None:
        """Make memory for so many rows and rows with logits, unless there is enough."""
        if len(self._work.tokens_R) < rows or len(self._work.buffers[LOGITS]) < logits:
            self._work = self._new_work(max(rows, len(self._work.tokens_R)), logits)

    def _new_work(self, rows: int, logits: int) -> Any:
        packed, config = self._packed, self._packed.model.config
        mixed = max(config.width, *(one.heads * one.d_v for one in (config, config.of_decoder)))
        inputs = int(packed.weights.matrices[:, 1].max())
        columns = (config.width, config.width, packed.widest, mixed, config.width)
        buffers = (np.empty((rows, count), np.float32) for count in columns)
        scores = np.empty((logits, len(packed.model.target_vocabulary)), np.float32)
        # A candidate for each slot, and the end token.
        candidates = min(self._config.slots + 1, len(packed.model.target_vocabulary))

        def numbers() -> NDArray[np.int64]:
            return np.empty(rows, np.int64)

        return packed.kernels.Work(
            buffers=(*buffers, scores),
            bytes_RC=np.empty((rows, inputs + -inputs % 64), np.uint8),  # a step of `dot_bytes` is 64 bytes
            scales_R=np.empty(rows, np.float32),
            tokens_R=numbers(),
            positions_R=numbers(),
            sentences_R=numbers(),
            slots_R=numbers(),
            nodes_R=numbers(),
            lengths_R=numbers(),
            steps_RW=np.empty((rows, candidates), np.float32),
            likely_RW=np.empty((rows, candidates), np.int64),
        )


def in_team(team: NDArray[np.int64], work: Callable[[], None], threads: int) -> None:
    """Call `work`, which takes part in `team`, in this thread and in helping threads at the same time. If one
    of them raises an error, end the others and raise it."""

    def share() -> None:
        try:
            work()
        except BaseException:
            # Its unit is never done, and the others would wait for it forever.
            team[0] = BROKEN
            raise

    helping = [_helpers(os.getpid()).submit(share) for _ in range(threads - 1)]
    try:
        share()
    finally:
        started = [other for other in helping if not other.cancel()]
        wait(started)  # they must not change the memory of the next call
    for other in started:
        other.result()


@cache
def _helpers(process: int) -> ThreadPoolExecutor:
    """Return the helping threads of a process. A forked process needs its own."""
    return ThreadPoolExecutor(HELPERS, thread_name_prefix="nmt-helper")
