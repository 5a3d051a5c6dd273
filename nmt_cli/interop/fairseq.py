"""Read fairseq's Transformer: a checkpoint, and beside it the dictionaries and a subword model."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import (
    ACTIVATIONS,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
    of_pieces,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_file, read_spm, read_text
from nmt_cli.interop.weights import (
    OUTPUT,
    POSITIONS,
    TARGET,
    common_tensors,
    has_biases,
    import_tensors,
)
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.pickled import Inert, read_pickled
from nmt_cli.text.config import TextConfig
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

BEST = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
START, PADDING, END, UNKNOWN = range(4)
FIRST = PADDING + 1
"""First row of the position table."""

EPSILON = 1e-5
OVERWRITE, FILLER = "#fairseq:overwrite", "madeupword"
OFF = (
    "no_scale_embedding",
    "layernorm_embedding",
    "no_token_positional_embeddings",
    "cross_self_attention",
    "adaptive_softmax_cutoff",
    "no_cross_attention",
    "character_embeddings",
)
"""Settings that nmt does not support."""

LANGUAGE_TOKENS = ("encoder_langtok", "decoder_langtok")
"""Settings of models for many languages, whose sentences begin with a token that the text does not have."""

MOSES = TextConfig(unicode="none", words="moses")
ESCAPE = re.compile("&(?:apos|quot|amp);")
"""An escape of Moses in a dictionary."""

CODES, SENTENCEPIECE = ("*codes*", "code", "*.bpe"), ("*.model", "*.spm")

OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.[0-9]+)\.layer_norms\.([0-2])\.(.+)")
OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
"""Current names of `layer_norms.N` in the first versions, by N."""

SEARCH: Mapping[str, Any] = {
    "beam": 5,
    "length_rule": "power",
    "length_penalty": 1.0,
    "cap_ratio": 0.0,
    "cap_extra": 200,
    "reach": 1000.0,
    "stop_early": True,
}
"""Defaults of `fairseq-generate`."""


def read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model of a checkpoint, or of a folder's checkpoint. Dictionaries and a subword model must be
    beside the checkpoint. Raise `UserError` for an unsupported model."""
    file = _checkpoint(path) if path.is_dir() else path
    checkpoint = read_pickled(file)
    if not isinstance(checkpoint, Mapping) or not isinstance(checkpoint.get("model"), Mapping):
        raise UserError(f"{file} is not a checkpoint of fairseq. Name a checkpoint that fairseq wrote.")
    tensors = {str(name): value for name, value in checkpoint["model"].items() if isinstance(value, Tensor)}
    settings, folder = _settings(checkpoint, file), file.parent
    pair = options.languages(settings.text("source_lang", ""), settings.text("target_lang", ""), file)
    tensors = common_tensors(tensors, _usual_names, str(file))
    config = _config(settings, tensors)
    tokenizers = _tokenizers(folder, pair)
    imported = import_tensors(tensors, str(file), config, tokenizers)
    return Foreign("fairseq", config, tokenizers, imported, SEARCH)


def _checkpoint(folder: Path) -> Path:
    """Return the checkpoint to import: the first name of `BEST` in `folder`, or else the only `.pt` file.
    Raise `UserError` if there is no such file."""
    checkpoints = sorted(folder.glob("*.pt"))
    best = [path for name in BEST if (path := folder / name) in checkpoints]
    if not best and len(checkpoints) != 1:
        raise UserError(
            f"{folder} has {len(checkpoints)} checkpoints, and none is named {BEST[0]}. Name one of them."
        )
    return [*best, *checkpoints][0]


def _settings(checkpoint: Mapping[Any, Any], file: Path) -> ForeignSettings:
    """Return the training settings in a checkpoint of any version. Prefer settings in `cfg` to `args`."""
    merged: dict[str, Any] = {}
    config = checkpoint.get("cfg")
    parts = [config.get(name) for name in ("task", "model")] if isinstance(config, Mapping) else []
    # Old versions wrote args, new ones cfg, some both.
    for part in [checkpoint.get("args"), *parts]:
        if isinstance(part, argparse.Namespace):
            merged |= vars(part)
        elif isinstance(part, Mapping):
            merged |= part
        elif isinstance(part, Inert) and isinstance(getattr(part, "state", None), Mapping):
            merged |= part.state
    return ForeignSettings(merged, str(file))


def _vocabulary(path: Path) -> Vocabulary:
    """Return the vocabulary in a dictionary of fairseq: the special tokens `MARKS`, then the piece of each
    line.

    A line is "PIECE COUNT". Two kinds of lines become empty entries, which never match text: fillers
    ("madeupword0000"), and pieces spelt like a special token. Raise `UserError` for another line, or a piece
    that occurs twice.
    """
    entries: list[str] = list(MARKS)
    # Not `splitlines`, which also splits at other characters that a piece may have.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        line = line.removesuffix(OVERWRITE).rstrip()
        piece, _, count = line.rpartition(" ")
        if not piece or not count.isdigit():
            raise UserError(
                f"{path}, line {number}: {line[:40]!r} is not a piece and its count. Copy it again."
            )
        # Filler entries and text spelt like special tokens have embeddings, but must not match text.
        entries.append("" if piece.startswith(FILLER) or piece in MARKS else piece)
    return vocabulary_of(entries, len(entries), path)


