"""Folders of Hugging Face's `transformers` in: Marian's class, which OPUS-MT has, M2M100's and Pegasus'.

Pegasus is the pre-norm Transformer; we write such folders ourselves, with Marian's tokeniser beside them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt_cli.checkpoints.files import read_tensors
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.interop.exporters.exported import UNTOUCHED
from nmt_cli.interop.foreign import POSITIONS, Foreign, Wanted
from nmt_cli.interop.importers import m2m100
from nmt_cli.interop.importers.pickled import read_pickled
from nmt_cli.interop.told import Told, read_json, told_in
from nmt_cli.interop.weights import BIAS, OUTPUT, SOURCE, TARGET, Usual, ours, renamed, without_zero_biases
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers, load_tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
OURS, OUR_TOKENIZER = "nmt.json", "nmt-tokenizer"
"""What our own exports have beside transformers' files."""

SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"

EPSILON = 1e-5
"""Of layer norm, in these classes."""

NORMS = {"marian": "post", "pegasus": "pre", m2m100.KIND: "pre"}
NAMES = {"marian": "Hugging Face Marian", "pegasus": "Hugging Face Pegasus", m2m100.KIND: "M2M100 or NLLB"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
LANGUAGE_CODE = re.compile(r">>\S+<<")
NAME = re.compile(r".*-([a-z]{2,3})-([a-z]{2,3})$")
"""Of OPUS-MT's folders, which tell two languages."""

TheirConfig = tuple[Told, ModelConfig]


def read(folder: Path, wanted: Wanted) -> Foreign:
    """The model in `folder`; `UserError` names what can't be expressed."""
    told = told_in(folder / CONFIG)
    kind = told.text("model_type")
    if kind not in NORMS:
        raise UserError(f"{folder} is a model of kind {kind}; nmt import knows {' and '.join(NORMS)}.")
    tensors = renamed(_tensors(folder), usual_names, str(folder))
    name = NAMES[kind]
    if kind == m2m100.KIND:
        return _of_many_languages(folder, told, tensors, wanted)
    returned = (folder / OURS).is_file() and wanted == Wanted()
    if kind == "pegasus" and _separate(folder):
        if not returned:
            raise UserError(
                f"{folder} has two vocabularies in one matrix, which nmt import takes apart only where "
                f"{OURS} is beside it, and without options."
            )
        _unstack(tensors, folder / TARGET_VOCABULARY)
    if returned:
        return _returned(folder, name, tensors)
    notes: list[str] = []
    config = _config(told, tensors, wanted)
    source, target = _vocabularies(folder, told, tensors)
    if target.start is None and wanted.positions == "marian" and target.never:
        tensors, source, target = _without_padding(tensors, source, target)
    tokenizers = _tokenizers(folder, wanted, source, target)
    usual = Usual(tensors, str(folder))
    made = ours(usual, config, len(source), len(target))
    usual.refuse_rest()
    if config.positions == "sinusoidal":
        notes.append(
            "positions are those of transformers; where Marian trained it, as it did OPUS-MT's models, "
            "--positions marian restores what it was trained with"
        )
    longest = told.integer("max_position_embeddings", 512)
    return Foreign(name, config, tokenizers, made, _search(folder, told), longest, notes)


def _of_many_languages(folder: Path, told: Told, tensors: dict[str, Tensor], wanted: Wanted) -> Foreign:
    """M2M100 or NLLB, for one pair of languages unless a line says another."""
    if wanted.positions:
        raise UserError(f"{folder} has positions that are always its own; leave --positions out.")
    config = replace(_config(told, tensors, wanted), positions="marian", first_position=m2m100.FIRST)
    rows = len(tensors[OUTPUT])
    tokenizers = m2m100.tokenizers(folder, told, rows, wanted)
    usual = Usual(tensors, str(folder))
    made = ours(usual, config, rows, rows)
    usual.refuse_rest()
    notes = [m2m100.NOTE.format(tokenizers.recipe.symbols[0])]
    longest = told.integer("max_position_embeddings", 1024)
    return Foreign(NAMES[m2m100.KIND], config, tokenizers, made, _search(folder, told), longest, notes)


def _returned(folder: Path, kind: str, tensors: dict[str, Tensor]) -> Foreign:
    """Return a model that nmt exported, with the weights that the folder holds now."""
    told = read_json(folder / OURS)
    try:
        config, trained_on = section_of(ModelConfig, told["model"]), dict(told["trained_on"])
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{folder / OURS} is damaged ({error}); copy it again, or remove it.") from error
    tokenizers = load_tokenizers(folder / OUR_TOKENIZER)
    source, target = (len(side.vocabulary) for side in (tokenizers.source, tokenizers.target))
    for name, rows in ((SOURCE, source), (TARGET, target), (OUTPUT, target), (BIAS, target)):
        if name in tensors:
            tensors[name] = tensors[name][:rows]  # without their padding
    if BIAS in tensors and not tensors[BIAS].any():
        del tensors[BIAS]
    _untie(tensors, config.tie)
    biases = any(name.endswith("_proj.bias") for name in tensors)
    config = replace(
        config,
        attention_bias=config.attention_bias or biases,
        output_bias=config.output_bias or BIAS in tensors,
    )
    if config.output_bias:
        tensors.setdefault(BIAS, tensors[OUTPUT].new_zeros(target))
    for name in [name for name in tensors if name.endswith("_proj.weight")] if config.attention_bias else ():
        tensors.setdefault(name.replace(".weight", ".bias"), tensors[name].new_zeros(len(tensors[name])))
    usual = Usual(tensors, str(folder))
    made = ours(usual, config, source, target)
    usual.refuse_rest()
    return Foreign(kind, config, tokenizers, made, trained_on=trained_on)


def _unstack(tensors: dict[str, Tensor], vocabulary: Path) -> None:
    """Give each side its own rows of the one matrix in which the target's entries follow the source's."""
    first = min(_ids(vocabulary, len(tensors[OUTPUT])).values(), default=0)
    tensors[SOURCE] = tensors[SOURCE][:first]
    for name in {TARGET, OUTPUT, BIAS} & tensors.keys():
        tensors[name] = tensors[name][first:]


def _tensors(folder: Path) -> Mapping[str, Tensor]:
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if not (folder / PICKLED).is_file():
        raise UserError(f"{folder} has neither {WEIGHTS} nor {PICKLED}; download the whole folder.")
    found = read_pickled(folder / PICKLED)
    if not isinstance(found, Mapping) or not all(isinstance(each, Tensor) for each in found.values()):
        raise UserError(f"{folder / PICKLED} holds no tensors by name; download it again.")
    return found


def usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without what can be computed, and without biases that are zeros everywhere."""
    made = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors.items()
        if "embed_positions" not in name
    }
    shared = made.pop("shared.weight", None)
    for name in (SOURCE, TARGET):
        if shared is not None:
            made.setdefault(name, shared)
    output = made.pop("lm_head.weight", None)
    if output is not None or TARGET in made:
        made[OUTPUT] = made[TARGET] if output is None else output
    bias = made.pop("final_logits_bias", None)
    if bias is not None:
        made[BIAS] = bias.flatten()
    return without_zero_biases(made)


def _config(told: Told, tensors: dict[str, Tensor], wanted: Wanted) -> ModelConfig:
    """Its shape; takes the tensors away that are there twice."""
    told.demand("scale_embedding", True)
    for side in ("attention_heads", "ffn_dim"):
        told.demand(f"decoder_{side}", told.integer(f"encoder_{side}"))
    activation = told.text("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(
            f"{told.where}: activation_function is {activation}; nmt knows {', '.join(ACTIVATIONS)}."
        )
    shared = told.flag("share_encoder_decoder_embeddings", True)
    tie = ("all" if shared else "decoder") if told.flag("tie_word_embeddings", True) else "none"
    _untie(tensors, tie)
    rule = POSITIONS[wanted.positions or "huggingface"]
    return ModelConfig(
        encoder_layers=told.integer("encoder_layers"),
        decoder_layers=told.integer("decoder_layers"),
        width=told.integer("d_model"),
        feed_forward=told.integer("encoder_ffn_dim"),
        heads=told.integer("encoder_attention_heads"),
        norm="pre" if NORMS[told.text("model_type")] == "pre" else "post",
        norm_epsilon=EPSILON,
        activation=ACTIVATIONS[activation],  # type: ignore[arg-type]  # their values are our choices
        positions=rule,
        attention_bias=any(name.endswith("_proj.bias") for name in tensors),
        output_bias=BIAS in tensors,
        tie=tie,  # type: ignore[arg-type]  # it is one of ours
        residual_dropout=told.number("dropout", 0.1),
        embedding_dropout=told.number("dropout", 0.1),
        attention_dropout=told.number("attention_dropout", 0.0),
        activation_dropout=told.number("activation_dropout", 0.0),
    )


def _untie(tensors: dict[str, Tensor], tie: str) -> None:
    """Take away what is the output matrix too."""
    for name, ties in ((TARGET, ("all", "decoder")), (SOURCE, ("all",))):
        if tie in ties:
            tensors.pop(name, None)


def _vocabularies(folder: Path, told: Told, tensors: Mapping[str, Tensor]) -> tuple[Vocabulary, Vocabulary]:
    """Of both sides; one and the same where they share it."""
    rows = len(tensors[OUTPUT])
    separate = _separate(folder)
    known = _ids(folder / (TARGET_VOCABULARY if separate else VOCABULARY), rows)
    first, embeddings = told.integer("decoder_start_token_id"), tensors.get(TARGET, tensors[OUTPUT])
    if not 0 <= first < len(embeddings):
        raise UserError(f"{told.where}: decoder_start_token_id is {first}, but there are {rows:,} entries.")
    start = first if embeddings[first].any() else None
    end = told.integer("eos_token_id", known.get("</s>"))
    never: tuple[int, ...] = (told.integer("pad_token_id"),) if "pad_token_id" in told else ()
    target = _vocabulary(folder, known, rows, end, start, never)
    if not separate:
        return target, target
    sources = len(tensors[SOURCE])
    known = _ids(folder / VOCABULARY, sources)
    never = tuple(i for piece, i in known.items() if piece == "<pad>")
    return _vocabulary(folder, known, sources, known.get("</s>", -1), None, never), target


def _separate(folder: Path) -> bool:
    there = (folder / TOKENIZER).is_file()
    return there and told_in(folder / TOKENIZER).flag("separate_vocabs", False)


def _ids(path: Path, rows: int) -> dict[str, int]:
    found = read_json(path)
    if not isinstance(found, dict) or not all(type(i) is int for i in found.values()):
        raise UserError(f"{path} is no vocabulary; copy it again.")
    if wrong := [i for i in found.values() if not 0 <= i < rows]:
        raise UserError(f"{path} has the id {wrong[0]}, but the model has only {rows:,} entries.")
    if len({*found.values()}) < len(found):
        raise UserError(f"{path} gives one id to two pieces; copy it again.")
    return found


def _vocabulary(
    folder: Path, known: Mapping[str, int], rows: int, end: int, start: int | None, never: tuple[int, ...]
) -> Vocabulary:
    if "<unk>" not in known:
        raise UserError(f"{folder}: the vocabulary has no <unk>; it is no model that nmt knows.")
    entries = [""] * rows
    for piece, i in known.items():
        if "\n" in piece:
            raise UserError(f"{folder}: the vocabulary has a line break in {piece!r}, which nmt can't keep.")
        entries[i] = piece
    empty = {i for i, entry in enumerate(entries) if not entry}
    return Vocabulary(tuple(entries), end, start, known["<unk>"], tuple(sorted({*never, *empty} - {end})))


def _without_padding(
    tensors: Mapping[str, Tensor], source: Vocabulary, target: Vocabulary
) -> tuple[dict[str, Tensor], Vocabulary, Vocabulary]:
    """Marian has no padding: transformers' converter added it as the last entry."""
    made = dict(tensors)
    sides = {"source": source, "target": target}
    for side, names in (("source", (SOURCE,)), ("target", (TARGET, OUTPUT, BIAS))):
        known = sides[side]
        last = len(known) - 1
        if known.never[-1:] != (last,):
            continue
        for name in names:
            if name in made:
                made[name] = made[name][:last]
        sides[side] = Vocabulary(
            known.entries[:last], known.end, known.start, known.unknown, known.never[:-1]
        )
    joint = source is target
    return made, sides["target" if joint else "source"], sides["target"]


def _tokenizers(folder: Path, wanted: Wanted, source: Vocabulary, target: Vocabulary) -> Tokenizers:
    files = [folder / SOURCE_SPM, folder / TARGET_SPM]
    if missing := [path for path in files if not path.is_file()]:
        raise UserError(f"{missing[0]} is missing; download the whole folder.")
    models = [read_ordinary(path) for path in files]
    told = told_in(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else Told({}, str(folder))
    named = NAME.match(folder.resolve().name)
    guesses = named.groups() if named else (None, None)
    languages = wanted.languages(
        told.text("source_lang", guesses[0] or "") or None,
        told.text("target_lang", guesses[1] or "") or None,
        folder,
    )
    sides: Mapping[Side, Vocabulary] = {"source": source, "target": target}
    return of_two_models(languages, dict(zip(SIDES, models, strict=True)), sides)


def of_two_models(
    languages: tuple[str, str], models: Mapping[Side, bytes], sides: Mapping[Side, Vocabulary]
) -> Tokenizers:
    """Return tokenisers of a SentencePiece model for each side, sharing a vocabulary if it is the same."""
    joint = sides["source"] is sides["target"]
    recipe = Recipe(
        kind="sentencepiece",
        joint=joint,
        source_lang=languages[0],
        target_lang=languages[1],
        text=UNTOUCHED,
        symbols=tuple(entry for entry in sides["source"].entries if LANGUAGE_CODE.fullmatch(entry)),
        own_models=joint and models["source"] != models["target"],
    )
    contents = {name: {"model": models[side]} for side, name in recipe.model_names().items()}
    vocabularies = {name: sides[side] for side, name in recipe.vocabulary_names().items()}
    return numbered_tokenizers(recipe, contents, vocabularies)


def _search(folder: Path, told: Told) -> dict[str, Any]:
    """How `generate` decodes with it."""
    asked = told_in(folder / GENERATION) if (folder / GENERATION).is_file() else told
    for name in ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"):
        asked.demand(name, 0)
    longest = asked.integer("max_length", told.integer("max_position_embeddings", 512))
    search = {
        "beam": asked.integer("num_beams", 1),
        "length_rule": "power",
        "length_penalty": asked.number("length_penalty", 1.0),
        "cap_ratio": 0.0,
        "cap_extra": longest - 2,  # without the start and the end mark
        "unknown": True,
    }
    if asked.says("early_stopping", True):
        search["stop_early"] = True
    if asked.says("early_stopping", "never"):
        search["reach"] = 1000.0
    return search
