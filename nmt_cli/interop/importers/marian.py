"""Read Marian's models: an `.npz` or `.bin` with vocabularies, and OPUS-MT's zips and folders."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from nmt_cli.checkpoints.foreign import is_marian_binary
from nmt_cli.errors import UserError
from nmt_cli.interop import marian_binary
from nmt_cli.interop.foreign import (
    POSITIONS,
    Activation,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_spm, read_text
from nmt_cli.interop.importers import marian_yaml
from nmt_cli.interop.weights import BIAS, OUTPUT, SOURCE, TARGET, common_tensors, has_biases, import_tensors
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.runtime.zips import check_whole, unpacked
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.vocabulary import Vocabulary

SETTINGS = "special:model.yml"
DECODER = ("decoder.yml", "config.yml", "config.intgemm8bitalpha.yml")
"""Names of the decoder's settings. `MODEL.npz.decoder.yml` comes before them."""

ACTIVATIONS: Mapping[str, Activation] = {"swish": "swish", "relu": "relu"}
"""Our `model.activation` by Marian's name."""

BROWSER: Mapping[str, Any] = {"beam-size": 1, "normalize": 1.0, "max-length-factor": 2.0}
"""Settings with which Firefox decodes a `.bin`."""

LANGUAGES = re.compile(r"model\.([a-z]{2})([a-z]{2})\..*bin")
"""Source and target language in the name of a `.bin`."""

SHORTLIST_NOTE = "{} is left out: nmt scores the whole vocabulary, so a few translations may differ"
OPTIMIZER = ".optimizer.npz"
EPSILON = 1e-6
NEEDED = re.compile(r"[^/\\]+\.(?:npz(?<!\.optimizer\.npz)|yml|yaml|spm)")
"""Names of the files to extract from a zip."""

LAYER = re.compile(r"(encoder|decoder)_l([0-9]{1,4})_(\w+)")
"""A tensor of a layer. Layers are counted from 1."""

KINDS, NORM_KINDS = {"W": "weight", "b": "bias"}, {"scale": "weight", "bias": "bias"}
NORMS = {
    "rnn_ffn": "self_attn_layer_norm",
    "self_Wo": "self_attn_layer_norm",
    "context_Wo": "encoder_attn_layer_norm",
    "ffn_ffn": "final_layer_norm",
}
"""Norms of a layer by Marian's name. `rnn_ffn` follows an SSRU, and `self_Wo` attention."""

IN_LAYER = {
    "rnn_W": "ssru.value.weight",
    "rnn_Wf": "ssru.forget.weight",
    "rnn_bf": "ssru.forget.bias",
    **{f"ffn_{kind}{i}": f"fc{i}.{ours}" for kind, ours in KINDS.items() for i in (1, 2)},
    **{
        f"{part}_{kind}{which}": f"{module}.{'out' if which == 'o' else which}_proj.{ours}"
        for part, module in (("self", "self_attn"), ("context", "encoder_attn"))
        for kind, ours in KINDS.items()
        for which in "qkvo"
    },
    **{
        f"{name}_ln_{kind}": f"{module}.{ours}"
        for name, module in NORMS.items()
        for kind, ours in NORM_KINDS.items()
    },
}
"""Common names of the tensors of a layer, by Marian's."""

OUTSIDE_LAYERS = {
    "encoder_Wemb": SOURCE,
    "decoder_Wemb": TARGET,
    "decoder_ff_logit_out_b": BIAS,
    "decoder_ff_logit_out_W": OUTPUT,
    "decoder_ff_logit_out_Wt": OUTPUT,
}
"""Common names of other tensors, by Marian's."""

OFF = (
    *("transformer-train-position-embeddings", "transformer-no-projection", "transformer-pool"),
    *("ulr", "right-left"),
)
OFF_IF_RECURRENT = ("layer-normalization", "transformer-rnn-projection")
"""Settings that nmt does not support, always or for a decoder without self-attention. Marian writes more
settings, most of which change nothing here."""


