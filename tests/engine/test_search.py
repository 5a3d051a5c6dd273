"""The engine finds the hypotheses of the plain search, whatever the model and the settings."""

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.engine.decoder import Decoder
from nmt_cli.engine.kernels import team as threads_of_a_team
from nmt_cli.engine.packing import Packed, packed
from nmt_cli.engine.search import EngineSearch, in_team
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.shortlist import Shortlist
from tests.model.models import model_of as random_model
from tests.model.test_variants import SMALL, VARIANTS
from tests.searching import by_engine, plain, translate_sentences

ENTRIES = 90
"""More than a block of outputs, and no multiple of it."""

KNOWN = {name: settings for name, settings in VARIANTS.items() if "window" not in settings}

SENTENCES = [
    Sentence(0, [5, 3, 8]),
    Sentence(1, [2], prefix=[1, 7, 9], certain=2),
    Sentence(2, []),
    Sentence(3, [*range(2, 40)]),
    Sentence(4, [7, 7, 4], prefix=[1, 5]),
    Sentence(5, [3, 9, 9, 9, 2, 5, 6, 7, 8, 10, 4], prefix=[6]),
]

SETTINGS = {
    "greedy": SearchConfig(beam=1),
    "beam": SearchConfig(beam=4, n_best=3),
    "minimum": SearchConfig(beam=4, min_length=6),
    "cap": SearchConfig(beam=4, max_length=4, n_best=4),
    "short": SearchConfig(beam=3, cap_ratio=0.5, cap_extra=1),
    "early": SearchConfig(beam=4, stop_early=True, n_best=2),
    "power": SearchConfig(beam=4, length_rule="power", length_penalty=1.0, reach=1000, n_best=4),
    "no penalty": SearchConfig(beam=2, length_penalty=0.0),
    "unknown": SearchConfig(beam=4, unknown=True),
    "few rows": SearchConfig(beam=4, rows=8, n_best=2),
    "wide": SearchConfig(beam=60, n_best=60, cap_extra=5),
}


def model_of(config: ModelConfig, seed: int = 1) -> Transformer:
    """Return a model with uneven predictions, some of which end sentences."""
    torch.manual_seed(seed)
    model = random_model(config, ENTRIES).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.2)
        model.output_matrix.mul_(2.0)
    return model


def engine_of(model: Transformer, int8: bool = False) -> Packed:
    actual = packed(model, int8)
    assert actual, "the tests need Numba"
    return actual


