"""The refilled batch: when sentences join, and what happens without enough memory."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.decoding import batch
from nmt_cli.decoding.batch import Found, ListQueue, take_longest
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from tests.model.models import vocabulary_of
from tests.searching import Prepare, plain

MODEL = ModelConfig(encoder_layers=1, decoder_layers=1, width=8, heads=2, feed_forward=16, norm="pre")
VOCABULARY = 16
END = 0
TO_THE_CAP = SearchConfig(beam=1, cap_ratio=1.0, cap_extra=0)
"""With a model that never ends of itself: as many pieces as the source has."""

Where = Literal["encode", "step"]


@dataclass(slots=True)
class Room:
    """A limit of memory, and a record of its use."""

    place: Where = "encode"
    sentences: int = 10**9
    tokens: int = 10**9
    """Of the longest sentence, end token counted."""

    age: int = 0
    """Memory gets short only after so many steps."""

    error: Exception = field(default_factory=lambda: torch.OutOfMemoryError("CUDA out of memory."))
    encoded: list[int] = field(default_factory=list)
    """Sentences of each call."""

    steps: list[tuple[int, int, int]] = field(default_factory=list)
    """Rows, sentences and longest source of each call."""

    def take(self, place: Where, sentences: int, longest: int, age: int) -> None:
        """Fail if there is not enough memory."""
        assert sentences <= 100 and len(self.steps) < 2000, "it goes on for ever"
        too_much = sentences > self.sentences or longest > self.tokens
        if place == self.place and age >= self.age and too_much:
            raise self.error


class Cramped(Transformer):
    """A model with limited memory."""

    room: Room

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """See `Transformer`."""
        self.room.encoded.append(len(source.lengths))
        self.room.take("encode", len(source.lengths), source.longest, self.room.age)
        return super().encode(source_S, source)

    def step(self, tokens_R: Tensor, rows_R: Tensor, cache: DecodingCache, longest: int) -> Tensor:
        """See `Transformer`."""
        sentences, width = cache.source_seen.shape
        self.room.steps.append((len(rows_R), sentences, width))
        self.room.take("step", sentences, width, int(cache.ages.max()))
        return super().step(tokens_R, rows_R, cache, longest)


def cramped(kernels: Any, room: Room) -> Any:
    """Return the functions of the engine with limited memory. Each call takes at most one step."""

    def run(team: object, task: Any, weights: object, work: Any, rules: object, state: Any) -> None:
        if task.steps == 0:
            count = int(state.counts[1])
            sentences, longest = len(np.unique(work.sentences_R[:count])), int(work.lengths_R[:count].max())
            room.encoded.append(sentences)
            room.take("encode", sentences, longest, room.age)
        else:
            live = state.live == 1
            sentences, longest = int(live.sum()), int(state.pieces[live].max()) + 1
            room.steps.append((int((state.totals[live] > -np.inf).sum()), sentences, longest))
            room.take("step", sentences, longest, int(state.ages[live].max()))
        kernels.run(team, task._replace(steps=min(task.steps, 1)), weights, work, rules, state)

    return SimpleNamespace(**vars(kernels) | {"run": run})


def decoder_in(room: Room, prepare: Prepare) -> Decoder:
    """Return a decoder with limited memory."""
    decoder = prepare([model_in(room)])
    if decoder.packed is None:
        return decoder
    return replace(decoder, packed=replace(decoder.packed, kernels=cramped(decoder.packed.kernels, room)))


def model_in(room: Room) -> Cramped:
    """Return a model that never ends a sentence before its cap."""
    torch.manual_seed(2)
    model = Cramped(MODEL, vocabulary_of(VOCABULARY), vocabulary_of(VOCABULARY), joint=True).eval()
    model.room = room
    norm = model.decoder_norm
    assert isinstance(norm, torch.nn.LayerNorm)
    with torch.no_grad():
        norm.bias[0] = 30.0
        model.output_matrix[:, 0] = 0.1
        model.output_matrix[END, 0] = -10.0
    return model


def sources(*lengths: int) -> list[list[int]]:
    chosen = random.Random(3)
    return [chosen.choices(range(2, VOCABULARY), k=length) for length in lengths]


SOURCES = sources(3, 9, 1, 5, 12, 0, 7, 2, 2, 8, 11, 4)


def found_in(
    room: Room, config: SearchConfig, texts: Sequence[Sequence[int]], prepare: Prepare
) -> dict[int, list[int] | None]:
    """Return the translation of each source by its number, or None."""
    waiting = ListQueue([Sentence(key, tokens) for key, tokens in enumerate(texts)])
    everything = list(decoder_in(room, prepare).translated(config, waiting))
    assert len(everything) == len({sentence.key for sentence, _ in everything}), "answered twice"
    return {sentence.key: list(actual[0].tokens) if actual else None for sentence, actual in everything}


ON_THE_CPU = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    "room",
    [
        Room("encode", sentences=3),
        Room("encode", sentences=1),
        Room("step", sentences=3),
        Room("step", sentences=1),
        Room("step", sentences=2, age=4),
        Room("encode", sentences=3, error=RuntimeError(ON_THE_CPU)),
        Room("step", sentences=3, error=RuntimeError("could not create a primitive")),
        Room("step", sentences=3, error=MemoryError("std::bad_alloc")),
    ],
    ids=[
        *("encoding", "encoding alone", "first step", "first step alone", "later step", "on the CPU"),
        *("in oneDNN", "in C++"),
    ],
)
@pytest.mark.parametrize("beam", [1, 3])
def test_without_enough_memory_every_sentence_is_still_translated(
    prepare: Prepare, room: Room, beam: int
) -> None:
    config = replace(TO_THE_CAP, beam=beam)
    room = replace(room, encoded=[], steps=[])
    actual = found_in(room, config, SOURCES, prepare)
    assert [len(actual[key] or []) for key in range(len(SOURCES))] == [len(source) for source in SOURCES]
    assert actual == found_in(Room(), config, SOURCES, prepare)
    assert len(room.encoded) > 1


@pytest.mark.parametrize("place", ["encode", "step"])
@pytest.mark.parametrize("age", [0, 3])
def test_only_a_sentence_that_does_not_fit_alone_is_not_translated(
    prepare: Prepare, place: Where, age: int
) -> None:
    actual = found_in(Room(place, tokens=10, age=age), TO_THE_CAP, SOURCES, prepare)
    fits = {key: source for key, source in enumerate(SOURCES) if len(source) < 10}
    assert {key for key in actual if actual[key] is None} == set(range(len(SOURCES))) - fits.keys()
    roomy = found_in(Room(), TO_THE_CAP, SOURCES, prepare)
    assert all(actual[key] == roomy[key] for key in fits)


def test_no_sentence_is_lost_if_compacting_runs_out_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_order, left = DecodingCache.compact, [True, True]

    def compact(cache: DecodingCache, sentences: Tensor, others: DecodingCache | None = None) -> None:
        if left and len(sentences) < len(cache.ages):
            left.pop()
            raise torch.OutOfMemoryError("CUDA out of memory.")
        in_order(cache, sentences, others)

    expected = found_in(Room(), TO_THE_CAP, SOURCES, plain)
    monkeypatch.setattr(DecodingCache, "compact", compact)
    assert found_in(Room(), replace(TO_THE_CAP, rows=4), SOURCES, plain) == expected
    assert not left


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_cancelled_sentences_take_no_further_step_and_do_not_affect_others(
    prepare: Prepare, seed: int, beam: int
) -> None:
    chosen = random.Random(seed)
    room, config = Room(), replace(TO_THE_CAP, beam=beam, rows=5 * beam)
    decoder = decoder_in(room, prepare)
    left: set[int] = set()

    class Cancelled(ListQueue):
        """A queue that sentences leave at random."""

        def gone(self, running: Sequence[Sentence]) -> list[int]:
            places = [place for place in range(len(running)) if chosen.random() < 0.15]
            assert not left & {sentence.key for sentence in running}
            left.update(running[place].key for place in places)
            return places

    waiting = Cancelled([Sentence(key, tokens) for key, tokens in enumerate(SOURCES)])
    actual = {one.key: list((some or [])[0].tokens) for one, some in decoder.translated(config, waiting)}
    assert left and actual.keys() == set(range(len(SOURCES))) - left
    everything = found_in(Room(), config, SOURCES, prepare)
    assert actual == {key: everything[key] for key in actual}


def test_finished_sentences_that_wait_for_their_attention_are_not_lost_if_the_others_leave(
    prepare: Prepare,
) -> None:
    config = replace(TO_THE_CAP, rows=2)
    decoder = decoder_in(Room(), prepare)
    short, long = (Sentence(key, [4] * length, aligned=True) for key, length in enumerate((1, 20)))

    class Left(ListQueue):
        """A queue that the long sentence leaves."""

        def gone(self, running: Sequence[Sentence]) -> list[int]:
            return [0] if [one.key for one in running] == [1] else []

    results = {one.key: some for one, some in decoder.translated(config, Left([short, long]))}
    assert results.keys() == {0}
    assert results[0] and results[0][0].attention_TS is not None


def test_a_batch_size_that_was_too_large_is_not_tried_again(prepare: Prepare) -> None:
    room = Room("encode", sentences=3)
    found_in(room, TO_THE_CAP, sources(*[6] * 24), prepare)
    assert sum(count > 3 for count in room.encoded) <= 4


@pytest.mark.parametrize("place", ["encode", "step"])
def test_other_errors_are_raised(prepare: Prepare, place: Where) -> None:
    room = Room(place, sentences=3, error=RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        found_in(room, TO_THE_CAP, SOURCES, prepare)


@pytest.mark.parametrize(("rows", "beam", "most"), [(1, 1, 1), (4, 1, 4), (4, 2, 2), (7, 3, 2), (2, 3, 1)])
def test_a_batch_has_no_more_rows_than_the_setting(prepare: Prepare, rows: int, beam: int, most: int) -> None:
    """Check the number of rows, except for a single sentence whose beam is larger."""
    room = Room()
    actual = found_in(room, replace(TO_THE_CAP, rows=rows, beam=beam), SOURCES, prepare)
    assert len(actual) == len(SOURCES)
    assert max(sentences for _, sentences, _ in room.steps) == most
    assert max(count for count, _, _ in room.steps) <= max(rows, beam)


@pytest.mark.parametrize("tokens", [1, 13, 14, 30, 1000])
def test_a_batch_has_no_more_source_tokens_than_the_limit(
    prepare: Prepare, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the number of tokens, except for a single sentence that is longer."""
    room = Room()
    monkeypatch.setattr(batch, "TOKENS", tokens)
    actual = found_in(room, TO_THE_CAP, SOURCES, prepare)
    assert len(actual) == len(SOURCES)
    assert all(sentences * longest <= tokens for _, sentences, longest in room.steps if sentences > 1)
    most = max(sentences for _, sentences, _ in room.steps)
    assert most == (1 if tokens < 3 else len(SOURCES) if tokens == 1000 else most)


