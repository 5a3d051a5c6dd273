"""Read fairseq's Transformer: a checkpoint, and beside it the dictionaries and a subword model."""

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ACTIVATIONS, Foreign, ImportOptions
from nmt_cli.interop.foreign_settings import ForeignSettings, read_text
from nmt_cli.interop.importers.pickled import Inert, read_pickled
from nmt_cli.interop.weights import OUTPUT, POSITIONS, TARGET, common_tensors, import_tensors
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.text.config import TextConfig
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

ENDING = ".pt"
BEST = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
START, PADDING, END, UNKNOWN = range(4)
FIRST = PADDING + 1
"""First row of the position table."""

EPSILON = 1e-5
OVERWRITE, FILLER = "#fairseq:overwrite", "madeupword"
CODES, SENTENCEPIECE = ("*codes*", "code", "*.bpe"), ("*.model", "*.spm")

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


def is_checkpoint(path: Path) -> bool:
    """Return whether `path` is a file whose name ends in `.pt`, or a folder that contains such a file."""
    return path.suffix == ENDING or (path.is_dir() and any(path.glob(f"*{ENDING}")))


def read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model of a checkpoint, or of a folder's checkpoint. Dictionaries and a subword model must be
    beside the checkpoint. Raise `UserError` for an unsupported model, or for `options.positions`."""
    file = _checkpoint(path) if path.is_dir() else path
    if options.positions:
        raise UserError(
            f"{file} is a model of fairseq, which has only one kind of positions. Omit --positions."
        )
    checkpoint = read_pickled(file)
    if not isinstance(checkpoint, Mapping) or not isinstance(checkpoint.get("model"), Mapping):
        raise UserError(f"{file} is not a checkpoint of fairseq. Name a checkpoint that fairseq wrote.")
    tensors = {str(name): value for name, value in checkpoint["model"].items() if isinstance(value, Tensor)}
    settings = _settings(checkpoint, file)
    names = _dictionaries(file.parent, settings, options)
    sides = {side: _vocabulary(file.parent / f"dict.{names[side]}.txt") for side in SIDES}
    tensors = common_tensors(tensors, _usual_names, str(file))
    config = _config(settings, tensors)
    imported = import_tensors(tensors, str(file), config, *(len(sides[side]) for side in SIDES))
    return Foreign("fairseq", config, _tokenizers(file.parent, names, sides), imported, SEARCH)


def _checkpoint(folder: Path) -> Path:
    """Return the first file of `BEST` that is in `folder`, or else the only checkpoint in `folder`. Raise
    `UserError` if `folder` has no checkpoint, or several without a name in `BEST`."""
    checkpoints = sorted(folder.glob(f"*{ENDING}"))
    best = [folder / name for name in BEST if folder / name in checkpoints]
    if len(checkpoints) == 1 or best:
        return best[0] if best else checkpoints[0]
    raise UserError(
        f"{folder} has {len(checkpoints)} checkpoints, and none is named {BEST[0]}. Name one of them."
    )


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


def _dictionaries(folder: Path, settings: ForeignSettings, options: ImportOptions) -> dict[Side, str]:
    """Return the language of each side, from `options` or else from `settings`. Raise `UserError` if a
    language is unknown, or if `folder` lacks the language's dictionary `dict.LANG.txt`."""
    languages = options.languages(settings.text("source_lang", ""), settings.text("target_lang", ""), folder)
    for lang in languages:
        if not (folder / f"dict.{lang}.txt").is_file():
            raise UserError(f"dict.{lang}.txt is not beside the checkpoint in {folder}. Copy it there.")
    return dict(zip(SIDES, languages, strict=True))


def _vocabulary(path: Path) -> Vocabulary:
    """Return the vocabulary of a dictionary: special tokens, then the pieces of lines "PIECE COUNT". Fillers
    and pieces spelt like special tokens become empty. Raise `UserError` for a bad line or repeated piece."""
    entries: list[str] = list(MARKS)
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
    return vocabulary_of(entries, path)


def vocabulary_of(entries: Sequence[str], where: Path, never: Collection[str] = ("",)) -> Vocabulary:
    """Return a vocabulary of `entries`, which begin with `MARKS`. Search never produces `<s>`, padding, or
    entries in `never`. Raise `UserError`, which names `where`, if an entry other than "" is repeated."""
    if len({*filter(None, entries)}) < sum(map(bool, entries)):
        raise UserError(f"{where} has a piece twice. Copy it again.")
    ids = (START, PADDING, *(i for i, entry in enumerate(entries) if entry in never))
    return Vocabulary(tuple(entries), END, END, UNKNOWN, ids)


def _usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a checkpoint's tensors under their common names, without version numbers. If the output
    projection is missing, use the target embedding. Raise `UserError` for an unknown old norm."""
    tensors_by_name: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith((".version", "_float_tensor")):  # bookkeeping of old versions
            continue
        tensors_by_name |= dict(_renamed(name, tensor))
    candidates = [
        tensors_by_name.pop(name)
        for name in ("decoder.output_projection.weight", "decoder.embed_out")
        if name in tensors_by_name
    ]
    if candidates or TARGET in tensors_by_name:
        tensors_by_name[OUTPUT] = candidates[0] if candidates else tensors_by_name[TARGET]
    return tensors_by_name


def _renamed(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) with the current name. Split an old joint attention matrix into queries, keys and
    values. Raise `UserError` for an unknown numbered norm of an old version."""
    if ".in_proj_" in name:
        prefix, _, kind = name.rpartition(".in_proj_")
        for part, rows in zip("qkv", tensor.tensor_split(3), strict=True):
            yield f"{prefix}.{part}_proj.{kind}", rows
    elif ".layer_norms." in name:
        stack, _, rest = name.partition(".")
        layer, _, which = rest.partition(".layer_norms.")
        number, _, kind = which.partition(".")
        names = {str(i): norm for i, norm in enumerate(OLD_NORMS.get(stack, ()))}
        if number not in names:
            raise UserError(f"the checkpoint has {name}, which nmt does not support.")
        yield f"{stack}.{layer}.{names[number]}.{kind}", tensor
    else:
        yield name, tensor


