"""fairseq checkpoints: they have the logits of transformers, and no code in them runs."""

import argparse
import collections
import enum
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.importing import read
from nmt_cli.ragged import Layout
from tests.interop.conftest import pieces, spm

WIDTH, LAYERS = 32, 2


def m2m100(size: int) -> Any:
    """Return fairseq's pre-norm Transformer as a transformers model. Positions begin at 2."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(5)
    sizes: dict[str, Any] = {
        "d_model": WIDTH,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
    }
    layers: dict[str, Any] = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
    heads: dict[str, Any] = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = M2M100ForConditionalGeneration(
        M2M100Config(
            vocab_size=size, scale_embedding=True, activation_function="relu", **sizes, **layers, **heads
        )
    )
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.2)
    model.train(False)
    return model


def fairseqs_tensors(model: Any) -> dict[str, Tensor]:
    named = {
        name.removeprefix("model."): tensor
        for name, tensor in model.state_dict().items()
        if "shared" not in name and "lm_head" not in name and "embed_positions" not in name
    }
    named |= {"encoder.version": torch.tensor([3.0]), "decoder.embed_positions._float_tensor": torch.zeros(1)}
    shared = model.model.shared.weight
    return named | {
        f"{name}.weight": shared
        for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    }


def settings() -> dict[str, Any]:
    sides = ("encoder", "decoder")
    same = {"embed_dim": WIDTH, "ffn_embed_dim": 48, "attention_heads": 4, "layers": LAYERS}
    same |= {"normalize_before": True, "learned_pos": False}
    return {f"{side}_{name}": value for side in sides for name, value in same.items()} | {
        "arch": "transformer",
        "share_all_embeddings": True,
        "dropout": 0.1,
        "source_lang": "en",
        "target_lang": "de",
    }


def stranger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a value of a class that only fairseq has."""
    module = types.ModuleType("fairseq.dataclass.constants")
    # A class made by name, as unpickling would look for it.
    kind: Any = enum.EnumType.__call__(enum.Enum, "DDP_BACKEND_CHOICES", {"legacy_ddp": "legacy_ddp"})
    kind.__module__ = module.__name__
    module.__dict__["DDP_BACKEND_CHOICES"] = kind
    for name in ("fairseq", "fairseq.dataclass", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    return next(iter(kind))


def folder_of(folder: Path, content: Any, zipped: bool) -> Path:
    folder.mkdir(exist_ok=True)
    path = spm(folder, "source").rename(folder / "sentencepiece.bpe.model")
    text = "".join(f"{piece} 7\n" for piece in pieces(path)[2:])
    for lang in ("en", "de"):
        (folder / f"dict.{lang}.txt").write_text(text + "madeupword0000 0\n", encoding="utf-8")
    torch.save(content, folder / "checkpoint_best.pt", _use_new_zipfile_serialization=zipped)
    return folder


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("newer", [True, False], ids=["cfg", "args"])
def test_a_checkpoint_gives_the_logits_of_transformers_conversion(
    tmp_path: Path, zipped: bool, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = m2m100(4 + 88 + 1)
    args = argparse.Namespace(**settings(), ddp_backend=stranger(monkeypatch))
    content: dict[str, Any] = {
        "args": None if newer else args,
        "cfg": {"model": args, "task": {"source_lang": "en"}} if newer else None,
        "model": collections.OrderedDict(fairseqs_tensors(theirs)),
        "extra_state": {"best": numpy.float64(3.25), "meters": [numpy.int64(4)]},
        "last_optimizer_state": {"state": {}},
    }
    folder = folder_of(tmp_path / "theirs", content, zipped)
    monkeypatch.undo()
    write(read(str(folder), ImportOptions()), tmp_path / "ours")
    ours = read_model(tmp_path / "ours")
    known = ours.identity.tokenizers.source.vocabulary
    ids = known.ended(ours.identity.tokenizers.source.encode("abba deg fil"))
    assert known.entries[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    targets = [7, 30, 12, 2]
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[2, *targets[:-1]]])
        ).logits[0]
    assert wanted.std() > 0.5
    assert (logits(ours, ids, targets) - wanted).abs().max() <= 1e-4


def logits(ours: Model, ids: list[int], targets: list[int]) -> Tensor:
    model = ours.transformer
    with torch.no_grad():
        layouts = (Layout.of([len(each)]) for each in (ids, targets))
        return model.logits(model(torch.tensor(ids), torch.tensor(targets), *layouts))


