"""A step between two looks: the host learns nothing from it, and it can be repeated as it was recorded."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from nmt_cli.attention import dispatch
from nmt_cli.decoding import engine
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import LOOK_EVERY, ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Sentence
from nmt_cli.decoding.search import Search
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary
from tests.launches import Strict, record

TINY = ModelConfig(encoder_layers=1, decoder_layers=2, width=8, heads=2, feed_forward=16, norm="pre")
SHAPES = {
    "self-attention": TINY,
    "windows": replace(TINY, decoder_window=4),
    "learned": replace(TINY, positions="learned", longest=90),
    "ssru": replace(TINY, decoder_history="ssru"),
}
CONFIGS = {
    "beam 4": SearchConfig(beam=4, n_best=2, cap_extra=20),
    "beam 1": SearchConfig(beam=1, min_length=3, cap_extra=20),
    "diverse": SearchConfig(beam=3, diversity=0.3, coverage_penalty=0.2, stop_early=True, cap_extra=20),
}


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PART", {})
    monkeypatch.setattr(dispatch, "_compiled", lambda *_: None)


def model_of(shape: ModelConfig) -> Transformer:
    torch.manual_seed(5)
    entries = Vocabulary(("",) * 12, end=0, start=0, unknown=1)
    return Transformer(shape, entries, entries, joint=True).eval()


def search_of(model: Transformer, config: SearchConfig) -> Search:
    return Search(Ensemble.of([model], config), config, LOOK_EVERY)


def sentences(keys: Sequence[int]) -> list[Sentence]:
    return [
        Sentence(key, [2 + (key + i) % 9 for i in range(1 + key % 5)], prefix=[1, 7] if key % 3 == 1 else ())
        for key in keys
    ]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_between_two_looks_nothing_waits_for_the_device(
    shape: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, taken = Search._advance, 0

    def strictly(self: Search, *given: object) -> None:
        nonlocal taken
        with Strict():
            advance(self, *given)  # type: ignore[arg-type]
        taken += 1

    monkeypatch.setattr(Search, "_advance", strictly)
    search, mode = search_of(model_of(SHAPES[shape]), CONFIGS[config]), FakeTensorMode()
    search.join(sentences(range(5)))
    for cache in search._caches:  # a fake tensor can't be looked at
        cache.get_ready()
    with FakeCopyMode(mode):
        search = deepcopy(search)
    with mode:
        for _ in range(LOOK_EVERY - 1):
            assert not search.step()
    assert taken == LOOK_EVERY - 1


Found = dict[int, list[tuple[list[int], float]]]


def found(model: Transformer, config: SearchConfig) -> Found:
    """With few places, so that sentences join when others leave."""
    few = replace(config, rows=5 * config.places)
    each = translated(Ensemble.of([model], few), few, ListQueue(sentences(range(12))))
    return {
        one.key: [(list(hypothesis.tokens), hypothesis.score) for hypothesis in hypotheses or []]
        for one, hypotheses in each
    }


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_repeated_steps_find_what_plain_ones_find(
    shape: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(SHAPES[shape])
    usual, repeats = found(model, CONFIGS[config]), 0

    def recorded(work: Callable[[], None]) -> Callable[[], None]:
        again = record(work)

        def counted() -> None:
            nonlocal repeats
            repeats += 1
            again()

        return counted

    monkeypatch.setattr(engine, "is_gpu", lambda _: True)
    monkeypatch.setattr(engine, "Recorder", lambda: recorded)
    by_repeats = found(model, replace(CONFIGS[config], graphs=True))
    assert repeats > 20
    for key, hypotheses in usual.items():
        assert [tokens for tokens, _ in by_repeats[key]] == [tokens for tokens, _ in hypotheses]
        scores = [score for _, score in hypotheses]
        assert [score for _, score in by_repeats[key]] == pytest.approx(scores, abs=1e-5)


def test_where_recording_fails_a_line_says_so_and_steps_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = model_of(TINY), CONFIGS["beam 4"]
    usual = found(model, config)

    def fails(work: Callable[[], None]) -> Callable[[], None]:
        record(work)
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(engine, "is_gpu", lambda _: True)
    monkeypatch.setattr(engine, "Recorder", lambda: fails)
    with pytest.warns(UserWarning, match="not recorded, which is slower: operation not permitted$") as told:
        plainly = found(model, replace(config, graphs=True))
    assert len(told) == 1
    assert {key: [tokens for tokens, _ in of] for key, of in plainly.items()} == {
        key: [tokens for tokens, _ in of] for key, of in usual.items()
    }
