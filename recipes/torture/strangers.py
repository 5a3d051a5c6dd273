"""Write tiny models of other toolkits: those that `nmt export` writes, and some that it does not."""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from recipes.torture import forks

MARKS = 4
"""Number of special tokens before the entries of a fairseq dictionary."""

TOOLKITS = {
    "huggingface": "",
    "marian": "--set model.positions=marian --set model.start=zeros",
    "ctranslate2": "",
}
"""Settings of the model that `nmt export` writes for each toolkit."""


def make_strangers(world: Path, dataset: Path, settings: Path) -> None:
    """Write a model of each toolkit into a folder of its name. `dataset` has a SentencePiece model."""
    trained = f"train {dataset} --config {settings} --device cpu --max-steps 1"
    for toolkit, more in TOOLKITS.items():
        run = world / f"run-for-{toolkit}"
        _nmt(f"{trained} --out {run} {more}", world)
        _nmt(f"export {run} --format {toolkit} --out {world / toolkit}", world)
        shutil.rmtree(run)
    (world / "huggingface" / "README.md").unlink()
    tensors = load_file(world / "huggingface" / "model.safetensors")
    _pickled(world, tensors)
    _fairseq(world, tensors, dataset / "tokenizer" / "joint.model")
    (world / "zip").mkdir()
    shutil.make_archive(str(world / "zip" / "model"), "zip", world / "marian")


def _nmt(command: str, folder: Path) -> None:
    ended = forks.run(command.split(), folder, 60)
    if ended.code:
        raise RuntimeError(f"nmt {command}: {ended.errors}")


def _pickled(world: Path, tensors: dict[str, Tensor]) -> None:
    """Write a model with pickled weights, like many on the Hugging Face Hub."""
    shutil.copytree(world / "huggingface", world / "pickled")
    (world / "pickled" / "model.safetensors").unlink()
    (world / "pickled" / "nmt.json").unlink()
    shutil.rmtree(world / "pickled" / "nmt-tokenizer")
    torch.save(tensors, world / "pickled" / "pytorch_model.bin")


def _fairseq(world: Path, tensors: dict[str, Tensor], subwords: Path) -> None:
    """Write a fairseq checkpoint with its dictionaries."""
    folder = world / "fairseq"
    folder.mkdir()
    named = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("model.") and not any(part in name for part in ("shared", "embed", "logits"))
    }
    table = torch.full((MARKS + 10, 24), 0.1)
    tied = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    named |= dict.fromkeys(tied, table)
    shape = {"embed_dim": 24, "ffn_embed_dim": 48, "attention_heads": 2, "layers": 1}
    shape |= {"normalize_before": False, "learned_pos": False}
    arguments: dict[str, object] = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()
    }
    arguments |= {
        "arch": "transformer",
        "share_all_embeddings": True,
        "source_lang": "en",
        "target_lang": "de",
    }
    torch.save({"args": argparse.Namespace(**arguments), "model": named}, folder / "checkpoint_best.pt")
    shutil.copy(subwords, folder / "sentencepiece.bpe.model")
    for lang in ("en", "de"):
        (folder / f"dict.{lang}.txt").write_text("".join(f"{letter} 7\n" for letter in "abcdefghij"))
