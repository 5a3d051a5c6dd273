"""Averages: exact float64 means, within the memory of one model, written atomically."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from nmt_cli.checkpoints import model_folder
from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model, write_shortlist
from nmt_cli.checkpoints.verified_files import write_description, write_tensors
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.shortlist import shortlist_of
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import differing, refusal
from tests.searching import translate_ids

Digests = Callable[[Path], dict[str, str]]
FullDisk = Callable[[int], AbstractContextManager[None]]

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def write(folder: Path, identity: Identity, tensors: Mapping[str, Tensor], **origin: object) -> Path:
    folder.mkdir(parents=True)
    write_model(folder, identity, tensors, origin)
    return folder


def drawn(identity: Identity, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return weights of many magnitudes. Sums of a few exceed the range of float16."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: (torch.randn(tensor.shape, generator=chance) * 20_000).clamp(-6e4, 6e4).to(dtype)
        for name, tensor in weights(identity.build()).items()
    }


@pytest.fixture
def models(tmp_path: Path, identity: Identity) -> list[Path]:
    """Return model folders of three steps."""
    return [write(tmp_path / f"m{i}", identity, drawn(identity, i), step=10 * i) for i in (1, 2, 3)]


def exact_mean(tensors: list[Tensor]) -> Tensor:
    """Return the mean of each weight, from a sum without rounding."""
    columns = zip(*(tensor.double().flatten().tolist() for tensor in tensors), strict=True)
    means = [math.fsum(column) / len(tensors) for column in columns]
    return torch.tensor(means, dtype=torch.float64).view_as(tensors[0]).to(tensors[0].dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(count=st.integers(1, 9), seed=st.integers(0, 10**6))
@hypothesis_settings(max_examples=6)
def test_every_weight_is_the_mean_in_float64_and_keeps_its_type(
    tmp_path_factory: pytest.TempPathFactory, identity: Identity, dtype: torch.dtype, count: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("average")
    originals = [drawn(identity, seed + i, dtype) for i in range(count)]
    average([write(folder / str(i), identity, some) for i, some in enumerate(originals)], folder / "out")
    means = {name: exact_mean([original[name] for original in originals]) for name in originals[0]}
    actual = load_file(folder / "out/model.safetensors")
    assert not differing(actual, means)
    assert {tensor.dtype for tensor in actual.values()} == {dtype}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_single_model_is_its_own_average_bit_by_bit(
    tmp_path: Path, identity: Identity, dtype: torch.dtype
) -> None:
    tensors = drawn(identity, 1, dtype)
    tensors["output_matrix"].view(-1)[:4] = torch.tensor([-0.0, 0.0, 1e-7, -1e-40]).to(dtype)
    average([write(tmp_path / "one", identity, tensors)], tmp_path / "out")
    one, out = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "out"))
    assert one == out


def test_the_result_is_a_whole_model_that_translates_as_one_averaged_by_hand(
    tmp_path: Path, identity: Identity
) -> None:
    torch.manual_seed(3)
    trained = [weights(identity.build()) for _ in range(3)]
    folders = [write(tmp_path / str(i), identity, tensors) for i, tensors in enumerate(trained)]
    average(folders, tmp_path / "out")
    by_hand = identity.build().eval()
    with torch.no_grad():
        for name, parameter in weights(by_hand).items():
            parameter.copy_(torch.stack([tensors[name].double() for tensors in trained]).mean(0))
    model = read_model(tmp_path / "out")
    assert model.identity == replace(identity, tokenizers=model.identity.tokenizers)
    assert model.identity.tokenizers.files == identity.tokenizers.files
    sources = [[5, 6, 7], [9]]
    actual, expected = (translate_ids([m], sources, SearchConfig()) for m in (model.transformer, by_hand))
    assert actual == expected
    assert actual[0] != actual[1]


def test_an_average_records_its_steps_and_has_no_other_files_of_a_checkpoint(
    tmp_path: Path, models: list[Path], digests: Digests
) -> None:
    before = [digests(folder) for folder in models]
    parts = average(models, tmp_path / "out")
    assert [digests(folder) for folder in models] == before
    assert [part.step for part in parts] == [10, 20, 30]
    recorded = json.loads((tmp_path / "out/config.json").read_bytes())["averaged"]
    assert [part["step"] for part in recorded] == [10, 20, 30]
    assert [part["sha256"] for part in recorded] == [
        digests(folder)["model.safetensors"] for folder in models
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("README.md", "config.json", "model.safetensors", "tokenizer")
    ]


def test_an_average_keeps_the_shortlist_of_the_last_model(
    tmp_path: Path, identity: Identity, models: list[Path]
) -> None:
    own = shortlist_of([[token] for token in range(len(identity.tokenizers.source.vocabulary))])
    write_shortlist(models[-1], own, identity.tokenizers)
    average(models, tmp_path / "out")
    kept = read_model(tmp_path / "out").shortlist
    assert kept
    assert kept.targets.tolist() == own.targets.tolist()


def test_an_average_of_averages_records_all_steps(tmp_path: Path, models: list[Path]) -> None:
    average(models[:2], tmp_path / "a")
    average([tmp_path / "a", models[2]], tmp_path / "b")
    first, second = read_model(tmp_path / "b").description["averaged"]
    assert [part["step"] for part in first["averaged"]] == [10, 20]
    assert second["step"] == 30


def test_other_training_data_is_recorded_too(tmp_path: Path, identity: Identity, models: list[Path]) -> None:
    other = replace(identity, trained_on={"inputs": ["b.en"]})
    average([write(tmp_path / "a", other, drawn(other, 1)), models[0]], tmp_path / "out")
    description = read_model(tmp_path / "out").description
    assert description["trained_on"] == identity.trained_on
    assert description["averaged"][0]["trained_on"] == {"inputs": ["b.en"]}
    assert "trained_on" not in description["averaged"][1]


@pytest.mark.parametrize("setting", [{"residual_dropout": 0.3}, {"init": "smaller"}], ids=["dropout", "init"])
def test_dropout_and_initialisation_may_differ_and_are_those_of_the_last(
    tmp_path: Path, identity: Identity, models: list[Path], setting: dict[str, Any]
) -> None:
    later = replace(identity, config=replace(identity.config, **setting))
    average([models[0], write(tmp_path / "b", later, drawn(later, 2))], tmp_path / "out")
    assert read_model(tmp_path / "out").identity.config == later.config


PEAKS = """
import sys
from pathlib import Path
from nmt_cli.checkpoints.average import average

