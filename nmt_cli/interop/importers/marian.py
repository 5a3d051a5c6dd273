"""Marian's own models in: an `.npz`, its vocabularies, and OPUS-MT's zips and folders around them."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from nmt_cli.checkpoints.foreign import is_marian_binary
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import POSITIONS, Foreign, Wanted
from nmt_cli.interop.importers import marian_yaml
from nmt_cli.interop.importers.huggingface import of_two_models
from nmt_cli.interop.told import Told
from nmt_cli.interop.weights import BIAS, OUTPUT, SOURCE, TARGET, Usual, ours, renamed, without_zero_biases
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.runtime.zips import check_whole, opened, refuse_hostile
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

SETTINGS = "special:model.yml"
DECODER = ("decoder.yml", "config.yml")
OPTIMIZER = ".optimizer.npz"
EPSILON = 1e-6
NEEDED = re.compile(r"[^/\\]+\.(?:npz(?<!\.optimizer\.npz)|yml|yaml|spm)")
"""Names of what is unpacked from a zip."""

NUMBER = "([0-9]{1,4})"
ATTENTION = re.compile(f"(encoder|decoder)_l{NUMBER}_(self|context)_(W|b)([qkvo])$")
FEED_FORWARD = re.compile(f"(encoder|decoder)_l{NUMBER}_ffn_(W|b)([12])$")
NORM = re.compile(f"(encoder|decoder)_l{NUMBER}_(self_Wo|rnn_ffn|context_Wo|ffn_ffn)_ln_(scale|bias)(_pre)?$")
SSRU = re.compile(f"decoder_l{NUMBER}_rnn_(W|Wf|bf)$")
LAYER = re.compile(rf"decoder\.layers\.{NUMBER}\.(.+)")
TOP = re.compile(r"(encoder|decoder)_top_ln_(scale|bias)$")

PARTS = {"self": "self_attn", "context": "encoder_attn"}
NORMS = {
    "rnn_ffn": "self_attn_layer_norm",
    "self_Wo": "self_attn_layer_norm",
    "context_Wo": "encoder_attn_layer_norm",
    "ffn_ffn": "final_layer_norm",
}
GATES = {"W": "value.weight", "Wf": "forget.weight", "bf": "forget.bias"}
KINDS = {"W": "weight", "b": "bias", "scale": "weight", "bias": "bias"}

POST, PRE = ("", "d"), ("n", "nd")
"""What Marian does before a sub-layer where norms stand behind it, or before it."""

WANTED: Mapping[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-depth": (2,),
    "transformer-train-position-embeddings": (False,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
    "right-left": (False,),
}
"""What our Transformer can do; Marian writes far more settings, and most of them change nothing."""

RECURRENT: Mapping[str, tuple[Any, ...]] = {
    "dec-cell": ("ssru",),
    "layer-normalization": (False,),
    "transformer-rnn-projection": (False,),
}
"""The same where a decoder has no self-attention."""


def read(path: Path, wanted: Wanted) -> Foreign:
    """The model in a folder, a zip or an `.npz` with its vocabularies beside it."""
    if is_marian_binary(path):
        raise _of_browsers(path)
    if path.suffix != ".zip" or path.is_dir():
        return _read(path, wanted)
    with tempfile.TemporaryDirectory() as unpacked:
        with opened(path) as packed:
            needed = [info for info in packed.infolist() if NEEDED.fullmatch(info.filename)]
            refuse_hostile(path, needed)
            packed.extractall(unpacked, needed)
        return _read(Path(unpacked), wanted)


def is_model(path: Path) -> bool:
    """Whether a path is named as Marian's are, or holds what browsers translate with."""
    named = path.suffix in (".npz", ".zip") or (path.is_dir() and any(path.glob("*.npz")))
    return named or is_marian_binary(path) or (path.is_dir() and bool(_binaries(path)))


