"""What importing promises for every toolkit: files that are missing, damaged or pipes are clear errors."""

import os
import shutil
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.checkpoints.verified_files import read_tensors, write_tensors
from nmt_cli.interop.exporting import export
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.text.tokenizers import Tokenizers
from tests.interop import test_bergamot, test_ctranslate2, test_eole, test_fairseq, test_m2m100, test_t5
from tests.interop.conftest import assert_mutations_refused, assert_refused, m2m100_folder, marian_folder
from tests.interop.test_exporting import random_model

Make = Callable[..., Tokenizers]


class Toolkit(NamedTuple):
    """A folder of a toolkit, and what the tests do with it."""

    write: Callable[[Path, Make], object]
    """Writes a random model into a new folder. The second argument makes tokenisers of ours."""

    options: ImportOptions
    files: Mapping[str, int]
    """Files that must not be missing, with the number of times to damage each."""

    optional: Mapping[str, int] = {}
    """Other files to damage."""

    without_bias: tuple[Callable[[Path], None], str] | None = None
    """What removes one bias, and the common name of it. None if the model has no biases."""


def dropped(file: str, name: str) -> Callable[[Path], None]:
    """Return what removes a tensor from a file of safetensors."""

    def drop(folder: Path) -> None:
        tensors = read_tensors(folder / file)
        write_tensors(folder / file, {key: tensor for key, tensor in tensors.items() if key != name})

    return drop


def marian(folder: Path, _: Make) -> None:
    marian_folder(folder.with_name("theirs"))
    write(read(str(folder.with_name("theirs")), ImportOptions(positions="marian")), folder.with_name("ours"))
    export(read_model(folder.with_name("ours")), "marian", folder)


def without_marians_bias(folder: Path) -> None:
    arrays = dict(numpy.load(folder / "model.npz"))
    del arrays["decoder_l2_context_bv"]
    numpy.savez(folder / "model.npz", **arrays)


def bergamot(folder: Path, make: Make) -> None:
    export(random_model(folder.with_name("ours"), test_bergamot.STUDENT, make()), "bergamot", folder, "int8")


def fairseq(folder: Path, zipped: bool) -> None:
    args, tensors = Namespace(**test_fairseq.settings()), test_fairseq.fairseqs_tensors(test_fairseq.m2m100())
    test_fairseq.folder_of(folder, {"args": args, "model": tensors}, zipped)


def without_fairseqs_bias(folder: Path) -> None:
    content = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    del content["model"]["encoder.layers.0.fc2.bias"]
    torch.save(content, folder / "checkpoint_best.pt")


def without_ctranslate2s_bias(folder: Path) -> None:
    model_spec = test_ctranslate2.ctranslate2.specs.model_spec

    def change(spec: Any) -> None:
        model_spec.index_spec(spec, "decoder/layer_1/self_attention/linear_1").bias = model_spec.OPTIONAL

    test_ctranslate2.model(folder.with_name("changed"), change=change)
    (folder.with_name("changed") / "model.bin").rename(folder / "model.bin")