def _config(settings: ForeignSettings, tensors: dict[str, Tensor]) -> ModelConfig:
    """Return the architecture. For learned positions, cut the position tables in `tensors`. Raise `UserError`
    for an unsupported setting, or if encoder and decoder differ in size or norm."""
    for name in (
        "no_scale_embedding",
        "layernorm_embedding",
        "no_token_positional_embeddings",
        "cross_self_attention",
    ):
        settings.demand(name, False)
    for name in ("adaptive_softmax_cutoff", "no_cross_attention", "character_embeddings"):
        settings.demand(name, None, False)
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads"):
        settings.demand(f"decoder_{name}", settings.integer(f"encoder_{name}"))
    pre = settings.flag("encoder_normalize_before", False)
    learned = settings.flag("encoder_learned_pos", False)
    settings.demand("decoder_normalize_before", pre)
    settings.demand("decoder_learned_pos", learned)
    shared = settings.flag("share_all_embeddings", False)
    tied = shared or settings.flag("share_decoder_input_output_embed", False)
    longest = _cut_positions(tensors) if learned else ModelConfig().longest
    return ModelConfig(
        encoder_layers=settings.integer("encoder_layers"),
        decoder_layers=settings.integer("decoder_layers"),
        width=settings.integer("encoder_embed_dim"),
        feed_forward=settings.integer("encoder_ffn_embed_dim"),
        heads=settings.integer("encoder_attention_heads"),
        norm="pre" if pre else "post",
        norm_epsilon=EPSILON,
        activation=settings.choice("activation_fn", ACTIVATIONS, "relu"),
        positions="learned" if learned else "marian",
        first_position=0 if learned else FIRST,
        attention_bias=True,
        tie="all" if shared else "decoder" if tied else "none",
        residual_dropout=settings.number("dropout", 0.1),
        embedding_dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
        activation_dropout=settings.number("activation_dropout", 0.0),
        longest=longest,
    )


def _cut_positions(tensors: dict[str, Tensor]) -> int:
    """Cut both position tables in `tensors` to the rows that both have, without padding rows. Return the
    number of rows left. Raise `UserError` if a table is missing or not a matrix."""
    names = [f"{name}.weight" for name in POSITIONS.values()]
    if missing := [name for name in names if name not in tensors or tensors[name].dim() != 2]:
        raise UserError(f"the checkpoint has no {missing[0]}, so nmt does not support this model.")
    longest = min(len(tensors[name]) for name in names) - FIRST
    for name in names:
        tensors[name] = tensors[name][FIRST : FIRST + longest]
    return longest


def _tokenizers(folder: Path, names: Mapping[Side, str], sides: Mapping[Side, Vocabulary]) -> Tokenizers:
    """Return tokenisers with the subword models in `folder`. Prefer SentencePiece to subword-nmt's codes.
    `names` has each side's language, `sides` each side's vocabulary. If both vocabularies are equal, the
    sides share one. Raise `UserError` if a side has no subword model or several."""
    joint = sides["source"].entries == sides["target"].entries
    codes = sorted(path for pattern in CODES for path in folder.glob(pattern))
    pieces = sorted(path for pattern in SENTENCEPIECE for path in folder.glob(pattern))
    if not codes and not pieces:
        raise UserError(
            f"{folder} has neither codes of subword-nmt (codes) nor a SentencePiece model (*.model). "
            "Copy the subword model of the training text there."
        )
    files = _of_sides(pieces or codes, names)
    recipe = Recipe(
        kind="sentencepiece" if pieces else "bpe",
        joint=joint,
        source_lang=names["source"],
        target_lang=names["target"],
        text=TextConfig(unicode="none", words="raw" if pieces else "moses"),
        own_models=joint and files["source"] != files["target"],
    )
    models = {}
    for side in SIDES:
        content = read_ordinary(files[side])
        alphabet = _alphabet(sides[side].entries)
        models[side] = {"model": content} if pieces else {"codes": content, "characters.txt": alphabet}
    return numbered_tokenizers(recipe, models, sides)


def _of_sides(files: list[Path], names: Mapping[Side, str]) -> dict[Side, Path]:
    """Return the file of each side. A single file serves both sides. Of several, choose the file with the
    side's language, from `names`, as a dotted part of its name. Raise `UserError` if none or several fit."""
    if len(files) == 1:
        return dict.fromkeys(SIDES, files[0])
    chosen: dict[Side, Path] = {}
    for side in SIDES:
        candidates = [path for path in files if names[side] in path.name.split(".")]
        if len(candidates) != 1:
            listed = ", ".join(path.name for path in files)
            raise UserError(
                f"{files[0].parent} has {listed}. Keep one, or one with .{names[side]} in its name."
            )
        chosen[side] = candidates[0]
    return chosen


def _alphabet(entries: Iterable[str]) -> bytes:
    """Return the sorted set of characters, as UTF-8. Drop spaces, newlines and each entry's final `@@`."""
    characters = {character for entry in entries for character in entry.removesuffix("@@")}
    return "".join(sorted(characters - {" ", "\n"})).encode()
