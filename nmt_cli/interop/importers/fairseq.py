"""fairseq's Transformer in: a checkpoint, zip or legacy, dictionaries and subword model beside it."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import Foreign, Wanted
from nmt_cli.interop.importers.huggingface import ACTIVATIONS
from nmt_cli.interop.importers.pickled import Inert, read_pickled
from nmt_cli.interop.told import Told
from nmt_cli.interop.weights import OUTPUT, POSITIONS, SOURCE, TARGET, Usual, ours, renamed
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
"""Where its positions begin."""

EPSILON = 1e-5
OVERWRITE, FILLER = "#fairseq:overwrite", "madeupword"
CODES, SENTENCEPIECE = ("*codes*", "code", "*.bpe"), ("*.model", "*.spm")

OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
"""What `layer_norms.N` was in the first versions."""

SEARCH: Mapping[str, Any] = {
    "beam": 5,
    "length_rule": "power",
    "length_penalty": 1.0,
    "cap_ratio": 0.0,
    "cap_extra": 200,
    "reach": 1000.0,
    "stop_early": True,
}
"""As `fairseq-generate` decodes by itself."""


def is_checkpoint(path: Path) -> bool:
    """Whether a file, or something in a folder, is named as fairseq's checkpoints are."""
    return path.suffix == ENDING or (path.is_dir() and any(path.glob(f"*{ENDING}")))


def read(path: Path, wanted: Wanted) -> Foreign:
    """The model in a checkpoint, or in a folder with one; `UserError` names what can't be expressed."""
    file = _checkpoint(path) if path.is_dir() else path
    if wanted.positions:
        raise UserError(f"{file} is fairseq's, whose positions are always its own; leave --positions out.")
    found = read_pickled(file)
    if not isinstance(found, Mapping) or not isinstance(found.get("model"), Mapping):
        raise UserError(f"{file} holds no model of fairseq's; give a checkpoint that it wrote.")
    tensors = {str(name): each for name, each in found["model"].items() if isinstance(each, Tensor)}
    settings = _settings(found, file)
    names = _dictionaries(file.parent, settings, wanted)
    sides = {side: _vocabulary(file.parent / f"dict.{names[side]}.txt") for side in SIDES}
    tensors = renamed(tensors, _usual_names, str(file))
    config = _config(settings, tensors)
    usual = Usual(tensors, str(file))
    made = ours(usual, config, *(len(sides[side]) for side in SIDES))
    usual.refuse_rest()
    return Foreign("fairseq", config, _tokenizers(file.parent, names, sides), made, SEARCH)


def _checkpoint(folder: Path) -> Path:
    there = sorted(folder.glob(f"*{ENDING}"))
    best = [folder / name for name in BEST if folder / name in there]
    if len(there) == 1 or best:
        return best[0] if best else there[0]
    raise UserError(f"{folder} has {len(there)} checkpoints, and none is named {BEST[0]}; name one of them.")


def _settings(found: Mapping[Any, Any], file: Path) -> Told:
    """What it was trained with, of whatever version."""
    merged: dict[str, Any] = {}
    config = found.get("cfg")
    parts = [config.get(name) for name in ("task", "model")] if isinstance(config, Mapping) else []
    # Old versions wrote args, new ones cfg, and some both.
    for part in [found.get("args"), *parts]:
        if isinstance(part, argparse.Namespace):
            merged |= vars(part)
        elif isinstance(part, Mapping):
            merged |= part
        elif isinstance(part, Inert) and isinstance(getattr(part, "state", None), Mapping):
            merged |= part.state
    return Told(merged, str(file))


def _dictionaries(folder: Path, settings: Told, wanted: Wanted) -> dict[Side, str]:
    """The language of each side, which its dictionary is named for."""
    both = wanted.languages(
        settings.text("source_lang", "") or None, settings.text("target_lang", "") or None, folder
    )
    for lang in both:
        if not (folder / f"dict.{lang}.txt").is_file():
            raise UserError(f"dict.{lang}.txt is not beside the checkpoint in {folder}; put it there.")
    return dict(zip(SIDES, both, strict=True))


def _vocabulary(path: Path) -> Vocabulary:
    """A piece and a count in each line, behind the marks."""
    try:
        lines = read_ordinary(path).decode().split("\n")
    except ValueError as error:
        raise UserError(f"{path} is no UTF-8 text; copy it again.") from error
    entries: list[str] = list(MARKS)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        line = line.removesuffix(OVERWRITE).rstrip()
        piece, _, count = line.rpartition(" ")
        if not piece or not count.isdigit():
            raise UserError(f"{path}, line {number}: {line[:40]!r} is no piece and its count; copy it again.")
        # Fillers, and texts spelt like marks, have rows of the embeddings, but must not be found as text.
        entries.append("" if piece.startswith(FILLER) or piece in MARKS else piece)
    if len({*filter(None, entries)}) < sum(map(bool, entries)):
        raise UserError(f"{path} has a piece twice; copy it again.")
    never = (START, PADDING, *(i for i, entry in enumerate(entries) if not entry))
    return Vocabulary(tuple(entries), END, END, UNKNOWN, never)


def _usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith((".version", "_float_tensor")):  # of old versions, for themselves
            continue
        made |= dict(_renamed(name, tensor))
    own = [
        made.pop(name) for name in ("decoder.output_projection.weight", "decoder.embed_out") if name in made
    ]
    if own or TARGET in made:
        made[OUTPUT] = own[0] if own else made[TARGET]
    return made