def assert_same(actual: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [[*one.tokens] for one in actual] == [[*one.tokens] for one in expected]
    for one, other in zip(actual, expected, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-4)
        assert [*one.token_scores] == pytest.approx([*other.token_scores], rel=1e-4, abs=2e-5)


def assert_all_nodes_are_free(search: EngineSearch) -> None:
    uses, free = search._state["uses"], search._state["counts"][0]
    assert not uses.any() and free == len(uses)
    assert sorted(search._state["free"][:free]) == [*range(len(uses))]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("variant", KNOWN)
def test_every_variant_of_the_model_is_searched_as_by_the_plain_search(variant: str, beam: int) -> None:
    model = model_of(replace(SMALL, **KNOWN[variant]))
    config = SearchConfig(beam=beam, n_best=beam, cap_extra=20)
    expected = translate_sentences([model], SENTENCES, config, plain)
    together = translate_sentences([model], SENTENCES, config, by_engine)
    for sentence in SENTENCES:
        assert_same(together[sentence.key] or [], expected[sentence.key] or [])
        alone = translate_sentences([model], [sentence], config, by_engine)
        assert_same(alone[sentence.key] or [], expected[sentence.key] or [])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_every_setting_is_applied_as_by_the_plain_search(name: str, seed: int) -> None:
    model = model_of(SMALL, seed)
    expected = translate_sentences([model], SENTENCES, SETTINGS[name], plain)
    actual = translate_sentences([model], SENTENCES, SETTINGS[name], by_engine)
    for sentence in SENTENCES:
        assert expected[sentence.key]
        assert_same(actual[sentence.key] or [], expected[sentence.key] or [])


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_sentences_that_join_and_leave_change_no_other_and_all_nodes_are_freed(seed: int, beam: int) -> None:
    model, config = model_of(SMALL, seed), SearchConfig(beam=beam, n_best=beam)
    chosen, search = random.Random(seed), EngineSearch(engine_of(model), config)
    sources = [chosen.choices(range(2, ENTRIES), k=chosen.randint(0, 30)) for _ in range(30)]
    waiting = [Sentence(key, tokens) for key, tokens in enumerate(sources)]
    expected = translate_sentences([model], waiting, config, plain)
    done, dropped = dict[int, list[Hypothesis]](), set[int]()
    while waiting or search.sentences:
        if waiting and (chosen.random() < 0.7 or not search.sentences):
            search.join([waiting.pop() for _ in range(min(len(waiting), chosen.randint(1, 4)))])
        done |= {sentence.key: found for sentence, found in search.step()}
        leaving = [number for number in range(len(search.sentences)) if chosen.random() < 0.05]
        dropped |= {search.sentences[number].key for number in leaving}
        search.drop(leaving)
    assert done.keys() == expected.keys() - dropped
    for key, found in done.items():
        assert_same(found, expected[key] or [])
    assert_all_nodes_are_free(search)


def test_a_longer_prefix_that_joins_later_is_not_that_of_other_sentences() -> None:
    search, first = EngineSearch(engine_of(model_of(SMALL)), SearchConfig(min_length=5)), SENTENCES[0]
    alone = by_steps(search, first)
    search.join([first])
    assert by_steps(search, SENTENCES[1])[0] == alone[0]


def teams(count: int) -> Iterator[Any]:
    """Yield the hypotheses of sentences by so many threads."""
    model = model_of(SMALL)
    for int8 in (False, True):
        search = EngineSearch(engine_of(model, int8), SearchConfig(beam=4, n_best=4), lambda _: count)
        search.join(SENTENCES)
        while search.sentences:
            yield [(sentence.key, found) for sentence, found in search.step()]


@pytest.mark.parametrize("count", [2, 3])
def test_several_threads_find_the_same_bits_as_one(count: int) -> None:
    assert [*teams(count)] == [*teams(1)]


TEAM: Any = threads_of_a_team
take, next_unit = TEAM.take, TEAM.next_unit


@njit(nogil=True)
def take_one(team):  # type: ignore[no-untyped-def]
    return take(team, 0, 2)


@njit(nogil=True)
def do_all(team):  # type: ignore[no-untyped-def]
    for phase in range(3):
        unit = take(team, phase, 2)
        while unit >= 0:
            unit = next_unit(team, phase, 2)


@pytest.mark.parametrize("helper_fails", [True, False])
def test_an_error_in_one_thread_of_a_team_ends_the_others_and_is_raised(helper_fails: bool) -> None:
    """The unit that the thread has taken is never done, so without care the other one waits forever."""
    team, caller, taken = np.zeros(TEAM.SIZE, np.int64), threading.get_ident(), threading.Barrier(2)

    def work() -> None:
        fails = (threading.get_ident() != caller) == helper_fails
        if fails:
            take_one(team)
        taken.wait()
        if fails:
            raise MemoryError
        do_all(team)

    with pytest.raises(MemoryError):
        in_team(team, work, threads=2)


def test_a_sentence_whose_probabilities_are_nan_has_no_hypotheses_and_changes_no_other() -> None:
    model, config = model_of(replace(SMALL, tie="none")), SearchConfig(beam=3)
    expected = translate_sentences([model], SENTENCES, config, by_engine)
    with torch.no_grad():
        model.source_embedding.matrix[50] = torch.nan
    bad = Sentence(9, [4, 50, 6])
    actual = translate_sentences([model], [*SENTENCES, bad], config, by_engine)
    assert actual == expected | {9: []}
    search = EngineSearch(engine_of(model), config)
    search.join([bad, SENTENCES[0]])
    while search.sentences:
        search.step()
    assert_all_nodes_are_free(search)


def test_a_model_whose_weights_are_nan_finds_nothing() -> None:
    model = model_of(SMALL)
    with torch.no_grad():
        model.output_matrix[3] = torch.nan
    assert not any(translate_sentences([model], SENTENCES, SearchConfig(), by_engine).values())


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, norm="pre", gated=True, attention_bias=True)])
def test_8_bit_log_probabilities_are_near_those_of_exact_weights(config: ModelConfig) -> None:
    """Errors are a small part of the differences between tokens. `test_packing.py` has the exact bound."""
    model, chosen = model_of(config), random.Random(1)
    worst, spread = 0.0, list[float]()
    for length in (1, 5, 20):
        target = chosen.choices(range(2, ENTRIES), k=length)
        sentence = Sentence(0, chosen.choices(range(2, ENTRIES), k=length), prefix=target)
        settings = SearchConfig(beam=1, max_length=1)
        (exact,) = translate_sentences([model], [sentence], settings, plain)[0] or []
        ((_, (actual,)),) = by_steps(EngineSearch(engine_of(model, True), settings), sentence)
        difference = np.abs(np.subtract(actual.token_scores, exact.token_scores))
        worst = max(worst, float(difference.max()))
        spread += exact.token_scores
    assert 0 < worst < 0.1 * np.std(spread)


