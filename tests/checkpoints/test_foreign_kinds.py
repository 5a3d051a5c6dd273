"""Recognising models of other toolkits without loading them."""

import argparse
import json
import os
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.foreign_kinds import ForeignKind, Format, Imported, foreign_kind
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions
from nmt_cli.interop.importing import SUPPORTED, read
from tests.checks import refusal

FAIRSEQ = {
    "args": argparse.Namespace(arch="transformer", share_all_embeddings=True),
    "model": {"encoder.embed_tokens.weight": torch.zeros(4, 2)},
    "optimizer_history": [{"num_updates": 1}],
    "extra_state": {"epoch": 1},
}
OPENNMT = {
    "model": {"encoder.embeddings.make_embedding.emb_luts.0.weight": torch.zeros(4, 2)},
    "generator": {"weight": torch.zeros(4, 2)},
    "vocab": {"src": ["a"], "tgt": ["b"]},
    "opt": argparse.Namespace(rnn_size=2),
    "optim": None,
}


def ctranslate2_model() -> bytes:
    """Return the start of a file by `ModelSpec.save` of CTranslate2 4: version, name, revision."""
    name = b"TransformerSpec"
    return struct.pack(f"<IH{len(name)}sBI", 6, len(name) + 1, name, 0, 7)


def write_huggingface(folder: Path) -> Path:
    (folder / "config.json").write_text('{"model_type": "marian", "architectures": ["MarianMTModel"]}')
    (folder / "model.safetensors").touch()
    return folder


def write_ctranslate2(folder: Path) -> Path:
    (folder / "config.json").write_text('{"add_source_eos": true, "bos_token": "<s>"}')
    (folder / "model.bin").write_bytes(ctranslate2_model())
    (folder / "shared_vocabulary.json").write_text("[]")
    return folder


def write_argos(folder: Path) -> Path:
    (folder / "metadata.json").write_text('{"from_code": "en", "to_code": "de"}')
    return folder / "metadata.json"


def write_marian(folder: Path) -> Path:
    settings = np.frombuffer(b"dim-emb: 2\n\0", dtype=np.int8)
    arrays: dict[str, Any] = {"special:model.yml": settings, "Wemb": np.zeros((4, 2))}
    np.savez(folder / "model.npz", **arrays)
    return folder / "model.npz"


def write_torch(content: dict[str, Any], *, zipped: bool) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(content, folder / "checkpoint_best.pt", _use_new_zipfile_serialization=zipped)
        return folder / "checkpoint_best.pt"

    return write


def write_eole(folder: Path) -> Path:
    model = {"architecture": "transformer", "hidden_size": 2}
    (folder / "config.json").write_text(json.dumps({"training": {}, "model": model}))
    (folder / "vocab.json").write_text('{"src": ["<unk>"], "tgt": ["<unk>"]}')
    (folder / "model.00.safetensors").touch()
    return folder / "model.00.safetensors"


def write_sockeye(folder: Path) -> Path:
    (folder / "version").write_text("3.1.34")
    (folder / "config").write_text("!ModelConfig\nconfig_data: !DataConfig\n  max_seq_len_source: 96\n")
    torch.save({"encoder.layers.0.ff.ff1.weight": torch.zeros(2)}, folder / "params.best")
    return folder / "params.best"


def write_gguf(folder: Path) -> Path:
    """Write the header of GGUF: version, number of tensors, number of settings."""
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    return folder / "model.gguf"


def write_onnx(folder: Path) -> Path:
    """Write what `onnx.save` writes for an empty graph."""
    (folder / "config.json").write_text('{"model_type": "marian"}')  # as Optimum does
    (folder / "encoder_model.onnx").write_bytes(bytes.fromhex("080e 3a03 1201 6742 0210 1c"))
    return folder / "encoder_model.onnx"