def _renamed(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """By the names of today; queries, keys and values were one once."""
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
            raise UserError(f"the checkpoint has {name}, which nmt doesn't know.")
        yield f"{stack}.{layer}.{names[number]}.{kind}", tensor
    else:
        yield name, tensor


def _config(told: Told, tensors: dict[str, Tensor]) -> ModelConfig:
    """Its shape; takes the tensors away that are there twice."""
    for name in (
        "no_scale_embedding",
        "layernorm_embedding",
        "no_token_positional_embeddings",
        "cross_self_attention",
    ):
        told.demand(name, False)
    for name in ("adaptive_softmax_cutoff", "no_cross_attention", "character_embeddings"):
        told.demand(name, None, False)
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads"):
        told.demand(f"decoder_{name}", told.integer(f"encoder_{name}"))
    pre = told.flag("encoder_normalize_before", False)
    learned = told.flag("encoder_learned_pos", False)
    told.demand("decoder_normalize_before", pre)
    told.demand("decoder_learned_pos", learned)
    activation = told.text("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise UserError(f"{told.where}: activation_fn is {activation}; nmt knows {', '.join(ACTIVATIONS)}.")
    shared = told.flag("share_all_embeddings", False)
    tied = shared or told.flag("share_decoder_input_output_embed", False)
    for name in ((SOURCE,) if shared else ()) + ((TARGET,) if tied else ()):
        tensors.pop(name, None)
    longest = _cut_positions(tensors) if learned else ModelConfig().longest
    return ModelConfig(
        encoder_layers=told.integer("encoder_layers"),
        decoder_layers=told.integer("decoder_layers"),
        width=told.integer("encoder_embed_dim"),
        feed_forward=told.integer("encoder_ffn_embed_dim"),
        heads=told.integer("encoder_attention_heads"),
        norm="pre" if pre else "post",
        norm_epsilon=EPSILON,
        activation=ACTIVATIONS[activation],  # type: ignore[arg-type]  # their values are our choices
        positions="learned" if learned else "marian",
        first_position=0 if learned else FIRST,
        attention_bias=True,
        tie="all" if shared else "decoder" if tied else "none",
        residual_dropout=told.number("dropout", 0.1),
        embedding_dropout=told.number("dropout", 0.1),
        attention_dropout=told.number("attention_dropout", 0.0),
        activation_dropout=told.number("activation_dropout", 0.0),
        longest=longest,
    )


def _cut_positions(tensors: dict[str, Tensor]) -> int:
    """Take away the rows of padding; the shorter of both tables says how many positions there are."""
    names = [f"{name}.weight" for name in POSITIONS.values()]
    if missing := [name for name in names if name not in tensors or tensors[name].dim() != 2]:
        raise UserError(f"the checkpoint has no {missing[0]}; it is no model that nmt knows.")
    longest = min(len(tensors[name]) for name in names) - FIRST
    for name in names:
        tensors[name] = tensors[name][FIRST : FIRST + longest]
    return longest


def _tokenizers(folder: Path, names: Mapping[Side, str], sides: Mapping[Side, Vocabulary]) -> Tokenizers:
    joint = sides["source"].entries == sides["target"].entries
    codes = sorted(path for pattern in CODES for path in folder.glob(pattern))
    pieces = sorted(path for pattern in SENTENCEPIECE for path in folder.glob(pattern))
    if not codes and not pieces:
        raise UserError(
            f"{folder} has neither codes of subword-nmt (codes) nor a SentencePiece model (*.model); "
            "put there what its text was segmented with."
        )
    files = pieces or codes
    each = dict(zip(SIDES, _of_sides(files, names), strict=True))
    recipe = Recipe(
        kind="sentencepiece" if pieces else "bpe",
        joint=joint,
        source_lang=names["source"],
        target_lang=names["target"],
        text=TextConfig(unicode="none", words="raw" if pieces else "moses"),
        own_models=joint and each["source"] != each["target"],
    )
    contents = {}
    for side in SIDES:
        known = sides[side].entries if not joint else [*sides["source"].entries, *sides["target"].entries]
        content = read_ordinary(each[side])
        contents[recipe.model_names()[side]] = (
            {"model": content} if pieces else {"codes": content, "characters.txt": _alphabet(known)}
        )
    vocabularies = {recipe.vocabulary_names()[side]: sides[side] for side in SIDES}
    return numbered_tokenizers(recipe, contents, vocabularies)


def _of_sides(files: list[Path], names: Mapping[Side, str]) -> list[Path]:
    """The file of each side: the one there is, or the one that is named for the language."""
    if len(files) == 1:
        return [files[0], files[0]]
    found = []
    for side in SIDES:
        own = [path for path in files if names[side] in path.name.split(".")]
        if len(own) != 1:
            told = ", ".join(path.name for path in files)
            raise UserError(
                f"{files[0].parent} has {told}; leave one, or one with .{names[side]} in its name."
            )
        found.append(own[0])
    return found


def _alphabet(entries: Any) -> bytes:
    characters = {character for entry in entries for character in entry.removesuffix("@@")}
    return "".join(sorted(characters - {" ", "\n"})).encode()