def _binaries(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.bin")) if is_marian_binary(path)]


def _read(path: Path, wanted: Wanted) -> Foreign:
    file = _weights(path) if path.is_dir() else path
    arrays, told = _loaded(file)
    tensors = renamed(arrays, _usual_names, str(file))
    positions = POSITIONS[wanted.positions or "marian"]
    tensors = _each_layers_own(tensors, told)
    config = _config(told, tensors, positions)
    decoder = _decoder(file)
    tokenizers = _tokenizers(file.parent, decoder, wanted, tensors)
    sizes = (len(side.vocabulary) for side in (tokenizers.source, tokenizers.target))
    usual = Usual(tensors, str(file))
    made = ours(usual, config, *sizes)
    usual.refuse_rest()
    return Foreign("Marian", config, tokenizers, made, _search(decoder))


def _of_browsers(path: Path) -> UserError:
    return UserError(
        f"{path} is a binary that marian-conv made for browsers and other small machines, which nmt can't "
        "read; import the .npz that it was made of (final.model.npz.best-*.npz, where Mozilla's pipeline "
        "trained it)."
    )


def _weights(folder: Path) -> Path:
    if (binaries := _binaries(folder)) and not any(folder.glob("*.npz")):
        raise _of_browsers(binaries[0])
    there = sorted(path for path in folder.glob("*.npz") if not path.name.endswith(OPTIMIZER))
    if len(there) != 1:
        told = ", ".join(path.name for path in there) or "no .npz"
        raise UserError(f"{folder} has {told}; name the one to import.")
    return there[0]


def _loaded(file: Path) -> tuple[dict[str, Tensor], Told]:
    check_whole(file)
    try:
        with numpy.load(file, allow_pickle=False) as arrays:
            text = bytes(arrays[SETTINGS].astype(numpy.uint8)).rstrip(b"\0").decode()
            numbers = {
                name: torch.from_numpy(arrays[name].astype(arrays[name].dtype.newbyteorder("=")))
                for name in arrays.files
                if not name.startswith("special:")
            }
    except Exception as error:  # of any kind, as the bytes may be anything
        raise UserError(f"{file} is damaged, or no model of Marian's ({str(error)[:80]!r}).") from error
    return numbers, Told(marian_yaml.settings(text, f"{file}: {SETTINGS}"), str(file))


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Marian's matrices are inputs x outputs, and its vectors rows."""
    made: dict[str, Tensor] = {}
    for name, array in arrays.items():
        new = _renamed(name)
        plain = new in (SOURCE, TARGET) or name.endswith("_Wt")
        matrix = new.endswith("weight") and "norm" not in new
        made[new] = (array if plain else array.T) if matrix else array.flatten()
    if "Wemb" in made:
        shared = arrays["Wemb"]
        del made["Wemb"]
        made |= {SOURCE: shared, TARGET: shared}
    if TARGET in made:
        made.setdefault(OUTPUT, made[TARGET])
    return without_zero_biases(made)


def _renamed(name: str) -> str:
    """The usual name; its own where there is none."""
    if found := ATTENTION.match(name):
        stack, number, part, kind, which = found.groups()
        which = "out" if which == "o" else which
        return f"{stack}.layers.{int(number) - 1}.{PARTS[part]}.{which}_proj.{KINDS[kind]}"
    if found := FEED_FORWARD.match(name):
        stack, number, kind, which = found.groups()
        return f"{stack}.layers.{int(number) - 1}.fc{which}.{KINDS[kind]}"
    if found := SSRU.match(name):
        return f"decoder.layers.{int(found[1]) - 1}.ssru.{GATES[found[2]]}"
    if found := NORM.match(name):
        stack, number, which, kind, _ = found.groups()
        return f"{stack}.layers.{int(number) - 1}.{NORMS[which]}.{KINDS[kind]}"
    if found := TOP.match(name):
        return f"{found[1]}.layer_norm.{KINDS[found[2]]}"
    return {
        "encoder_Wemb": SOURCE,
        "decoder_Wemb": TARGET,
        "decoder_ff_logit_out_b": BIAS,
        "decoder_ff_logit_out_Wt": OUTPUT,
        "decoder_ff_logit_out_W": OUTPUT,
    }.get(name, name)


def _each_layers_own(tensors: dict[str, Tensor], told: Told) -> dict[str, Tensor]:
    """Where layers of the decoder share their weights, each gets them as its own."""
    shared = told.integers("transformer-tied-layers")
    if not shared:
        return tensors
    made = {name: tensor for name, tensor in tensors.items() if not LAYER.match(name)}
    layers = [(found, tensor) for name, tensor in tensors.items() if (found := LAYER.match(name))]
    for number, of in enumerate(shared):
        made |= {
            f"decoder.layers.{number}.{found[2]}": each for found, each in layers if int(found[1]) == of - 1
        }
    return made


def _config(told: Told, tensors: dict[str, Tensor], positions: Any) -> ModelConfig:
    """Its shape; takes the tensors away that are there twice."""
    recurrent = told.text("transformer-decoder-autoreg", "self-attention") == "rnn"
    for name, choices in ({**WANTED, **RECURRENT} if recurrent else WANTED).items():
        told.demand(name, *choices)
    pre = told.text("transformer-preprocess", "") in PRE
    told.demand("transformer-preprocess", *(PRE if pre else POST))
    told.demand("transformer-postprocess", *(("da", "a") if pre else ("dan", "an")))
    told.demand("transformer-postprocess-top", *(("n", "nd") if pre else ("", "d")))
    told.demand("transformer-postprocess-emb", "d", "")
    told.demand("transformer-ffn-activation", "swish", "relu")
    feed_forward = told.integer("transformer-dim-ffn")
    told.demand("transformer-decoder-dim-ffn", 0, feed_forward)
    everything = told.flag("tied-embeddings-all", False)
    tied = everything or told.flag("tied-embeddings", False)
    if tensors[OUTPUT].numel() and not tied and tensors[OUTPUT] is tensors.get(TARGET):
        raise UserError(f"{told.where} has no output matrix; it is damaged.")
    for name in ((SOURCE,) if everything else ()) + ((TARGET,) if tied else ()):
        tensors.pop(name, None)
    swish = told.text("transformer-ffn-activation", "swish") == "swish"
    return ModelConfig(
        encoder_layers=told.integer("enc-depth"),
        decoder_layers=told.integer("dec-depth"),
        width=told.integer("dim-emb"),
        feed_forward=feed_forward,
        heads=told.integer("transformer-heads"),
        norm="pre" if pre else "post",
        norm_epsilon=EPSILON,
        activation="swish" if swish else "relu",
        positions=positions,
        decoder_history="ssru" if recurrent else "attention",
        attention_bias=any(name.endswith("_proj.bias") for name in tensors),
        output_bias=BIAS in tensors,
        tie="all" if everything else "decoder" if tied else "none",
    )


def _decoder(file: Path) -> dict[str, Any]:
    """How its owner decodes, and where the vocabularies are."""
    for path in (file.with_name(f"{file.name}.{DECODER[0]}"), *map(file.with_name, DECODER)):
        if path.is_file():
            return marian_yaml.settings(read_ordinary(path).decode(errors="replace"), str(path))
    return {}


def _search(decoder: Mapping[str, Any]) -> dict[str, Any]:
    told = Told(decoder, "decoder.yml")
    normalize = decoder.get("normalize", 0.0)
    penalty = 1.0 if normalize is True else 0.0 if normalize is False else told.number("normalize", 0.0)
    factor = told.number("max-length-factor", 3.0)
    return {
        "beam": told.integer("beam-size", 12),
        "length_rule": "power",
        "length_penalty": penalty,
        "cap_ratio": factor,
        "cap_extra": round(factor),  # Marian counts the end mark of the source too
    }


def _tokenizers(
    folder: Path, decoder: Mapping[str, Any], wanted: Wanted, tensors: Mapping[str, Tensor]
) -> Tokenizers:
    files = _vocabulary_files(folder, decoder)
    rows = {"source": len(tensors.get(SOURCE, tensors[OUTPUT])), "target": len(tensors[OUTPUT])}
    spms = {side: _spm(folder, side, files[side]) for side in SIDES}
    sides: dict[Side, Vocabulary] = {side: _vocabulary(files[side], rows[side]) for side in SIDES}
    languages = wanted.languages(None, None, folder)
    # One vocabulary may be in two files.
    joint = sides["source"].entries == sides["target"].entries
    return of_two_models(languages, spms, sides if not joint else dict.fromkeys(SIDES, sides["source"]))


def _vocabulary_files(folder: Path, decoder: Mapping[str, Any]) -> dict[Side, Path]:
    """The vocabulary of each side: what decoder.yml names, or what there is."""
    named = decoder.get("vocabs")
    files = [folder / str(name) for name in named] if isinstance(named, list) else []
    inside = Path(os.path.realpath(folder))  # which, unlike resolve, bears links in a circle
    files = [path for path in files if Path(os.path.realpath(path)).parent == inside and path.is_file()]
    files = files or sorted(folder.glob("*vocab*.yml")) or sorted(folder.glob("*vocab*.spm"))
    files = files or sorted(folder.glob("*.spm"))
    if len(files) not in (1, 2):
        told = ", ".join(path.name for path in files) or "no vocabulary (.yml or .spm)"
        raise UserError(f"{folder} has {told}; leave one, or one for each side.")
    if files[0].suffix == ".spm" and len(files) == 2:  # the source's is named src or source
        files.sort(key=lambda path: not re.search(r"src|source", path.name))
    return dict(zip(SIDES, (files[0], files[-1]), strict=True))


def _spm(folder: Path, side: Side, vocabulary: Path) -> bytes:
    path = vocabulary if vocabulary.suffix == ".spm" else folder / f"{side}.spm"
    if not path.is_file():
        raise UserError(f"{path} is missing, and {vocabulary.name} segments no text; put it there.")
    return read_ordinary(path)


def _vocabulary(file: Path, rows: int) -> Vocabulary:
    if file.suffix == ".spm":
        known = {piece: i for i, piece in enumerate(Pieces(read_ordinary(file)).written)}
    else:
        try:
            known = marian_yaml.vocabulary(read_ordinary(file).decode(), str(file))
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is no UTF-8 text; copy it again.") from error
    marks = {
        name: i for piece, i in known.items() for name in ("</s>", "<unk>") if piece.lstrip("\u2581") == name
    }
    if len(marks) < 2:
        raise UserError(f"{file} has no </s> or no <unk>; it is no vocabulary of Marian's.")
    entries = [""] * rows
    for piece, i in known.items():
        if i < rows and "\n" not in piece:
            entries[i] = piece.lstrip("\u2581") if i in marks.values() else piece
    never = tuple(i for i, entry in enumerate(entries) if not entry)
    return Vocabulary(tuple(entries), marks["</s>"], None, marks["<unk>"], never)