class Late(ListQueue):
    """Let long sentences arrive while short ones are in search."""

    def __init__(self, short: Sequence[Sentence], long: Sequence[Sentence]) -> None:
        super().__init__(short)
        self._late = long

    def take(
        self, config: SearchConfig, slots: int, tokens: int, running: Sequence[Sentence]
    ) -> list[Sentence]:
        """See `Queue`."""
        chosen = super().take(config, slots, tokens, running)
        self.put_back(self._late)
        self._late = []
        return chosen


def test_long_sentences_that_arrive_later_keep_the_limit_of_source_tokens(
    prepare: Prepare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Room()
    monkeypatch.setattr(batch, "TOKENS", 60)
    config = replace(TO_THE_CAP, rows=8)
    short = [Sentence(key, tokens) for key, tokens in enumerate(sources(2, 2, 2, 2, 6, 6, 6, 6))]
    long = [Sentence(100 + key, tokens) for key, tokens in enumerate(sources(*[28] * 4))]
    actual = list(decoder_in(room, prepare).translated(config, Late(short, long)))
    assert len(actual) == 12
    assert all(sentences * longest <= 60 for _, sentences, longest in room.steps if sentences > 1)


def test_waiting_sentences_replace_those_that_are_done(prepare: Prepare) -> None:
    """Translate one sentence of 20 tokens and ten of 3, two at a time. Short ones join the long one."""
    room = Room()
    texts = sources(20, *[3] * 10)
    actual = found_in(room, replace(TO_THE_CAP, rows=2), texts, prepare)
    assert [len(actual[key] or []) for key in range(11)] == [len(source) for source in texts]
    in_turn = 21 + 5 * 4
    at_best = (21 + 10 * 4) / 2
    assert at_best <= len(room.steps) <= at_best + 3 < in_turn


def test_the_longest_waiting_sentences_that_fit_are_taken_first() -> None:
    waiting = [Sentence(length, [2] * length) for length in (1, 2, 3, 4, 5)]

    def keys(some: Sequence[Sentence]) -> list[int]:
        return [sentence.key for sentence in some]

    beside = [Sentence(9, [2] * 5)]
    assert keys(take_longest(waiting, 9, 17, [])) == [4, 5]
    assert keys(take_longest(waiting, 1, 17, beside)) == [3]
    assert keys(take_longest(waiting, 9, 11, beside)) == []
    assert keys(take_longest(waiting, 9, 2, [])) == [2]
    assert keys(waiting) == [1]
    assert take_longest([], 9, 9, []) == []


def test_an_empty_queue_gives_no_translations(prepare: Prepare) -> None:
    everything: list[Found] = list(decoder_in(Room(), prepare).translated(TO_THE_CAP, ListQueue([])))
    assert everything == []


@pytest.mark.parametrize("every", [1, 2])
def test_aligned_sentences_have_attention_and_all_are_translated(prepare: Prepare, every: int) -> None:
    decoder = decoder_in(Room(), prepare)
    sentences = [Sentence(key, tokens, aligned=not key % every) for key, tokens in enumerate(SOURCES * 4)]
    actual = list(decoder.translated(TO_THE_CAP, ListQueue(sentences)))
    assert sorted(sentence.key for sentence, _ in actual) == list(range(len(sentences)))
    for sentence, hypotheses in actual:
        assert hypotheses
        attention_TS = hypotheses[0].attention_TS
        assert (attention_TS is not None) == sentence.aligned
        if attention_TS is not None:
            assert attention_TS.shape == (len(hypotheses[0].tokens), len(sentence.tokens) + 1)


def test_a_sentence_without_memory_for_its_attention_is_translated(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(batch, "source_attention", fails)
    decoder = decoder_in(Room(), prepare)
    actual = list(decoder.translated(TO_THE_CAP, ListQueue([Sentence(0, [3, 4], aligned=True)])))
    assert [hypotheses and hypotheses[0].attention_TS for _, hypotheses in actual] == [None]