def read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder, a zip, an `.npz` or a `.bin`. Raise `UserError` if nmt cannot express
    it."""
    if path.suffix != ".zip" or path.is_dir():
        return _read(path, options)
    with unpacked(path, NEEDED) as folder:
        return _read(folder, options)


def _read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model in an `.npz` or `.bin`, or in a folder with one of them. Vocabularies and the
    decoder's settings, if any, must be beside it. Raise `UserError` if nmt cannot express the model."""
    file = _weights(path)
    binary = file.suffix == ".bin"
    arrays, settings = _loaded(file)
    tensors = _unshared(common_tensors(arrays, _usual_names, str(file)), settings)
    config = _config(settings, tensors, options)
    candidates = (file.with_name(f"{file.name}.{DECODER[0]}"), *map(file.with_name, DECODER))
    decoder: dict[str, Any] = dict(BROWSER) if binary else {}
    if found := next(filter(Path.is_file, candidates), None):
        decoder |= marian_yaml.settings(read_ordinary(found).decode(errors="replace"), str(found))
    named = LANGUAGES.fullmatch(file.name)
    languages = options.languages(named[1] if named else "", named[2] if named else "", file.parent)
    files = _vocabulary_files(file.parent, decoder)
    rows = {"source": len(tensors.get(SOURCE, tensors[OUTPUT])), "target": len(tensors[OUTPUT])}
    sides: dict[Side, Vocabulary] = {side: _vocabulary(files[side], rows[side]) for side in SIDES}
    spms: dict[Side, bytes] = {}
    for side, listed in files.items():  # a .yml has no rules to segment text
        spms[side] = read_spm(listed if listed.suffix == ".spm" else file.with_name(f"{side}.spm"))
    tokenizers = foreign_tokenizers(languages, spms, sides)
    imported = import_tensors(tensors, str(file), config, tokenizers)
    notes = [SHORTLIST_NOTE.format(one.name) for one in sorted(file.parent.glob("lex.*")) if binary]
    return Foreign("Marian", config, tokenizers, imported, _search(decoder), notes=notes)


def _weights(path: Path) -> Path:
    """Return `path`, or the only file of a model in the folder `path`: an `.npz`, or a `.bin` if there is no
    `.npz`. Ignore files of optimisers. Raise `UserError` for none or several."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    arrays = [file for file in files if file.suffix == ".npz" and not file.name.endswith(OPTIMIZER)]
    arrays = arrays or [*filter(is_marian_binary, files)]
    if len(arrays) == 1:
        return arrays[0]
    listed = ", ".join(file.name for file in arrays) or "no .npz or .bin of a model"
    raise UserError(f"{path} has {listed}. Name the one to import.")


def _loaded(file: Path) -> tuple[dict[str, Tensor], ForeignSettings]:
    """Return the tensors of an `.npz` or `.bin` by Marian's names, and its settings. Raise `UserError` if the
    file is damaged or not of Marian."""
    try:
        if file.suffix == ".bin":
            arrays: dict[str, Any] = dict(marian_binary.read(file))
        else:
            check_whole(file)
            with numpy.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
        text = bytes(arrays.pop(SETTINGS).astype(numpy.uint8)).rstrip(b"\0").decode()
        numbers = {
            name: torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
            for name, array in arrays.items()
            if not name.startswith("special:")
        }
    except UserError:
        raise
    except Exception as error:  # the bytes are arbitrary, so the error may be of any kind
        raise UserError(f"{file} is damaged or not a model of Marian ({str(error)[:80]!r}).") from error
    return numbers, ForeignSettings(marian_yaml.settings(text, f"{file}: {SETTINGS}"), str(file))


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names. Transpose Marian's matrices except embeddings and `_Wt`.
    Flatten biases and the tensors of norms. Use a shared embedding for both sides, and the target embedding
    for a missing output projection."""
    tensors_by_name: dict[str, Tensor] = {}
    for name, array in arrays.items():
        new = OUTSIDE_LAYERS.get(name, name)
        if (match := LAYER.fullmatch(name)) and match[3] in IN_LAYER:
            new = f"{match[1]}.layers.{int(match[2]) - 1}.{IN_LAYER[match[3]]}"
        plain = new in (SOURCE, TARGET) or name.endswith("_Wt")
        matrix = new.endswith("weight") and "norm" not in new
        tensors_by_name[new] = (array if plain else array.T) if matrix else array.flatten()
    if tensors_by_name.pop("Wemb", None) is not None:
        tensors_by_name |= {SOURCE: arrays["Wemb"], TARGET: arrays["Wemb"]}
    if TARGET in tensors_by_name:
        tensors_by_name.setdefault(OUTPUT, tensors_by_name[TARGET])
    return tensors_by_name


def _unshared(tensors: dict[str, Tensor], settings: ForeignSettings) -> dict[str, Tensor]:
    """Return `tensors`, by common names. If `settings` let decoder layers share weights, repeat the weights
    under the names of each layer."""
    origins = settings.list_of("transformer-tied-layers", int)  # counted from 1
    if not origins:
        return tensors
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("decoder.layers.")}
    for number, origin in enumerate(origins):
        shared, copy = f"decoder.layers.{origin - 1}.", f"decoder.layers.{number}."
        names = [name for name in tensors if name.startswith(shared)]
        own |= {name.replace(shared, copy): tensors[name] for name in names}
    return own


