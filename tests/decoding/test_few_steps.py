"""Several steps in one compiled call find what one step after another finds."""

import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nmt_cli.decoding import few_steps
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Hypothesis, Sentence
from nmt_cli.decoding.search import Search
from nmt_cli.machine import standby
from nmt_cli.machine.devices import Precision
from nmt_cli.machine.torch_private import multiplies_int8
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.packed import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary

ENTRIES = 40
CONFIG = ModelConfig(encoder_layers=1, decoder_layers=2, width=32, feed_forward=64, heads=4)
LINES = [[9, 10, 11], [5], [], [12, 13, 14, 15, 16, 17, 18], [20, 21], [7] * 5]


@pytest.fixture(params=[0, 2], ids=lambda count: f"{count} helpers")
def helped(request: pytest.FixtureRequest) -> Iterator[None]:
    """A few threads come to help, more than some machines have cores."""
    standby.call(request.param)
    yield
    standby.call(0)


def anew(config: ModelConfig, precision: Precision = "fp32") -> Transformer:
    """A packed model of random weights, that prefers some tokens, the end among them."""
    torch.manual_seed(3)
    vocabulary = Vocabulary(("",) * ENTRIES, end=0, start=0, unknown=1, never=(2,))
    model = Transformer(config, vocabulary, vocabulary, joint=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    packed = deepcopy(model)
    pack(packed, precision)
    if not packed.few_rows:
        pytest.skip("oneDNN lays out weights in another way on this CPU")
    return packed


made = cache(anew)


def found(model: Transformer, config: SearchConfig, together: int) -> list[list[Hypothesis]]:
    """Of each line; so many are in search at a time, and others join when one is done."""
    search = Search(Ensemble.of([model], config), config)
    results: dict[int, list[Hypothesis]] = {}
    waiting = [Sentence(key, tokens) for key, tokens in enumerate(LINES)]
    while waiting or search.sentences:
        if (free := together - len(search.sentences)) and waiting:
            search.join(waiting[:free])
            waiting = waiting[free:]
        for sentence, hypotheses in search.step():
            results[sentence.key] = hypotheses
    return [results[key] for key in range(len(LINES))]


PLAIN = SearchConfig(beam=2)


def alone(config: SearchConfig) -> dict[int, list[Hypothesis]]:
    """What two sentences are translated to, each for itself, a step at a time."""
    model = anew(CONFIG)
    model.few_rows = None
    found: dict[int, list[Hypothesis]] = {}
    for sentence in (Sentence(0, [9, 10, 11], prefix=[30, 31, 32]), Sentence(2, [7])):
        search = Search(Ensemble.of([model], config), config)
        search.join([sentence])
        while search.sentences:
            found |= {done.key: hypotheses for done, hypotheses in search.step()}
    return found


SEARCHES = {
    "greedy": SearchConfig(beam=1),
    "beam": PLAIN,
    "many": SearchConfig(beam=4, n_best=3, length_rule="power", length_penalty=1.0),
    "early": SearchConfig(beam=4, stop_early=True),
    "to the end": SearchConfig(beam=2, reach=1000.0),
    "caps that come soon": SearchConfig(beam=2, cap_ratio=0.0, cap_extra=3),
    "long": SearchConfig(beam=2, min_length=9, cap_ratio=2.0, cap_extra=60, reach=1000.0),
}
MODELS = {
    "post": CONFIG,
    "pre, with biases": replace(CONFIG, norm="pre", attention_bias=True, output_bias=True, tie="none"),
    "zeros at first": replace(CONFIG, start="zeros"),
    "window": replace(CONFIG, decoder_window=4),
    "odd widths": replace(CONFIG, width=42, feed_forward=70, heads=3, key_width=10, value_width=6),
    "learned positions": replace(CONFIG, positions="learned", longest=80),
}


def assert_the_same(
    model: Transformer, config: SearchConfig, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = [], few_steps.take

    def counted(*given: object) -> int:
        taken.append(take(*given))  # type: ignore[arg-type]
        return taken[-1]

    with monkeypatch.context() as patched:
        patched.setattr(few_steps, "take", counted)
        ours = found(model, config, together)
    with monkeypatch.context() as patched:
        patched.setattr(few_steps, "suffices", lambda *_: False)
        wanted = found(model, config, together)
    for line, other in zip(ours, wanted, strict=True):
        assert [one.tokens for one in line] == [one.tokens for one in other]
        # Keys are summed up in the order in which they came to lie in the cache.
        assert [one.score for one in line] == pytest.approx([one.score for one in other], rel=1e-4)
    assert max(taken) > 1 and all(steps >= 1 for steps in taken)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("together", [1, 2])
def test_every_search_finds_the_same(
    name: str, together: int, helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_the_same(made(CONFIG), SEARCHES[name], together, monkeypatch)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_finds_the_same(
    name: str, precision: Precision, helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if precision == "int8" and not multiplies_int8():
        pytest.skip("this CPU has no kernels for 8 bits")
    assert_the_same(made(MODELS[name], precision), PLAIN, 2, monkeypatch)


def test_more_than_there_is_room_for_find_the_same(helped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = SearchConfig(beam=1, cap_ratio=2.0, cap_extra=60)
    assert_the_same(made(CONFIG), greedy, len(LINES), monkeypatch)


@pytest.mark.parametrize("fast", [True, False])
def test_who_leaves_and_what_is_given_change_nothing_for_others(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SearchConfig(beam=2, min_length=12, cap_extra=60)
    search = Search(Ensemble.of([made(CONFIG)], config), config)
    suffices, asked = few_steps.suffices, list[bool]()

    def told(*given: Any) -> bool:
        asked.append(fast and suffices(*given))
        return asked[-1]

    monkeypatch.setattr(few_steps, "suffices", told)
    search.join([Sentence(0, [9, 10, 11], prefix=[30, 31, 32]), Sentence(1, [12, 13]), Sentence(2, [7])])
    results: dict[int, list[Hypothesis]] = {}
    while search.sentences:
        if len(search.sentences) == 3 and search._ages[0] > 14:
            search.drop([1])
        results |= {sentence.key: found for sentence, found in search.step()}
    assert any(asked) == fast
    wanted = alone(config)
    for key in (0, 2):
        assert [one.tokens for one in results[key]] == [one.tokens for one in wanted[key]]
    assert list(results[0][0].tokens[:3]) == [30, 31, 32]


def test_a_model_that_computes_no_numbers_ends(helped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(CONFIG)
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *given: encode(*given) * torch.nan)
    assert found(model, PLAIN, 1) == [[] for _ in LINES]


def test_nobody_waits_for_a_thread_that_lacks_memory() -> None:
    def failing(opened: NDArray[np.int64], leads: bool, *_: object) -> None:
        if leads:
            raise MemoryError
        while not opened[0]:
            time.sleep(0.01)
        ended.set()

    ended, model = threading.Event(), made(CONFIG)
    search = Search(Ensemble.of([model], PLAIN), PLAIN)
    search.join([Sentence(0, [9, 10, 11])])
    beams, (cache,) = search._beams, search._caches
    assert beams
    standby.call(1)
    try:
        with pytest.raises(MemoryError):
            few_steps.take(
                cast(Any, SimpleNamespace(steps=failing)), model, cache, beams, 4, 4, search._books_rules
            )
        assert ended.wait(60.0)
    finally:
        standby.call(0)
