"""Reading of a COMET model's folder, as comet-score or the Hugging Face Hub downloads it.

The checkpoint has the weights and the options of the model. The name of the encoder is an option, and two
files of the encoder are needed: its configuration and its tokeniser.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.errors import UserError, printable
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.runtime.pickled import read_pickled
from nmt_cli.text.subword_models.xlm_roberta import XlmRobertaTokenizer

HPARAMS, WEIGHTS = "hparams.yaml", "checkpoints/model.ckpt"
CONFIG, TOKENIZER = "config.json", "sentencepiece.bpe.model"
KIND = re.compile(r"^class_identifier: *['\"]?(\w+)", re.MULTILINE)
PATCHED = re.compile(r"^layer_transformation: *['\"]?sparsemax_patch", re.MULTILINE)
"""A line of the model's settings. A model with it was trained with softmax, although the options in its
checkpoint say sparsemax."""

ENCODERS = ("XLM-RoBERTa", "XLM-RoBERTa-XL")
ALL = ("mt", "src", "ref")
SHARED = {"layer": "mix", "layer_norm": True, "activations": "Tanh", "final_activation": None}
ALONE = {**SHARED, "layer_transformation": "softmax", "pool": "avg", "input_segments": ALL}
JOINED = {**SHARED, "layer_transformation": "sparsemax", "pool": "cls", "input_segments": ALL}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "regression_metric": ALONE,
    "referenceless_regression_metric": {**ALONE, "input_segments": ALL[:2]},
    "unified_metric": JOINED,
    "xcomet_metric": {**JOINED, "layer_norm": False, "word_layer": 36},
}
"""The options of each class of models. Old checkpoints may leave them out."""


class CometFiles(NamedTuple):
    """The content of a COMET model's folder, and of its encoder's files."""

    name: str
    kind: str
    """The class of the model, a key of `DEFAULTS`."""

    options: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    """The weights in fp32, by their names in the checkpoint."""

    heads: int
    epsilon: float
    tokenizer: XlmRobertaTokenizer
    digest: str
    """The SHA-256 of the checkpoint."""


def read_comet(folder: Path) -> CometFiles:
    """Read the folder of a COMET model. No code from its files is run.

    Raise `UserError` for another kind of folder, an unknown class or encoder, a damaged checkpoint, or if the
    files of the encoder are missing.
    """
    for name in (HPARAMS, WEIGHTS):
        if not (folder / name).exists():
            raise UserError(
                f"{folder} has no {name}. Give a folder with {HPARAMS} and {WEIGHTS}, as "
                "comet-score or the Hugging Face Hub downloads it."
            )
    text = read_ordinary(folder / HPARAMS).decode(errors="replace")
    kind = match[1] if (match := KIND.search(text)) else "missing"
    if kind not in DEFAULTS:
        kinds = ", ".join(DEFAULTS)
        raise UserError(f"{folder / HPARAMS}: class_identifier is {kind}, but nmt reads only {kinds}.")
    where = folder / WEIGHTS
    checkpoint = read_pickled(where)
    content = checkpoint if isinstance(checkpoint, dict) else {}
    tensors, given = content.get("state_dict"), content.get("hyper_parameters")
    if not isinstance(tensors, dict) or not isinstance(given, dict):
        raise UserError(f"{where} is not a checkpoint of COMET: it has no state_dict and hyper_parameters.")
    options = {**DEFAULTS[kind], **given, "layer": given.get("sent_layer", given.get("layer", "mix"))}
    options["pool"] = options["pool"] if DEFAULTS[kind]["pool"] == "avg" else "cls"  # unused, but given
    if PATCHED.search(text):
        options["layer_transformation"] = "softmax"
    if (encoder := options.get("encoder_model", ENCODERS[0])) not in ENCODERS:
        raise UserError(f"{where}: encoder_model is {encoder}, but nmt reads only {' and '.join(ENCODERS)}.")
    real = {
        str(name): one for name, one in tensors.items() if isinstance(one, Tensor) and one.is_floating_point()
    }
    weights = {name: _checked(tensor, f"{where}: {printable(name)}") for name, tensor in real.items()}
    # The Hub stores a model in models--OWNER--NAME/snapshots/COMMIT, and links to it from there.
    path = folder.resolve()
    name = path.parents[1].name.split("--")[-1] if path.parent.name == "snapshots" else path.name
    heads, epsilon, tokenizer = _encoder_files(folder, str(options.get("pretrained_model")))
    return CometFiles(name, kind, options, weights, heads, epsilon, tokenizer, sha256_of(where))


def _checked(tensor: Tensor, where: str) -> Tensor:
    """Return `tensor` in fp32. Raise `UserError` for values that are not finite, for a sparse tensor, and for
    a view that repeats numbers, since a small file could describe a huge one."""
    dense = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not dense or tensor.nbytes > tensor.untyped_storage().nbytes() or not tensor.isfinite().all():
        raise UserError(f"{where} is not an ordinary tensor of finite numbers. Copy the file again.")
    return tensor.float()


def _encoder_files(folder: Path, encoder: str) -> tuple[int, float, XlmRobertaTokenizer]:
    """Return the number of heads and the epsilon of the encoder, and its tokeniser.

    The two files of the encoder are in `folder`, or in the cache of the Hugging Face Hub that contains
    `folder`. Raise `UserError` if they are not.
    """
    # A snapshot is in CACHE/models--OWNER--NAME/snapshots/COMMIT. A folder near the root has fewer parents.
    cache = [*folder.resolve().parents, folder, folder][2]
    snapshots = cache.glob(f"models--{encoder.replace('/', '--')}/snapshots/*")
    for place in (folder, *sorted(snapshots)):
        if not all((place / name).exists() for name in (CONFIG, TOKENIZER)):
            continue
        try:
            config = parsed_json(read_ordinary(place / CONFIG))
            heads, epsilon = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
            if heads < 1 or not 0 < epsilon < 1 or config["hidden_act"] != "gelu":
                raise ValueError("num_attention_heads, layer_norm_eps or hidden_act")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{place / CONFIG} is not the configuration of XLM-RoBERTa ({error}).") from error
        try:
            return heads, epsilon, XlmRobertaTokenizer(read_ordinary(place / TOKENIZER))
        except UserError as error:
            raise UserError(f"{place / TOKENIZER}: {error.message}") from error
    raise UserError(
        f"{folder} lacks {CONFIG} and {TOKENIZER} of its encoder {printable(encoder)}. Copy "
        f"both files there from https://huggingface.co/{printable(encoder)}."
    )
