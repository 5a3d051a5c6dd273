"""The model folder: complete, read bit by bit as written, never with the tokeniser or weights of another."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.model_folder import (
    SHORTLIST,
    Identity,
    read_model,
    shareable,
    weights,
    write_model,
    write_shortlist,
)
from nmt_cli.checkpoints.verified_files import write_description, write_tensors
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import EncoderLayer, Transformer
from nmt_cli.text.shortlist import Shortlist, shortlist_of
from tests.checks import differing, refusal


@pytest.fixture
def folder(tmp_path: Path, identity: Identity, model: Transformer) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder, identity, weights(model), {"step": 12})
    return folder


CONTENT = ("format", "nmt", "step", "languages", "model", "tokenizer", "trained_on")


def describe(folder: Path, changes: Mapping[str, object], without: str = "") -> None:
    """Write a valid `config.json` with other content."""
    old = json.loads((folder / "config.json").read_bytes())
    content = {key: old[key] for key in CONTENT if key != without}
    write_description(folder, "config.json", {**content, **changes}, covers=["model.safetensors"])


@contextmanager
def layers_counted() -> Iterator[list[object]]:
    """Count the encoder layers that are built in this context."""
    built: list[object] = []
    begin = EncoderLayer.__init__

    def counted(layer: EncoderLayer, config: ModelConfig, positions: None) -> None:
        built.append(layer)
        begin(layer, config, positions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncoderLayer, "__init__", counted)
        yield built


def test_a_model_comes_back_whole(folder: Path, identity: Identity, model: Transformer) -> None:
    back = read_model(folder)
    assert back.identity.config == identity.config
    assert back.identity.tokenizers.files == identity.tokenizers.files
    assert back.identity.trained_on == identity.trained_on
    assert back.description["step"] == 12
    assert back.description["languages"] == {"source": "en", "target": "de"}
    assert not back.transformer.training
    assert not differing(weights(back.transformer), weights(model))


def test_the_folders_of_texts_in_an_older_model_are_not_read_and_not_written_again(
    folder: Path, tmp_path: Path
) -> None:
    inputs = {
        **{"role": "train", "name": "news", "pairs": 3, "filters": {"scorer": "/home/ann/score.py"}},
        "files": [{"path": "/home/ann/news.en", "sha256": "00"}, {"path": "news.de", "sha256": "11"}],
    }
    describe(folder, {"trained_on": {"inputs": [inputs], "longest": 9}})
    record = read_model(folder).identity.trained_on
    (kept,) = record["inputs"]
    assert kept == {
        **{"role": "train", "name": "news", "pairs": 3},
        "files": [{"path": "news.en", "sha256": "00"}, {"path": "news.de", "sha256": "11"}],
    }
    assert record["longest"] == 9
    average([folder], tmp_path / "average")
    assert not [path for path in (tmp_path / "average").rglob("*.*") if b"ann" in path.read_bytes()]


@pytest.mark.parametrize("inputs", [None, 3, "news.en", [3], ["a.en"], [{"files": 3}], [{"files": [3]}]])
def test_a_training_record_of_another_form_stays_as_it_is(inputs: object) -> None:
    assert shareable({"inputs": inputs, "longest": 9}) == {"inputs": inputs, "longest": 9}


def test_reading_weights_draws_no_random_numbers(folder: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    read_model(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_folder_needs_nothing_outside_it(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder, tmp_path / "elsewhere")
    assert read_model(tmp_path / "elsewhere").identity.tokenizers.target.encode("ab")


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_a_tied_matrix_is_stored_once(
    tmp_path: Path, identity: Identity, tie: Literal["all", "decoder", "none"], matrices: int
) -> None:
    tied = ModelConfig(width=20, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1)
    own = replace(identity, config=replace(tied, tie=tie))
    model = own.build()
    write_model(tmp_path, own, weights(model), {})
    stored = load_file(tmp_path / "model.safetensors")
    vocabulary = len(identity.tokenizers.target.vocabulary.entries)
    assert sum(tensor.shape == (vocabulary, 20) for tensor in stored.values()) == matrices
    back = read_model(tmp_path).transformer
    assert (back.output_matrix is back.target_embedding.matrix) == (tie != "none")
    assert (back.source_embedding.matrix is back.target_embedding.matrix) == (tie == "all")
    assert torch.equal(back.output_matrix, model.output_matrix)


def test_another_tokeniser_is_refused(
    folder: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str
) -> None:
    make(tmp_path / "other", [toy], "tokenizer.joint=false")
    shutil.rmtree(folder / "tokenizer")
    shutil.copytree(tmp_path / "other/tokenizer", folder / "tokenizer")
    assert refusal(read_model, folder) == (
        f"{folder / 'tokenizer'} is not the tokeniser that this model was trained with. "
        "Copy the complete model folder again."
    )


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without("output_matrix"), "has no output_matrix, so it belongs to another model."),
        (
            lambda old: {**old, "surplus": torch.ones(1)},
            "has an additional surplus, so it belongs to another",
        ),
        (
            lambda old: {**old, "output_matrix": old["output_matrix"][:8]},
            ": output_matrix is [8, 16], but this model's is [16, 16].",
        ),
        (lambda old: {}, "has no "),
    ],
    ids=["one less", "one more", "another shape", "none"],
)
def test_weights_of_another_model_are_refused(
    folder: Path,
    model: Transformer,
    change: Callable[[Mapping[str, Tensor]], dict[str, Tensor]],
    problem: str,
) -> None:
    write_tensors(folder / "model.safetensors", change(weights(model)))
    describe(folder, {})
    message = refusal(read_model, folder)
    assert message.startswith(f"{folder / 'model.safetensors'}")
    assert problem in message


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weights_in_half_and_double_precision_are_read_as_fp32(
    folder: Path, model: Transformer, dtype: torch.dtype
) -> None:
    rounded = {name: tensor.to(dtype) for name, tensor in weights(model).items()}
    write_tensors(folder / "model.safetensors", rounded)
    describe(folder, {})
    actual = weights(read_model(folder).transformer)
    assert {tensor.dtype for tensor in actual.values()} == {torch.float32}
    assert not differing(actual, {name: tensor.float() for name, tensor in rounded.items()})


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.uint32, torch.bool, torch.complex64, torch.float8_e4m3fn]
)
def test_weights_of_other_types_are_refused(folder: Path, model: Transformer, dtype: torch.dtype) -> None:
    rounded = {name: tensor.detach().abs().to(dtype) for name, tensor in weights(model).items()}
    write_tensors(folder / "model.safetensors", rounded)
    describe(folder, {})
    assert f"is {str(dtype).removeprefix('torch.')}, but weights must be fp32" in refusal(read_model, folder)


@pytest.mark.parametrize(
    "changes",
    [
        *({"model": model} for model in (None, {"width": "wide"}, {"breadth": 3}, {"width": 7})),
        *({"trained_on": {"longest": longest}} for longest in (-5, 0, 1, "all", 1e9)),
        *(
            {"trained_on": {"longest": 9, "length_ratio": ratio}}
            for ratio in (-1.0, 1, "all", None, float("nan"), float("inf"))
        ),
    ],
    ids=str,
)
def test_a_description_with_absurd_values_is_reported_with_its_file(
    folder: Path, changes: Mapping[str, Mapping[str, object]]
) -> None:
    describe(folder, changes)
    message = refusal(read_model, folder)
    assert message.startswith(f"{folder / 'config.json'} is damaged")
    for key in [*changes.get("trained_on", {})][-1:]:
        assert f"(trained_on has no {key}" in message


@pytest.mark.parametrize("key", ["model", "tokenizer", "trained_on"])
def test_an_incomplete_description_is_reported_with_its_file(folder: Path, key: str) -> None:
    describe(folder, {}, without=key)
    assert refusal(read_model, folder).startswith(f"{folder / 'config.json'} is damaged")


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("width", 400_000, "width must be 1 to 16384"),
        ("encoder_layers", 20_000, "encoder_layers must be"),
        ("encoder_layers", 900, "has no encoder.1.after_attention.norm.bias, so it belongs to another model"),
        ("width", 16_384, "is \\[.*\\], but this model's is"),
        ("longest", -5, "longest must be"),
    ],
)
def test_settings_that_do_not_match_the_weights_are_refused_before_the_model_is_built(
    folder: Path, setting: str, value: int, problem: str
) -> None:
    old = json.loads((folder / "config.json").read_bytes())
    describe(folder, {"model": {**old["model"], setting: value}})
    with layers_counted() as built:
        assert re.search(problem, refusal(read_model, folder))
    assert len(built) <= 1


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/model.safetensors"])
def test_a_description_names_no_file_outside_its_folder(folder: Path, name: str) -> None:
    description = json.loads((folder / "config.json").read_bytes())
    description["files"][name] = {"bytes": 1, "sha256": "0"}
    (folder / "config.json").write_text(json.dumps(description))
    assert "config.json is damaged" in refusal(read_model, folder)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer/tokenizer.json", "tokenizer/joint.characters.txt"]
)
def test_a_pipe_and_a_device_are_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert f"{Path(name).name} is not an ordinary file" in refusal(read_model, folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert f"{Path(name).name} is not an ordinary file" in refusal(read_model, folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer/tokenizer.json"])
def test_deep_nesting_is_a_plain_error(folder: Path, name: str) -> None:
    (folder / name).write_text("[" * 100_000)
    assert "nested too deeply" in refusal(read_model, folder)


@pytest.fixture
def shortlist(folder: Path, identity: Identity) -> Shortlist:
    """The shortlist of the model in `folder`. Each token lists itself and the tokens 1 and 2."""
    tokenizers = identity.tokenizers
    count = len(tokenizers.source.vocabulary)
    shortlist = shortlist_of([1, 2, token] for token in range(count))
    write_shortlist(folder, shortlist, tokenizers)
    return shortlist


def test_a_model_has_the_shortlist_that_was_written_to_its_folder(folder: Path, shortlist: Shortlist) -> None:
    actual = read_model(folder).shortlist
    assert actual
    np.testing.assert_array_equal(actual.offsets, shortlist.offsets)
    np.testing.assert_array_equal(actual.targets, shortlist.targets)
    (folder / SHORTLIST).unlink()
    assert read_model(folder).shortlist is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tokenizer", lambda x: x.roll(1), "was made for another model. Make it again with nmt shortlist."),
        ("offsets", lambda x: x[1:], "its arrays have the wrong types or sizes"),
        ("offsets", lambda x: x.flip(0), "its offsets do not ascend to the end"),
        ("offsets", lambda x: x + 1, "its offsets do not ascend to the end"),
        ("targets", lambda x: x[:-1], "its offsets do not ascend to the end"),
        ("targets", lambda x: x.long(), "its arrays have the wrong types or sizes"),
        ("targets", lambda x: x + 10_000, "it has tokens that do not exist"),
        ("targets", lambda x: -x, "it has tokens that do not exist"),
    ],
)
@pytest.mark.usefixtures("shortlist")
def test_a_damaged_shortlist_is_refused(
    folder: Path, name: str, change: Callable[[Tensor], Tensor], message: str
) -> None:
    path = folder / SHORTLIST
    tensors = load_file(path)
    save_file({**tensors, name: change(tensors[name]).contiguous()}, path)
    actual = refusal(read_model, folder)
    assert actual.startswith(str(path)) and message in actual
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path)
    assert "is damaged" in refusal(read_model, folder)