def _config(settings: ForeignSettings, tensors: Mapping[str, Tensor], options: ImportOptions) -> ModelConfig:
    """Return the architecture, with biases if `tensors`, by common names, contain any. Raise `UserError` for
    an unsupported setting, or a missing output matrix."""
    recurrent = settings.text("transformer-decoder-autoreg", "self-attention") == "rnn"
    for name in (*OFF, *OFF_IF_RECURRENT) if recurrent else OFF:
        settings.demand(name, False)
    if recurrent:
        settings.demand("dec-cell", "ssru")
    settings.demand("type", "transformer")
    settings.demand("transformer-decoder-autoreg", "self-attention", "rnn")
    settings.demand("transformer-ffn-depth", 2)
    settings.demand("lemma-dim-emb", 0)
    # Marian's pre-norm normalises the queries of self-attention, but not its keys and values.
    settings.demand("transformer-preprocess", "", "d")
    settings.demand("transformer-postprocess", "dan", "an")
    settings.demand("transformer-postprocess-top", "", "d")
    settings.demand("transformer-postprocess-emb", "d", "")
    feed_forward = settings.integer("transformer-dim-ffn")
    settings.demand("transformer-decoder-dim-ffn", 0, feed_forward)
    all_tied = settings.flag("tied-embeddings-all", False)
    tied = all_tied or settings.flag("tied-embeddings", False)
    if tensors[OUTPUT].numel() and not tied and tensors[OUTPUT] is tensors.get(TARGET):
        raise UserError(f"{settings.where} has no output matrix, so it is damaged.")
    return ModelConfig(
        encoder_layers=settings.integer("enc-depth"),
        decoder_layers=settings.integer("dec-depth"),
        width=settings.integer("dim-emb"),
        feed_forward=feed_forward,
        heads=settings.integer("transformer-heads"),
        norm_epsilon=EPSILON,
        activation=settings.choice("transformer-ffn-activation", ACTIVATIONS, "swish"),
        positions=POSITIONS[options.positions or "marian"],
        decoder_history="ssru" if recurrent else "attention",
        attention_bias=has_biases(tensors),
        output_bias=BIAS in tensors,
        tie="all" if all_tied else "decoder" if tied else "none",
    )


def _search(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """Return our search settings for Marian's settings `decoder`. Missing settings get Marian's defaults."""
    settings = ForeignSettings(decoder, "decoder.yml")
    normalize = decoder.get("normalize", 0.0)
    penalty = 1.0 if normalize is True else 0.0 if normalize is False else settings.number("normalize", 0.0)
    factor = settings.number("max-length-factor", 3.0)
    return {
        "beam": settings.integer("beam-size", 12),
        "length_rule": "power",
        "length_penalty": penalty,
        "cap_ratio": factor,
        "cap_extra": round(factor),  # Marian also counts the end token of the source
    }


def _vocabulary_files(folder: Path, decoder: Mapping[str, Any]) -> dict[Side, Path]:
    """Return the vocabulary file of each side: files in `folder` that `decoder` names, else `*vocab*.yml`,
    `*vocab*.spm` or `*.spm`. A single file serves both sides. Raise `UserError` for no or over two files."""
    file_names = decoder.get("vocabs")
    files = [folder / str(name) for name in file_names] if isinstance(file_names, list) else []
    inside = Path(os.path.realpath(folder))  # unlike resolve, it accepts circular links
    # First is_file(), because realpath() fails for names that no file can have, such as with a NUL.
    files = [path for path in files if path.is_file() and Path(os.path.realpath(path)).parent == inside]
    files = files or sorted(folder.glob("*vocab*.yml")) or sorted(folder.glob("*vocab*.spm"))
    files = files or sorted(folder.glob("*.spm"))
    if not files:
        raise UserError(f"{folder} has no vocabulary. Copy its .spm or .yml file, such as vocab.spm, there.")
    if len(files) > 2:
        listed = ", ".join(path.name for path in files)
        raise UserError(f"{folder} has {listed}. Keep one, or one for each side.")
    if files[0].suffix == ".spm" and len(files) == 2:  # the source model is named src or source
        files.sort(key=lambda path: not re.search(r"src|source", path.name))
    return dict(zip(SIDES, (files[0], files[-1]), strict=True))


def _vocabulary(file: Path, rows: int) -> Vocabulary:
    """Return the first `rows` entries of a vocabulary file, without a start token. Raise `UserError` for no
    </s> or <unk>."""
    if file.suffix == ".spm":
        ids = {piece: i for i, piece in enumerate(Pieces(read_spm(file)).written)}
    else:
        ids = marian_yaml.vocabulary(read_text(file), str(file))
    marks = {
        name: i for piece, i in ids.items() for name in ("</s>", "<unk>") if piece.lstrip("\u2581") == name
    }
    if len(marks) < 2:
        raise UserError(f"{file} has no </s> or no <unk>, so it is not a vocabulary of Marian.")
    entries = [""] * rows
    for piece, i in ids.items():
        if i < rows:
            entries[i] = piece.lstrip("\u2581") if i in marks.values() else piece
    return foreign_vocabulary(entries, rows, file, end=marks["</s>"], unknown=marks["<unk>"])