def write_torchscript(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jit: Any = torch.jit
        jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(folder / "model.pt")
    return folder / "model.pt"


def write_joeynmt(folder: Path) -> Path:
    states = ("model_state", "optimizer_state", "scaler_state", "scheduler_state", "train_iter_state")
    torch.save({state: {"weight": torch.zeros(2)} for state in states}, folder / "best.ckpt")
    (folder / "config.yaml").write_text("name: transformer\n")
    return folder / "best.ckpt"


BARE_FAIRSEQ = {name: FAIRSEQ[name] for name in ("args", "model")}
KINDS: dict[str, list[Callable[[Path], Path]]] = {
    "Hugging Face": [write_huggingface],
    "CTranslate2": [write_ctranslate2],
    "Argos Translate": [write_argos],
    "Marian": [write_marian],
    "fairseq": [
        write_torch(FAIRSEQ, zipped=True),
        write_torch(FAIRSEQ, zipped=False),
        write_torch(BARE_FAIRSEQ, zipped=True),
    ],
    "OpenNMT-py": [
        write_torch(OPENNMT, zipped=True),
        write_torch(OPENNMT, zipped=False),
        write_torch({name: OPENNMT[name] for name in ("vocab", "opt", "optim")}, zipped=True),
    ],
    "eole": [write_eole],
    "JoeyNMT": [write_joeynmt],
    "Sockeye": [write_sockeye],
    "GGUF": [write_gguf],
    "ONNX": [write_onnx],
    "TorchScript": [write_torchscript],
}
CASES = [(kind, write) for kind, writers in KINDS.items() for write in writers]


@pytest.mark.parametrize(("kind", "write"), CASES)
def test_a_model_is_recognised_by_its_file_and_by_its_folder_and_refused(
    kind: str, write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path)
    assert foreign_kind(path) == foreign_kind(tmp_path) == kind
    described = f"in {kind} format" if kind in get_args(Format) else f"of {kind}"
    assert refusal(find_model, path).startswith(f"{path} is a model {described}, not of nmt. ")


def test_every_kind_has_a_case_above() -> None:
    assert {*KINDS} == {*get_args(ForeignKind)}


@pytest.mark.parametrize("kind", get_args(Imported))
def test_a_kind_that_is_imported_has_a_reader_and_is_in_the_list_of_supported_ones(
    kind: str, tmp_path: Path
) -> None:
    assert kind in SUPPORTED
    KINDS[kind][0](tmp_path)
    with pytest.raises(UserError) as caught:  # because the files are not complete
        read(str(tmp_path), ImportOptions("en", "de"))
    assert SUPPORTED not in str(caught.value)


def test_a_folder_with_weights_and_their_conversions_is_a_model_of_hugging_face(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    write_gguf(tmp_path)
    write_huggingface(tmp_path)
    assert foreign_kind(tmp_path) == "Hugging Face"
    assert foreign_kind(tmp_path / "model.safetensors") == "Hugging Face"


class Trap:
    """Its pickle writes a file when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for zipped in (True, False):
        assert foreign_kind(write_torch({**FAIRSEQ, "trap": Trap()}, zipped=zipped)(tmp_path)) == "fairseq"
    assert not Path("sprung").exists()
    with pytest.raises(FileExistsError):  # unpickling runs it
        Path("sprung").mkdir()
        torch.load(tmp_path / "checkpoint_best.pt", weights_only=False)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.npz", b""),
        ("model.npz", b"PK\x03\x04 cut off"),
        ("model.bin", b"\x06"),
        ("pytorch_model.bin", b"PK\x03\x04"),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"[" * 100_000),
        ("config.json", b'{"format": 1}'),
        ("config.json", b'{"model": {"width": 2}}'),
        ("config", b"[core]"),
        ("params.best", b"PK\x03\x04"),
        ("model.00.safetensors", b""),
        ("model.gguf", b"GGU"),
        ("model.onnx", b""),
        ("best.ckpt", b"PK\x03\x04 model_state optimizer_state scheduler_state"),
        ("model.pt", b"\x80\x02 cut off"),
        ("model.pt", b"PK\x03\x04"),
        ("text.de", b"optimizer_history"),
    ],
)
def test_other_files_are_not_recognised(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert foreign_kind(tmp_path / name) is None
    assert foreign_kind(tmp_path) is None
    assert foreign_kind(tmp_path / "missing") is None


def test_our_own_models_and_datasets_are_not_recognised(made_models: Path, toy_dataset: Path) -> None:
    assert foreign_kind(made_models / "copies") is None
    assert foreign_kind(toy_dataset) is None


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files_are_not_recognised(tmp_path: Path) -> None:
    path = write_marian(tmp_path)
    path.chmod(0)
    assert foreign_kind(path) is None