def peak():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024

folder = Path(sys.argv[1])
for count in (1, 2, 12):
    average([folder / str(i) for i in range(count)], folder / "out")
    print(peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell how much was used")
def test_twelve_models_take_no_more_memory_than_two(tmp_path: Path, identity: Identity) -> None:
    large = ModelConfig(width=512, heads=4, feed_forward=2048, encoder_layers=3, decoder_layers=1)
    own = replace(identity, config=large)
    first = write(tmp_path / "0", own, {n: torch.rand(t.shape) for n, t in weights(own.build()).items()})
    for i in range(1, 12):
        shutil.copytree(first, tmp_path / str(i), copy_function=os.link)
    model = (first / "model.safetensors").stat().st_size >> 20
    command = [sys.executable, "-c", PEAKS, str(tmp_path)]
    # What is freed goes back at once, or holes that malloc keeps would hide what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout
    one, two, twelve = map(int, output.split())
    assert model > 50
    assert two - one < model / 2
    assert twelve - two < model / 10


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"width": 20}, "its width is 20, not 16."),
        ({"feed_forward": 8, "width": 20}, "its width is 20, not 16."),
        ({"decoder_layers": 2}, "its decoder_layers is 2, not 1."),
        ({"window": 3}, "its window is 3, not 0."),
    ],
    ids=str,
)
def test_another_architecture_is_reported_by_its_first_difference(
    tmp_path: Path, identity: Identity, models: list[Path], changes: dict[str, Any], problem: str
) -> None:
    own = replace(identity, config=replace(identity.config, **changes))
    odd = write(tmp_path / "odd", own, drawn(own, 1))
    message = refusal(average, [*models, odd], tmp_path / "out")
    assert message == f"{odd} cannot be averaged with {models[0]}: {problem}"
    assert not (tmp_path / "out").exists()


def test_another_vocabulary_is_reported(
    tmp_path: Path, identity: Identity, models: list[Path], make: Callable[..., Outcome], dev: str
) -> None:
    make(tmp_path / "dataset", [dev])
    own = replace(identity, tokenizers=load_tokenizers(tmp_path / "dataset/tokenizer"))
    odd = write(tmp_path / "odd", own, drawn(own, 1))
    assert refusal(average, [models[0], odd], tmp_path / "out") == (
        f"{odd} cannot be averaged with {models[0]}: it has another vocabulary. Use models of one dataset."
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda old: {k: old[k] for k in old if k != "output_matrix"}, "only one of them has output_matrix"),
        (lambda old: {**old, "a": torch.ones(1)}, "only one of them has a."),
        (
            lambda old: {**old, "output_matrix": torch.ones(8, 16)},
            "output_matrix is F32 [8, 16], not F32 [16,",
        ),
        (lambda old: {k: t.half() for k, t in old.items()}, " is F16 ["),
    ],
    ids=["one less", "one more", "another shape", "another type"],
)
def test_other_tensors_are_reported_by_the_first_difference(
    tmp_path: Path,
    identity: Identity,
    models: list[Path],
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    problem: str,
) -> None:
    odd = write(tmp_path / "odd", identity, change(drawn(identity, 1)))
    message = refusal(average, [*models, odd], tmp_path / "out")
    assert message.startswith(f"{odd} cannot be averaged with {models[0]}: ")
    assert problem in message