class Hostile:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def hostile_ones(mark: Path) -> list[Any]:
    import os
    import shutil
    import subprocess

    touch = f"touch {mark}"
    calls: list[tuple[Any, ...]] = [
        (os.system, touch),
        (subprocess.call, touch),
        (subprocess.Popen, touch),
        (os.popen, touch),
    ]
    calls += [
        (eval, f"open({str(mark)!r}, 'w')"),
        (exec, f"open({str(mark)!r}, 'w')"),
        (open, str(mark), "w"),
    ]
    calls += [(os.mkdir, str(mark)), (shutil.copy, "/etc/hostname", str(mark)), (__import__, "antigravity")]
    return [Hostile(*call) for call in calls]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("place", ["bare", "settings", "tensors", "key", "legacy"])
def test_what_wants_to_be_run_is_refused_by_name_and_nothing_is(
    tmp_path: Path, number: int, place: str
) -> None:
    mark = tmp_path / "ran"
    bad = hostile_ones(mark)[number]
    content = {
        "bare": bad,
        "settings": {"args": argparse.Namespace(**settings(), evil=bad), "model": {}},
        "tensors": {"args": None, "model": {"encoder.embed_tokens.weight": bad}},
        "key": {(1, bad): 3, "model": {}},
        "legacy": {"args": bad, "model": {}},
    }[place]
    path = tmp_path / "evil.pt"
    torch.save(content, path, _use_new_zipfile_serialization=place != "legacy")
    with pytest.raises(UserError, match=r"asks to run|not a PyTorch file") as caught:
        read(str(path), ImportOptions())
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "tensor", "told"),
    [
        ("encoder.layers.0.in_proj_weight", torch.tensor(1.0), r"in_proj_weight is \[\], not a vector"),
        ("encoder.layers.0.self_attn.in_proj_weight", torch.ones(1), r"is \[1\], not \[32, 32\]"),
        ("encoder.layers.0.layer_norms.²", torch.ones(3), "has encoder.layers.0.layer_norms.²"),
        ("x", "quantised", "x is qint8"),
        ("x", torch.ones(3).to_sparse(), "x is sparse_coo"),
        ("x", torch.ones(1).expand(10**12), r"x is \[1000000000000\], not a vector or matrix"),
        ("decoder.output_projection.weight", torch.ones(3), "not a matrix of embeddings"),
    ],
    ids=str,
)
def test_odd_tensors_are_refused_by_name(tmp_path: Path, name: str, tensor: Any, told: str) -> None:
    model: dict[str, Any] = {**fairseqs_tensors(m2m100(93)), name: tensor}
    if isinstance(tensor, str):
        with pytest.warns(UserWarning, match="deprecated"):
            model["x"] = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    if "in_proj" in name:
        del model["encoder.layers.0.self_attn.q_proj.weight"], model["encoder.layers.0.self_attn.q_proj.bias"]
    folder_of(tmp_path / "theirs", {"args": argparse.Namespace(**settings()), "model": model}, True)
    with pytest.raises(UserError, match=told) as caught:
        read(str(tmp_path / "theirs"), ImportOptions())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [torch.ones(3), [[]], 10**600], ids=["tensor", "list", "digits"])
@pytest.mark.parametrize("name", ["no_scale_embedding", "encoder_layers", "dropout"])
def test_odd_settings_are_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    told = argparse.Namespace(**{**settings(), name: value})
    folder_of(tmp_path / "theirs", {"args": told, "model": fairseqs_tensors(m2m100(93))}, True)
    with pytest.raises(UserError, match=f"{name} (is|must be) ") as caught:
        read(str(tmp_path / "theirs"), ImportOptions())
    assert "\n" not in str(caught.value)


def test_mutated_checkpoints_are_refused_in_a_line(tmp_path: Path) -> None:
    theirs = m2m100(4 + 88 + 1)
    content = {"args": argparse.Namespace(**settings()), "model": fairseqs_tensors(theirs)}
    chosen = numpy.random.default_rng(3)
    for zipped in (True, False):
        folder = folder_of(tmp_path / f"theirs{zipped}", content, zipped)
        whole = (folder / "checkpoint_best.pt").read_bytes()
        for number in range(60):
            bad = bytearray(whole)
            at = int(chosen.integers(min(len(bad), 6000 if number % 2 else len(bad))))
            bad[at] ^= 1 << int(chosen.integers(8))
            if number % 5 == 0:
                del bad[at:]
            (folder / "checkpoint_best.pt").write_bytes(bad)
            try:
                read(str(folder), ImportOptions())
            except UserError as error:
                assert "\n" not in str(error)
