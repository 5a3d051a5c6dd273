"""fairseq checkpoints: they have the logits of transformers, and no code in them runs."""

import argparse
import collections
import enum
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.weights import channel_order
from tests.interop.conftest import (
    SHAPE,
    assert_logits_are_theirs,
    assert_refused,
    logits,
    pieces,
    spm,
)
from tests.interop.oracle import PostNorm

WIDTH, LAYERS = 32, 2


APART = {"decoder_attention_heads": 2, "decoder_ffn_dim": 40}
"""A decoder with other heads and another feed-forward layer, in the names of transformers."""


def m2m100(**changed: int) -> Any:
    """Return fairseq's pre-norm Transformer as a transformers model. Positions begin at 2."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(5)
    shape = {**SHAPE, "encoder_layers": LAYERS, "activation_function": "relu", **changed}
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=4 + 88 + 1, **shape))
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


@pytest.mark.parametrize(
    ("zipped", "newer", "apart"),
    [
        (True, True, False),
        (True, False, False),
        (False, True, False),
        (False, False, False),
        (True, True, True),
    ],
    ids=["zip cfg", "zip args", "legacy cfg", "legacy args", "decoder apart"],
)
def test_a_checkpoint_gives_the_logits_of_transformers_conversion(
    tmp_path: Path, zipped: bool, newer: bool, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = m2m100(**(APART if apart else {}))
    changed = {"decoder_attention_heads": 2, "decoder_ffn_embed_dim": 40} if apart else {}
    args = argparse.Namespace(**{**settings(), **changed}, ddp_backend=stranger(monkeypatch))
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
    vocabulary = ours.identity.tokenizers.source.vocabulary
    ids = vocabulary.ended(ours.identity.tokenizers.source.encode("abba deg fil"))
    assert vocabulary.entries[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    targets = [7, 30, 12, 2]
    assert_logits_are_theirs(theirs, ours, [ids], [targets])


def test_a_post_norm_model_with_learned_positions_is_read(tmp_path: Path) -> None:
    tensors = {
        name: one for name, one in fairseqs_tensors(m2m100()).items() if "coder.layer_norm" not in name
    }
    tables = {side: torch.randn(rows, WIDTH) for side, rows in (("encoder", 20), ("decoder", 18))}
    tensors |= {f"{side}.embed_positions.weight": table for side, table in tables.items()}
    changes: dict[str, Any] = {"share_all_embeddings": False, "share_decoder_input_output_embed": True}
    for side in tables:
        changes |= {f"{side}_learned_pos": True, f"{side}_normalize_before": False}
    args = argparse.Namespace(**{**settings(), **changes})
    model = read(str(folder_of(tmp_path, {"args": args, "model": tensors}, True)), ImportOptions())
    config = model.config
    assert (config.norm, config.tie, config.positions, config.longest) == ("post", "decoder", "learned", 16)
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        expected = tables[side][2:18, channel_order(WIDTH)]  # fairseq's rows 0 and 1 are padding
        assert torch.equal(model.tensors[f"{ours}_embedding.positions.table"], expected)
    write(model, tmp_path / "ours")
    source, target = [7, 30, 12, 2], [9, 4, 41, 5, 2]
    found = logits(read_model(tmp_path / "ours").transformer, [source], [target]).log_softmax(1)
    weights = {name: tensor.detach().double().numpy() for name, tensor in tensors.items()}
    theirs = PostNorm(weights, heads=4, epsilon=1e-5, activation=lambda x: x.clip(0))
    embedded, inputs = [
        weights[f"{side}.embed_tokens.weight"][ids] * WIDTH**0.5
        + weights[f"{side}.embed_positions.weight"][2 : 2 + len(ids)]
        for side, ids in (("encoder", source), ("decoder", [2, *target[:-1]]))
    ]
    scores = theirs.log_probabilities(embedded, inputs, weights["decoder.output_projection.weight"])
    assert scores.std() > 0.5
    assert numpy.abs(found.numpy() - scores).max() < 1e-3


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
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
def test_odd_tensors_are_refused_by_name(tmp_path: Path, name: str, tensor: Any, message: str) -> None:
    model: dict[str, Any] = {**fairseqs_tensors(m2m100()), name: tensor}
    if isinstance(tensor, str):
        with pytest.warns(UserWarning, match="deprecated"):
            model["x"] = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    if "in_proj" in name:
        del model["encoder.layers.0.self_attn.q_proj.weight"], model["encoder.layers.0.self_attn.q_proj.bias"]
    folder_of(tmp_path / "theirs", {"args": argparse.Namespace(**settings()), "model": model}, True)
    assert_refused(tmp_path / "theirs", message)


@pytest.mark.parametrize("value", [torch.ones(3), [[]], 10**600], ids=["tensor", "list", "digits"])
@pytest.mark.parametrize("name", ["no_scale_embedding", "encoder_layers", "dropout"])
def test_odd_settings_are_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    args = argparse.Namespace(**{**settings(), name: value})
    folder_of(tmp_path / "theirs", {"args": args, "model": fairseqs_tensors(m2m100())}, True)
    assert_refused(tmp_path / "theirs", f"{name} (is|must be) ")


@pytest.mark.parametrize(
    ("entry", "tokenised"),
    [("&apos;s", "a &apos;s &quot; b &quot;"), ("'s", 'a \'s " b "')],
    ids=["escaped", "plain"],
)
def test_text_is_escaped_if_the_dictionaries_have_escapes(tmp_path: Path, entry: str, tokenised: str) -> None:
    args = argparse.Namespace(**settings())
    folder = folder_of(tmp_path / "theirs", {"args": args, "model": fairseqs_tensors(m2m100())}, True)
    (folder / "sentencepiece.bpe.model").unlink()
    (folder / "codes").write_text("#version: 0.2\na n</w>\n", encoding="utf-8")
    for lang in ("en", "de"):
        path = folder / f"dict.{lang}.txt"
        _, *others = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([f"{entry} 7", *others, ""]), encoding="utf-8")
    source = read(str(folder), ImportOptions()).tokenizers.source
    assert source.prepare('a\'s "b"') == tokenised


def test_a_checkpoint_without_languages_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = argparse.Namespace(**{**settings(), "source_lang": None, "target_lang": None})
    folder_of(tmp_path / "theirs", {"args": args, "model": fairseqs_tensors(m2m100())}, True)
    (tmp_path / "theirs" / "below").mkdir()
    monkeypatch.chdir(tmp_path / "theirs" / "below")
    (file,) = Path("..").glob("*.pt")
    assert_refused(file, rf"^{re.escape(str(file))} does not record its languages")


@pytest.mark.parametrize(("name", "value"), [("encoder_langtok", "src"), ("decoder_langtok", True)])
def test_a_model_whose_sentences_begin_with_a_language_is_refused(
    tmp_path: Path, name: str, value: object
) -> None:
    args = argparse.Namespace(**{**settings(), name: value})
    folder_of(tmp_path / "theirs", {"args": args, "model": fairseqs_tensors(m2m100())}, True)
    assert_refused(tmp_path / "theirs", f"{name} is .*nmt supports only")