def by_steps(search: EngineSearch, *sentences: Sentence) -> list[tuple[int, list[Hypothesis]]]:
    """Return the hypotheses of sentences by their keys."""
    search.join(sentences)
    done = []
    while search.sentences:
        done += [(sentence.key, found) for sentence, found in search.step()]
    return sorted(done, key=lambda one: one[0])


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_bits_of_a_sentence_do_not_depend_on_the_batch(beam: int, int8: bool) -> None:
    engine, config = engine_of(model_of(SMALL), int8), SearchConfig(beam=beam, n_best=beam)
    together = by_steps(EngineSearch(engine, config), *SENTENCES)
    assert together == [by_steps(EngineSearch(engine, config), sentence)[0] for sentence in SENTENCES]


def test_the_file_of_the_weights_may_change_after_packing() -> None:
    model = model_of(SMALL)
    decoder = Decoder.of([model])
    assert decoder.packed
    before = by_steps(EngineSearch(decoder.packed, SearchConfig()), *SENTENCES)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "positions" not in name:
                parameter.zero_()
    assert by_steps(EngineSearch(decoder.packed, SearchConfig()), *SENTENCES) == before


def test_the_plain_search_has_the_same_interface() -> None:
    model, config = model_of(SMALL), SearchConfig(beam=2)
    for search in (
        EngineSearch(engine_of(model), config),
        Search(Ensemble([model]), config),
    ):
        search.join(SENTENCES[:3])
        search.drop([1])
        assert [sentence.key for sentence in search.sentences] == [0, 2]


SHORTLIST = Shortlist(
    np.arange(ENTRIES + 1) * 4,
    np.sort(np.random.default_rng(1).integers(1, ENTRIES, (ENTRIES, 4)), axis=1).astype(np.int32).ravel(),
)
"""Four random tokens for each source token. Token 0 ends sentences."""


def restricted(
    model: Transformer, sentence: Sentence, config: SearchConfig, patch: pytest.MonkeyPatch
) -> list[Hypothesis]:
    """Return the hypotheses of the plain search for a sentence alone, with -inf as logits of the tokens that
    its shortlist leaves out."""
    lists = SHORTLIST.targets.reshape(ENTRIES, 4)
    allowed = {0, *sentence.prefix, *lists[[0, *sentence.tokens]].ravel().tolist()}
    others = torch.tensor([token not in allowed for token in range(ENTRIES)])
    with patch.context() as here:
        every = model.logits
        here.setattr(model, "logits", lambda x: every(x).masked_fill(others, -torch.inf))
        return translate_sentences([model], [sentence], config, plain)[sentence.key] or []


def by_shortlist(models: Sequence[Transformer], precision: Precision = "fp32") -> Decoder:
    return Decoder.of(models, precision, SHORTLIST)


@pytest.mark.parametrize("name", ["greedy", "beam", "minimum", "cap", "few rows"])
@pytest.mark.parametrize("seed", range(2))
def test_a_shortlist_restricts_the_softmax_of_each_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    model, config = model_of(SMALL, seed), replace(SETTINGS[name], cap_ratio=0.3, cap_extra=8)
    actual = translate_sentences([model], SENTENCES, config, by_shortlist)
    everything = translate_sentences([model], SENTENCES, config, by_engine)
    for sentence in SENTENCES:
        expected = restricted(model, sentence, config, monkeypatch)
        assert_same(actual[sentence.key] or [], expected)
    assert any(actual[one.key] != everything[one.key] for one in SENTENCES)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_shortlist_of_a_sentence_does_not_depend_on_the_batch(precision: Precision, beam: int) -> None:
    model, config = model_of(SMALL), SearchConfig(beam=beam, n_best=beam, cap_extra=20)
    decoder = by_shortlist([model], precision)
    together = {one.key: found for one, found in decoder.translated(config, ListQueue(SENTENCES))}
    for sentence in SENTENCES:
        ((_, alone),) = decoder.translated(config, ListQueue([sentence]))
        assert alone and alone == together[sentence.key]  # to the last bit
        assert [*alone[0].tokens[: len(sentence.prefix)]] == [*sentence.prefix]


def test_a_complete_shortlist_changes_rounding_alone_in_int8_and_can_be_switched_off() -> None:
    model, config = model_of(SMALL), SearchConfig(beam=4, n_best=4)
    complete = Shortlist(
        np.where(np.arange(ENTRIES + 1) > 0, ENTRIES, 0), np.arange(ENTRIES, dtype=np.int32)
    )  # all are in the list of the end token
    whole, listed = Decoder.of([model], "int8"), Decoder.of([model], "int8", complete)
    expected = dict(_found(whole, config))
    for key, found in _found(listed, config):
        assert_same(found, expected[key])
    assert dict(_found(by_shortlist([model], "int8"), replace(config, shortlist=False))) == expected
    assert dict(_found(by_shortlist([model], "int8"), config)) != expected


def _found(decoder: Decoder, config: SearchConfig) -> Iterator[tuple[int, Sequence[Hypothesis]]]:
    for sentence, found in decoder.translated(config, ListQueue(SENTENCES)):
        assert found is not None
        yield sentence.key, found