def test_weights_that_are_no_tensors_are_reported_although_their_hash_is_right(
    tmp_path: Path, models: list[Path]
) -> None:
    old = json.loads((models[1] / "config.json").read_bytes())
    (models[1] / "model.safetensors").write_bytes(b"rubbish")
    del old["files"], old["sha256"]
    write_description(models[1], "config.json", old, covers=["model.safetensors"])
    assert refusal(average, models, tmp_path / "out").startswith(
        f"{models[1]}/model.safetensors is damaged ("
    )


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(5, "Input/output error")], ids=repr)
@pytest.mark.parametrize("what", ["write_tensors", "write_description"])
def test_an_interrupted_average_leaves_nothing_but_the_one_before(
    tmp_path: Path,
    models: list[Path],
    digests: Digests,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    failure: BaseException,
) -> None:
    def fail(path: Path, *_: object, **__: object) -> None:
        if what == "write_tensors":
            path.write_bytes(b"half")
        raise failure

    average(models[:2], tmp_path / "out")
    before = digests(tmp_path)
    monkeypatch.setattr(model_folder, what, fail)
    for name in ("out", "new"):
        with pytest.raises(type(failure)):
            average(models, tmp_path / name)
    assert digests(tmp_path) == before


def test_a_full_disk_is_reported_and_no_file_is_left(
    tmp_path: Path, models: list[Path], digests: Digests, full_disk: FullDisk
) -> None:
    before = digests(tmp_path)
    with full_disk(3000):
        message = refusal(average, models, tmp_path / "out")
    assert message.startswith(f"{tmp_path / 'out'} can't be written: ")
    assert digests(tmp_path) == before


def test_an_earlier_average_or_an_empty_folder_is_replaced(tmp_path: Path, models: list[Path]) -> None:
    (tmp_path / "out").mkdir()
    average(models[:1], tmp_path / "out")
    average(models, tmp_path / "out")
    assert len(read_model(tmp_path / "out").description["averaged"]) == 3


@pytest.mark.parametrize("kind", ["run", "file", "model", "number", "average with notes"])
def test_other_folders_and_files_are_not_replaced(
    tmp_path: Path, models: list[Path], digests: Digests, kind: str
) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("dear diary", encoding="utf-8")
    if kind == "run":
        shutil.copytree(models[0], out / "checkpoints/step-00000001")
    if kind == "model":
        shutil.copytree(models[0], out)
    if kind == "number":
        out.mkdir()
        (out / "config.json").write_text("5")
    if kind == "average with notes":
        average(models, out)
        (out / "notes.txt").touch()
    before = digests(tmp_path)
    assert refusal(average, models, out) == (
        f"{out} exists and is not an average that could be replaced. Choose another --out."
    )
    assert digests(tmp_path) == before


def test_an_average_does_not_replace_one_of_its_models(tmp_path: Path, models: list[Path]) -> None:
    average(models, tmp_path / "out")
    message = refusal(average, [models[0], tmp_path / "out"], tmp_path / "out")
    assert message == f"{tmp_path / 'out'} is one of the models to average. Choose another --out."


def test_large_tensors_are_averaged_to_their_end(tmp_path: Path, identity: Identity) -> None:
    large = [torch.rand(2, (1 << 20) + 3, generator=torch.Generator().manual_seed(i)) for i in (1, 2)]
    folders = [write(tmp_path / str(i), identity, {"large": tensor}) for i, tensor in enumerate(large)]
    average(folders, tmp_path / "out")
    actual = load_file(tmp_path / "out/model.safetensors")["large"]
    assert torch.equal(actual, torch.stack(large).double().mean(0).float())


def test_tensors_of_no_elements_are_averaged(tmp_path: Path, identity: Identity) -> None:
    folder = write(tmp_path / "a", identity, {"empty": torch.ones(0, 3), "number": torch.tensor(2.5)})
    write_tensors(tmp_path / "expected", {"empty": torch.ones(0, 3), "number": torch.tensor(2.5)})
    average([folder, folder], tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "expected").read_bytes()


def test_no_average_is_made_of_weights_that_are_no_numbers(
    tmp_path: Path, identity: Identity, models: list[Path]
) -> None:
    spoilt = drawn(identity, 1)
    name = next(iter(spoilt))
    spoilt[name].view(-1)[0] = math.nan
    bad = write(tmp_path / "bad", identity, spoilt)
    message = refusal(average, [*models, bad], tmp_path / "out")
    assert message.startswith(f"{bad}/model.safetensors: {name} has values that are not finite")
    assert not (tmp_path / "out").exists()