GERMAN, FRENCH = ImportOptions("en", "de"), ImportOptions("en", "fr")
TOOLKITS = {
    "Hugging Face": Toolkit(
        lambda folder, _: marian_folder(folder),
        ImportOptions(),
        dict.fromkeys(("config.json", "vocab.json", "model.safetensors", "source.spm"), 20),
        {"generation_config.json": 20},
        (
            dropped("model.safetensors", "model.encoder.layers.2.self_attn.k_proj.bias"),
            "encoder.layers.2.self_attn.k_proj",
        ),
    ),
    "NLLB": Toolkit(
        lambda folder, _: m2m100_folder(folder, "nllb"),
        ImportOptions(*test_m2m100.PAIRS["nllb"]),
        dict.fromkeys(("config.json", "model.safetensors", "sentencepiece.bpe.model"), 12),
        {"tokenizer.json": 12},
        (dropped("model.safetensors", "model.decoder.layers.1.fc1.bias"), "decoder.layers.1.fc1"),
    ),
    "MADLAD": Toolkit(
        lambda folder, _: test_t5.t5_folder(folder, "madlad"),
        GERMAN,
        dict.fromkeys(("config.json", "spiece.model", "model.safetensors"), 20),
    ),
    "CTranslate2": Toolkit(
        lambda folder, _: test_ctranslate2.model(folder, precision="int8"),
        GERMAN,
        {"model.bin": 150, "source_vocabulary.json": 20, "source.spm": 20},
        {"config.json": 20},
        (without_ctranslate2s_bias, "decoder.layers.1.self_attn.out_proj"),
    ),
    "Marian": Toolkit(
        marian,
        FRENCH,
        dict.fromkeys(("model.npz", "source.spm"), 25),
        {"vocab.yml": 25, "decoder.yml": 25},
        (without_marians_bias, "decoder.layers.1.encoder_attn.v_proj"),
    ),
    "Bergamot": Toolkit(bergamot, GERMAN, {test_bergamot.INT8_NAME: 150, "vocab.ende.spm": 20}),
    "eole": Toolkit(
        lambda folder, _: test_eole.folder_of_eole(folder, test_eole.MODELS["biases, tied"]),
        GERMAN,
        dict.fromkeys(("config.json", "vocab.json", "model.00.safetensors", "source.spm"), 20),
        {},
        (
            dropped("model.00.safetensors", "decoder.transformer_layers.1.mlp.down_proj.bias"),
            "decoder.layers.1.fc2",
        ),
    ),
    "fairseq": Toolkit(
        lambda folder, _: fairseq(folder, zipped=True),
        ImportOptions(),
        {"checkpoint_best.pt": 40, "dict.en.txt": 20, "sentencepiece.bpe.model": 20},
        {},
        (without_fairseqs_bias, "encoder.layers.0.fc2"),
    ),
    "old fairseq": Toolkit(
        lambda folder, _: fairseq(folder, zipped=False), ImportOptions(), {"checkpoint_best.pt": 40}
    ),
}
NEEDED = [(toolkit, file) for toolkit, one in TOOLKITS.items() for file in one.files]
DAMAGED = [
    (toolkit, file, times)
    for toolkit, one in TOOLKITS.items()
    for file, times in {**one.files, **one.optional}.items()
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, toy_tokenizers: Make) -> Callable[[str], Path]:
    """Return a function that returns the folder of a toolkit. It is written once, and never changed."""
    folders: dict[str, Path] = {}

    def whole(toolkit: str) -> Path:
        if toolkit not in folders:
            folders[toolkit] = tmp_path_factory.mktemp("whole") / "model"
            TOOLKITS[toolkit].write(folders[toolkit], toy_tokenizers)
        return folders[toolkit]

    return whole


@pytest.fixture
def copied(whole: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that returns a copy of the folder of a toolkit."""
    return lambda toolkit: Path(shutil.copytree(whole(toolkit), tmp_path / "model"))


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_an_undamaged_folder_is_imported(toolkit: str, whole: Callable[[str], Path]) -> None:
    assert read(str(whole(toolkit)), TOOLKITS[toolkit].options).tensors


@pytest.mark.parametrize(("toolkit", "file", "times"), DAMAGED)
def test_a_damaged_file_is_refused_in_a_line_or_imported(
    toolkit: str, file: str, times: int, copied: Callable[[str], Path]
) -> None:
    assert_mutations_refused(copied(toolkit), [file], times, TOOLKITS[toolkit].options, most=4000)


@pytest.mark.parametrize(("toolkit", "file"), NEEDED)
def test_a_missing_file_and_a_pipe_in_its_place_are_refused_at_once(
    toolkit: str, file: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(toolkit)
    (folder / file).unlink()
    assert_refused(folder, str(folder), TOOLKITS[toolkit].options)
    os.mkfifo(folder / file)
    assert_refused(folder, str(folder), TOOLKITS[toolkit].options)


@pytest.mark.parametrize("toolkit", [name for name, one in TOOLKITS.items() if one.without_bias])
def test_a_missing_bias_is_refused_if_another_layer_has_it(
    toolkit: str, copied: Callable[[str], Path]
) -> None:
    without_bias = TOOLKITS[toolkit].without_bias
    assert without_bias
    change, name = without_bias
    change(folder := copied(toolkit))
    message = rf"has no {name}\.bias, but other layers have one"
    assert_refused(folder, message, TOOLKITS[toolkit].options)
