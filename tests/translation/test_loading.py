"""Loading of models for translation."""

import os
import pickle
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import pytest
import torch

from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.engine.packing import KERNELS
from nmt_cli.errors import Caution, UserError
from nmt_cli.model.kernel_trials import Use
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from nmt_cli.runtime.kernels import families
from nmt_cli.translation import loading
from nmt_cli.translation.loading import Hardware, load
from tests.translation.conftest import ON_CPU

CONFIG = TranslateConfig()


def test_each_thread_has_a_worker_with_the_same_weights(made_models: Path) -> None:
    loaded = load([made_models / "copies"], CONFIG, Hardware("cpu", threads=3))
    assert len(loaded.workers) == 3
    assert all(load() is loaded.decoder for load in loaded.workers)


def test_each_of_several_gpus_has_a_worker_that_loads_the_model_on_it(
    made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are meta devices, which have numbers, too."""
    events: list[object] = []

    @contextmanager
    def entered(device: torch.device) -> Iterator[None]:
        events.append(device)
        yield

    def prepared(models: Sequence[Transformer], precision: Precision, shortlist: object = None) -> Decoder:
        events.append(models[0].device)
        return Decoder(models)

    gpus = [torch.device("meta", number) for number in range(2)]
    monkeypatch.setattr(loading, "first_devices", lambda kind, count: gpus)
    monkeypatch.setattr(loading, "start_of_workers", lambda device: "spawn")
    monkeypatch.setattr(Decoder, "of", prepared)
    monkeypatch.setattr(loading, "current", entered)
    loaded = load([made_models / "copies"], CONFIG, Hardware("cuda", 2, precision="fp32"))
    assert (loaded.start, len(loaded.workers)) == ("spawn", 2)
    events.clear()
    pickle.loads(pickle.dumps(loaded.workers[1]))()
    assert events == [gpus[1], torch.device("meta")]  # a tensor has no number there


def test_settings_that_int8_does_not_apply_with_are_one_caution(made_models: Path) -> None:
    search = SearchConfig(no_repeat_ngram=3, sample=True)
    expected = "int8 does not apply with search.no_repeat_ngram, search.sample: translating in fp32"
    with pytest.warns(Caution, match=expected) as caught:
        load([made_models / "copies"], TranslateConfig(search=search), Hardware("cpu", 1, 1, "int8"))
    assert len(caught) == 1
    loaded = load([made_models / "copies"], CONFIG, Hardware("cpu", 1, 1, "int8"))
    with pytest.warns(Caution, match=expected) as caught:
        loaded.options(search)
    assert len(caught) == 1
    load([made_models / "copies"], TranslateConfig(search=search), ON_CPU)


@pytest.mark.parametrize(
    ("names", "precision", "expected"),
    [
        (["copies"], None, [KERNELS]),
        (["copies"], "int8", [KERNELS]),
        (["copies"], "bf16", []),
        (["copies", "loops"], None, []),
    ],
)
def test_kernels_are_compiled_for_models_that_the_engine_may_decode(
    names: list[str],
    precision: Precision | None,
    expected: list[str],
    made_models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(loading, "prepare", lambda *kernels: prepared.extend(kernels))
    monkeypatch.setattr("nmt_cli.engine.decoder.translating_precisions", lambda device: [precision or "fp32"])
    load([made_models / name for name in names], CONFIG, Hardware("cpu", 1, 1, precision))
    assert prepared == expected


def test_several_models_translate_together(made_models: Path) -> None:
    loaded = load([made_models / "copies", made_models / "loops"], CONFIG, ON_CPU)
    assert len(loaded.models) == 2
    assert loaded.ensemble.models == loaded.models


def test_models_with_different_vocabularies_are_refused(made_models: Path) -> None:
    message = f"{made_models / 'other'} and {made_models / 'copies'} have different vocabularies."
    with pytest.raises(UserError) as raised:
        load([made_models / "copies", made_models / "other"], CONFIG, ON_CPU)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", ["copies", "nowhere"])
def test_loading_restores_the_number_of_threads(made_models: Path, name: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        if name == "copies":
            load([made_models / name], CONFIG, ON_CPU)
        else:
            with pytest.raises(UserError, match="is not a model"):
                load([made_models / name], CONFIG, ON_CPU)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_kernels_that_fail_for_a_model_are_replaced_with_one_warning(
    made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses: list[Use] = []

    def failures(use: Use, device: torch.device) -> dict[str, str]:
        uses.append(use)
        return {"attention": "its output is wrong"}

    monkeypatch.setattr(loading, "failures", failures)
    try:
        with pytest.warns(Caution, match=r"for attention \(its output is wrong\)") as caught:
            load([made_models / "copies", made_models / "loops"], CONFIG, ON_CPU)
        assert len(caught) == len(uses) == 1 and uses[0].smoothing is None
        assert families.refused == {"attention"}
    finally:
        families.refused.clear()


def test_plain_kernels_need_no_trial(made_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "failures", None)
    monkeypatch.setenv("NMT_KERNELS", "plain")
    try:
        load([made_models / "copies"], TranslateConfig(), ON_CPU)
        assert families.refused == {*families.FAMILIES}
    finally:
        families.refused.clear()


def test_a_forked_worker_frees_the_memory_of_other_models(
    made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOADED", WeakSet())  # other tests use theirs
    one, other = (load([made_models / name], CONFIG, ON_CPU) for name in ("copies", "french"))
    assert one.decoder.packed and other.decoder.packed
    weights = [weakref.ref(array) for array in other.decoder.packed.matrices]
    assert one.workers[0]() is one.decoder and weights and all(weight() is not None for weight in weights)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert one.workers[0]() is one.decoder and all(weight() is None for weight in weights)
    assert [found.text for found in one.translator.translate(one.decoder, ["ab"])] == ["ab"]