def vocabulary_of(entries: Sequence[str], rows: int, where: Path, never: Iterable[int] = ()) -> Vocabulary:
    """Return the vocabulary with `entries`, which begin with `MARKS`.

    rows: the number of embeddings. `padded_entries` explains it.
    where: the file that errors name.
    never: ids that search never produces, besides those of `<s>` and padding.
    """
    excluded = (START, PADDING, *never)
    return foreign_vocabulary(
        padded_entries(entries, rows, where), end=END, unknown=UNKNOWN, start=END, never=excluded
    )


def _usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a checkpoint's tensors under their common names, which `weights.py` explains.

    Old versions stored queries, keys and values in one matrix, which is split here, and numbered their norms.
    Their version numbers are left out. A model without an output projection uses its target embedding for it.
    """
    tensors_by_name: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith((".version", "_float_tensor")):  # bookkeeping of old versions
            continue
        if ".in_proj_" in name:
            prefix, _, kind = name.rpartition(".in_proj_")
            for part, rows in zip("qkv", tensor.tensor_split(3), strict=True):
                tensors_by_name[f"{prefix}.{part}_proj.{kind}"] = rows
            continue
        if (old := OLD_NORM.fullmatch(name)) and int(old[3]) < len(OLD_NORMS[old[2]]):
            name = f"{old[1]}.{OLD_NORMS[old[2]][int(old[3])]}.{old[4]}"
        tensors_by_name[name] = tensor
    outputs = ("decoder.output_projection.weight", "decoder.embed_out")
    candidates = [tensors_by_name.pop(name) for name in outputs if name in tensors_by_name]
    if candidates or TARGET in tensors_by_name:
        tensors_by_name[OUTPUT] = candidates[0] if candidates else tensors_by_name[TARGET]
    return tensors_by_name


def _config(settings: ForeignSettings, tensors: dict[str, Tensor]) -> ModelConfig:
    """Return the architecture that `settings` describe.

    Tables of learned positions in `tensors` are changed: their padding rows are cut off, and the longer table
    is cut to the length of the shorter one. Raise `UserError` for a setting that nmt does not support, and
    for a decoder with another width than the encoder.
    """
    for name in OFF:
        settings.demand(name, False)
    for name in LANGUAGE_TOKENS:
        settings.demand(name, False, "")
    settings.demand("decoder_embed_dim", settings.integer("encoder_embed_dim"))
    pre = settings.flag("encoder_normalize_before", False)
    learned = settings.flag("encoder_learned_pos", False)
    settings.demand("decoder_normalize_before", pre)
    settings.demand("decoder_learned_pos", learned)
    shared = settings.flag("share_all_embeddings", False)
    tied = shared or settings.flag("share_decoder_input_output_embed", False)
    longest = ModelConfig().longest
    if learned:
        names = [name for name in POSITIONS.values() if name in tensors]
        longest = min([len(tensors[name]) - FIRST for name in names], default=longest)
        tensors |= {name: tensors[name][FIRST : FIRST + longest] for name in names}
    inner, heads = settings.integer("encoder_ffn_embed_dim"), settings.integer("encoder_attention_heads")
    return ModelConfig(
        encoder_layers=settings.integer("encoder_layers"),
        decoder_layers=settings.integer("decoder_layers"),
        width=settings.integer("encoder_embed_dim"),
        feed_forward=inner,
        decoder_feed_forward=settings.integer_if_other("decoder_ffn_embed_dim", inner),
        heads=heads,
        decoder_heads=settings.integer_if_other("decoder_attention_heads", heads),
        norm="pre" if pre else "post",
        norm_epsilon=EPSILON,
        activation=settings.choice("activation_fn", ACTIVATIONS, "relu"),
        positions="learned" if learned else "marian",
        first_position=0 if learned else FIRST,
        attention_bias=has_biases(tensors),
        tie="all" if shared else "decoder" if tied else "none",
        residual_dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
        activation_dropout=settings.number("activation_dropout", 0.0),
        longest=longest,
    )


def _tokenizers(folder: Path, languages: tuple[str, str]) -> Tokenizers:
    """Return tokenisers from the dictionaries and subword models in `folder`.

    SentencePiece models are used if there are any, and otherwise subword-nmt's codes. A single file serves
    both sides. Of several, each side needs exactly one with its language as a part of the name between dots,
    such as `spm.de.model`. Raise `UserError` if there is none, or not exactly one for a side.
    """
    codes = sorted(path for pattern in CODES for path in folder.glob(pattern))
    pieces = sorted(path for pattern in SENTENCEPIECE for path in folder.glob(pattern))
    files = pieces or codes
    if not files:
        raise UserError(
            f"{folder} has neither codes of subword-nmt (codes) nor a SentencePiece model (*.model). "
            "Copy the subword model of the training text there."
        )
    sides: dict[Side, Vocabulary] = {}
    models: dict[Side, bytes] = {}
    for side, lang in zip(SIDES, languages, strict=True):
        sides[side] = _vocabulary(folder / f"dict.{lang}.txt")
        fitting = [path for path in files if len(files) == 1 or lang in path.name.split(".")]
        if len(fitting) != 1:
            listed = ", ".join(path.name for path in files)
            raise UserError(f"{folder} has {listed}. Keep one, or one with .{lang} in its name.")
        models[side] = (read_spm if pieces else read_file)(fitting[0])
    if pieces:
        return foreign_tokenizers(of_pieces(languages), models, sides)
    # fairseq's recipes escape text, as Moses does by default. Such a model has no entry for a plain '.
    escaped = any(ESCAPE.search(entry) for side in sides.values() for entry in side.entries)
    text = replace(MOSES, words="moses_escaped") if escaped else MOSES
    return foreign_tokenizers(Recipe("bpe", True, *languages, text), models, sides)
